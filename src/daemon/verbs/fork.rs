//! Forking: a new session from a snapshot of another.

use std::sync::Arc;

use super::save::Naming;
use crate::daemon::clock;
use crate::daemon::driver::{Driver, Held};
use crate::daemon::failure::Failure;
use crate::daemon::progress::Report;
use crate::model::id::{SessionId, SessionName};
use crate::model::session::{Operation, Port, Session, Snapshot};
use crate::model::step::Verb;
use crate::proto::sessions::ForkParams;

impl Driver {
    /// Starts a new session from a snapshot of this one, taken now if none is named. A running source keeps running.
    ///
    /// # Errors
    /// As documented for `session.fork`.
    ///
    /// # Cancel safety
    /// The fork goes on when the caller is dropped.
    pub async fn fork(&self, params: ForkParams, report: Report) -> Result<Arc<Session>, Failure> {
        let this = self.clone();
        self.submit(async move {
            let name = SessionName::parse(&params.new_name)?;
            if let Some(taken) = this.0.store.session(name.as_str()).filter(|s| s.name == name) {
                let error = crate::store::error::StoreError::Exists { name: taken.name.to_string() };
                return Err(Failure::from(error).hint("choose another name"));
            }
            // Until the new container stands on the snapshot, nothing may delete that.
            let (source, snapshot, taken) = this.fork_point(&params, &report).await?;
            let foundation = match this.foundation(&snapshot, &source, &report).await {
                Ok(foundation) => foundation,
                Err(failure) => {
                    this.untake(&snapshot, taken).await;
                    return Err(failure);
                }
            };
            let row = forked(&source.session, name);
            let gaps = this.gaps(&row, &snapshot).await;
            match this.create_session(row, &foundation.image, report.clone()).await {
                Ok(session) => {
                    gaps.into_iter()
                        .chain(other_ports(&source.session, &session))
                        .for_each(|gap| report.warn(gap));
                    this.remember_base(&session, &snapshot.name).await?;
                    this.adopt_agent(&session, &snapshot).await?;
                    Ok(session)
                }
                Err(failure) => {
                    this.untake(&snapshot, taken).await;
                    Err(failure)
                }
            }
        })
        .await
    }

    /// After a fork that failed: a snapshot that was taken for it alone goes with it.
    async fn untake(&self, snapshot: &Snapshot, taken: bool) {
        if taken && let Err(error) = self.remove_snapshot(snapshot).await {
            tracing::warn!(%error, snapshot = snapshot.name, "a failed fork leaves its snapshot");
        }
    }

    /// The source in its turn, the snapshot to fork from, and whether that was taken for it.
    async fn fork_point(
        &self,
        params: &ForkParams,
        report: &Report,
    ) -> Result<(Held, Arc<Snapshot>, bool), Failure> {
        let mut held = self.hold(&params.name).await?;
        if let Some(name) = &params.snapshot {
            let snapshot = self.own_snapshot(&held.session, name)?;
            return Ok((held, snapshot, false));
        }
        let plan = self.plan_true(&mut held, Verb::Fork).await?;
        let taken = plan.operation.is_some();
        let snapshot = if taken {
            let note = Some(format!("fork to {}", params.new_name));
            self.take_snapshot(
                &mut held,
                &plan,
                Naming { note, automatic: true, ..Naming::default() },
                report,
            )
            .await?
        } else {
            self.newest_snapshot(&held.session).ok_or_else(|| Failure::no_snapshot(&params.name))?
        };
        Ok((held, snapshot, taken))
    }
}

/// The ports of the host that a session has asked for, and its fork cannot have.
fn other_ports(source: &Session, fork: &Session) -> Vec<String> {
    let host = |port: &Port| port.host.map_or_else(|| "none".to_owned(), |host| host.to_string());
    let here = |port: &Port| {
        let same = |other: &&Port| (other.container, &other.protocol) == (port.container, &port.protocol);
        fork.spec.ports.iter().find(same).map_or_else(|| "none".to_owned(), host)
    };
    let fixed = source.spec.ports.iter().filter(|port| port.fixed);
    fixed
        .map(|port| {
            let (name, container) = (&source.name, format!("{}/{}", port.container, port.protocol));
            format!(
                "port {container}: {} of the host is that of '{name}', and {} forwards here",
                host(port),
                here(port)
            )
        })
        .collect()
}

/// The new row: everything of the source but its identity, its history, and the host ports that only one can have.
fn forked(source: &Session, name: SessionName) -> Session {
    let id = SessionId::new(uuid::Uuid::now_v7().to_string());
    let mut spec = source.spec.clone();
    for port in &mut spec.ports {
        port.host = None;
        port.fixed = false;
    }
    Session {
        agent: source.agent.clone(),
        template: source.template.clone(),
        image: source.image.clone(),
        operation: Some(Operation::Start),
        timeout_ms: source.timeout_ms,
        idle_ms: source.idle_ms,
        keep: source.keep,
        idle_action: source.idle_action,
        on_boot: source.on_boot,
        spec,
        metadata: source.metadata.clone(),
        ..Session::new(id, name, clock::now())
    }
}
