//! A look at what this home has on the engine that no session explains. It changes nothing: the comparison of rows and
//! containers has done what can be done without asking.

use std::collections::HashMap;

use super::driver::Driver;
use super::failure::Failure;
use crate::engine::{EngineError, Observed, RunState, labels};
use crate::model::id::{SessionId, SessionName};
use crate::model::session::EngineKind;
use crate::proto::daemon::{DaemonCheckResult, OrphanContainer, SessionLayers};

impl Driver {
    /// Looks.
    ///
    /// # Errors
    /// The engine's.
    pub async fn check(&self) -> Result<DaemonCheckResult, Failure> {
        let containers = self.own_containers().await?;
        let images = self.0.engine.snapshot_images(&self.label()).await?;
        let snapshots = self.0.store.snapshots(None);
        let has_row = |id: &String| snapshots.iter().any(|snapshot| snapshot.id.as_str() == id);
        let tags = images.iter().filter_map(|image| image.labels.get(labels::SNAPSHOT_ID));
        Ok(DaemonCheckResult {
            containers: containers.iter().filter_map(|container| self.orphan(container)).collect(),
            images: tags
                .filter(|id| !has_row(id))
                .map(|id| format!("{}:{id}", labels::SNAPSHOT_REPOSITORY))
                .collect(),
            layers: self.layers_of_sessions().await?,
            space: Some(self.space().await?),
        })
    }

    /// A container that is no session's. One whose session is being worked on may be about to become its own.
    fn orphan(&self, container: &Observed) -> Option<OrphanContainer> {
        let owner = container.labels.get(labels::SESSION_ID).map(SessionId::new);
        let owner = owner.and_then(|id| self.0.store.session_by_id(&id));
        let is_explained = owner
            .as_ref()
            .is_some_and(|row| row.operation.is_some() || row.sandbox_id.as_ref() == Some(&container.id));
        let state = match container.state {
            RunState::Created => "created",
            RunState::Running => "running",
            RunState::Paused => "paused",
            RunState::Exited => "exited",
        };
        (!is_explained).then(|| OrphanContainer {
            id: container.id.clone(),
            name: container.name.clone(),
            state: state.to_owned(),
            session: if owner.is_some() { None } else { self.free_name(container) },
        })
    }

    /// The name that its labels tell, or that with a number.
    fn free_name(&self, container: &Observed) -> Option<String> {
        let wanted = container.labels.get(labels::SESSION_NAME)?;
        let names = (1u32..).map(|n| if n == 1 { wanted.clone() } else { format!("{wanted}-{n}") });
        let free = |name: &String| self.0.store.session(name).is_none();
        names.take(self.count() + 1).find(free).filter(|name| SessionName::parse(name).is_ok())
    }

    async fn layers_of_sessions(&self) -> Result<Vec<SessionLayers>, EngineError> {
        let mut known: HashMap<String, u64> = HashMap::new();
        let mut all = Vec::new();
        for session in self.sessions() {
            let Some(image) = session.image_id.as_ref().filter(|_| session.engine == EngineKind::Docker)
            else {
                continue;
            };
            let layers = match known.get(image) {
                Some(layers) => *layers,
                None => {
                    let found = self.0.engine.image(image).await?;
                    let layers = found.map_or(0, |image| image.layers.len() as u64);
                    known.insert(image.clone(), layers);
                    layers
                }
            };
            all.push(SessionLayers { name: session.name.to_string(), layers });
        }
        Ok(all)
    }
}
