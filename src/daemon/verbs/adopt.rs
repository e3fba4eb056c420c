//! Taking over a container that abx did not make, or one of abx's own that lost its row.

use std::sync::Arc;

use crate::daemon::clock;
use crate::daemon::driver::{Driver, Held};
use crate::daemon::failure::{Failure, quoted};
use crate::daemon::rebuild;
use crate::engine::{Observed, RunState, labels};
use crate::model::id::{SessionId, SessionName};
use crate::model::session::{External, Network, Reason, Runtime, Secret, Session, Spec, Status};
use crate::proto::errors::Kind;
use crate::proto::sessions::AdoptParams;
use crate::store::error::StoreError;

/// Where rows of adopted containers come from. What has an origin is found by its container's id alone: it has no label.
const ORIGIN: &str = "adopted";

impl Driver {
    /// Makes a container a session's, as it is.
    ///
    /// # Errors
    /// As documented for `session.adopt`.
    pub async fn adopt(&self, asked: AdoptParams) -> Result<Arc<Session>, Failure> {
        let this = self.clone();
        self.submit(async move {
            let name = SessionName::parse(&asked.name)?;
            let container = this.0.engine.inspect(&asked.container).await?.ok_or_else(|| {
                Failure::field("container", "the name or the id of a container of the engine")
                    .hint("docker ps -a")
            })?;
            this.check_unowned(&container)?;
            let row = adopted(name, &container, asked.agent);
            let id = row.id.clone();
            let turn = this.turn(&id).await;
            match this.0.store.write(move |tx| insert(tx, &row)).await {
                Ok(()) => {}
                Err(error) => {
                    if this.0.store.session_by_id(&id).is_none() {
                        this.forget(&id);
                    }
                    return Err(error.into());
                }
            }
            let session = this.0.store.session_by_id(&id).ok_or_else(|| Failure::no_session(&asked.name))?;
            tracing::info!(session = %session.name, container = container.name, "adopted a container");
            this.follow_adopted(&session);
            let mut held = Held::new(session, turn);
            if held.session.runtime == Runtime::Init {
                this.0.guests.expect(&id);
            }
            // It may have become another between the look and the row.
            if let Err(failure) = this.settle_held(&mut held).await {
                tracing::debug!(%failure, "will look at the adopted container again");
                this.0.compare.notify_one();
            }
            Ok(held.session)
        })
        .await
    }

    /// Refuses a container that is a session's already, here or in another home.
    fn check_unowned(&self, container: &Observed) -> Result<(), Failure> {
        let refuse = |text: String, hint: String| Err(Failure::new(Kind::WrongState, text).hint(hint));
        let label =
            |key: &str| container.labels.get(key).map(String::as_str).filter(|value| !value.is_empty());
        let sessions = self.sessions();
        let recorded = sessions.iter().find(|session| session.sandbox_id.as_ref() == Some(&container.id));
        let ours = label(labels::SESSION_HOME) == Some(&self.label());
        let named = label(labels::SESSION_ID).filter(|_| ours).map(SessionId::new);
        if let Some(owner) = recorded.cloned().or_else(|| self.0.store.session_by_id(&named?)) {
            let text = format!("container '{}' is that of session '{}'", container.name, owner.name);
            return refuse(text, format!("abx session get {}", quoted(owner.name.as_str())));
        }
        match label(labels::SESSION_HOME) {
            Some(home) if !ours => {
                let text = format!("container '{}' belongs to the abx of {home}", container.name);
                refuse(text, format!("abx --home {} ls", quoted(home)))
            }
            _ => Ok(()),
        }
    }
}

fn insert(tx: &mut crate::store::Tx<'_>, row: &Session) -> Result<(), StoreError> {
    super::start::check_free(tx, row)?;
    tx.insert_session(row)
}

/// The row of a container: of one that abx made, as its labels tell; of any other, as it is.
fn adopted(name: SessionName, container: &Observed, agent: Option<String>) -> Session {
    let now = clock::now();
    let is_ours = container.labels.get(labels::SESSION_HOME).is_some_and(|home| !home.is_empty());
    if let Some(row) = labels::rebuild(container).filter(|_| is_ours) {
        let agent = agent.unwrap_or(row.agent.clone());
        return rebuild::used_now(Session { name, agent, sandbox: container.name.clone(), ..row }, now);
    }
    let status = match container.state {
        RunState::Running => Status::Running,
        RunState::Paused => Status::Paused,
        RunState::Created | RunState::Exited => Status::Stopped,
    };
    Session {
        sandbox: container.name.clone(),
        sandbox_id: Some(container.id.clone()),
        agent: agent.unwrap_or_else(|| "claude".to_owned()),
        template: "base".to_owned(),
        image: Some(container.image_id.clone()),
        image_id: Some(container.image_id.clone()),
        runtime: Runtime::Engine,
        status,
        reason: (status == Status::Stopped).then_some(Reason::User),
        spec: Spec {
            mounts: container.mounts.clone(),
            ports: container.ports.clone(),
            limits: container.limits.clone(),
            network: if container.networked { Network::Bridge } else { Network::None },
            ..Spec::default()
        },
        external: Some(External { origin: ORIGIN.to_owned(), status: None, extra: Secret::new("{}") }),
        ..Session::new(SessionId::new(uuid::Uuid::now_v7().to_string()), name, now)
    }
}
