//! From the model's words to the wire's.

use crate::daemon::clock;
use crate::daemon::driver::Driver;
use crate::daemon::idle::Idleness;
use crate::model::event;
use crate::model::exec::Exec;
use crate::model::session::{self, EngineKind, Mount, Session, Snapshot};
use crate::proto::events::By;
use crate::proto::execs::ExecInfo;
use crate::proto::types;

/// What stands in for the value of a variable.
const MASK: &str = "***";

/// A session as the wire has it, and how it stands with its idle time. Values of variables are masked.
pub fn session(session: &Session, idleness: Option<Idleness>) -> types::Session {
    let Idleness { busy, since, due } = idleness.unwrap_or_default();
    let runs = session.engine != EngineKind::External;
    let attention = session.attention.as_ref();
    types::Session {
        id: session.id.to_string(),
        name: session.name.to_string(),
        sandbox: session.sandbox.clone(),
        sandbox_id: session.sandbox_id.clone(),
        engine: session.engine.as_str().to_owned(),
        agent: session.agent.clone(),
        template: session.template.clone(),
        image: session.image.clone(),
        image_id: session.image_id.clone(),
        runtime: runs.then(|| session.runtime.as_str().to_owned()),
        status: types::Status::from_word(session.status.as_str()),
        operation: session.operation.map(|o| o.verb().to_owned()),
        reason: session.reason.map(|r| types::Reason::from_word(r.as_str())),
        created_at: clock::rfc3339(session.created_at),
        last_active: clock::rfc3339(session.last_active),
        last_connected: session.last_connected.map(clock::rfc3339),
        expires_at: session.expires_at.map(clock::rfc3339),
        timeout_ms: session.timeout_ms,
        idle_ms: session.idle_ms,
        keep: session.keep,
        idle_action: Some(types::IdleAction::from_word(session.idle_action.as_str())),
        on_boot: session.on_boot.map(|word| types::OnBoot::from_word(word.as_str())),
        idle_since: since.map(clock::rfc3339),
        idle_at: due.map(clock::rfc3339),
        busy: busy.into_iter().map(|why| types::Busy::from_word(why.as_str())).collect(),
        exec_count: session.exec_count,
        oom_events: session.oom_events,
        attention: attention.map(|noted| types::Attention::from_word(noted.state.as_str())),
        attention_note: attention.and_then(|noted| noted.note.clone()),
        attention_at: attention.map(|noted| clock::rfc3339(noted.at)),
        snapshot: session.snapshot.clone(),
        snapshots: session.snapshots,
        workspace: session.spec.workspace.as_ref().map(workspace),
        mounts: session.spec.mounts.iter().map(mount).collect(),
        ports: session.spec.ports.iter().map(port).collect(),
        limits: limits(&session.spec.limits),
        network: types::Network::from_word(session.spec.network.as_str()),
        profile: types::Profile::from_word(session.spec.profile.as_str()),
        env: session.spec.env.keys().map(|key| (key.clone(), MASK.to_owned())).collect(),
        metadata: session.metadata.clone(),
        revision: session.revision,
        warnings: Vec::new(),
    }
}

/// A command as the wire has it, with its session's present name.
pub fn exec(exec: &Exec, driver: &Driver) -> ExecInfo {
    let ended = exec.ended.as_ref();
    ExecInfo {
        id: exec.id.to_string(),
        session: driver.name_of(&exec.session),
        key: exec.key.clone(),
        cmd: exec.argv.clone(),
        terminal: exec.terminal.clone(),
        tty: exec.tty,
        detached: exec.detached,
        status: if ended.is_some() { "exited" } else { "running" }.to_owned(),
        started_at: clock::rfc3339(exec.started_at),
        ended_at: ended.map(|end| clock::rfc3339(end.at)),
        exit_code: ended.map(|end| end.code),
        signal: ended.and_then(|end| end.signal).map(i32::from),
        reason: ended.and_then(|end| end.reason.clone()),
    }
}

/// A snapshot as the wire has it, with its session's present name.
pub fn snapshot(snapshot: &Snapshot, session: String) -> types::Snapshot {
    types::Snapshot {
        name: snapshot.name.clone(),
        session,
        image_id: snapshot.image_id.clone(),
        created_at: clock::rfc3339(snapshot.created_at),
        creator: snapshot.creator.as_ref().map(by),
        note: snapshot.note.clone(),
        parent: snapshot.parent.clone(),
        size_bytes: snapshot.size_bytes,
        own_bytes: snapshot.own_bytes,
        excluded: snapshot
            .excluded
            .iter()
            .map(|e| types::Excluded { kind: e.kind.clone(), target: e.target.clone() })
            .collect(),
    }
}

/// A client as the wire has it.
pub fn by(by: &event::By) -> By {
    By { client: by.client.clone(), pid: by.pid }
}

fn workspace(mount: &Mount) -> types::Workspace {
    types::Workspace {
        source: mount.source.clone(),
        target: mount.target.clone(),
        read_only: mount.read_only,
    }
}

fn mount(mount: &Mount) -> types::Mount {
    types::Mount { source: mount.source.clone(), target: mount.target.clone(), read_only: mount.read_only }
}

fn port(port: &session::Port) -> types::Port {
    types::Port { container: port.container, host: port.host, protocol: port.protocol.clone() }
}

fn limits(limits: &session::Limits) -> types::Limits {
    #[expect(clippy::cast_precision_loss, reason = "thousandths of a CPU, at most 1,024,000")]
    let cpus = limits.cpu_millis.map(|millis| millis as f64 / 1000.0);
    types::Limits { cpus, memory_bytes: limits.memory_bytes, pids: limits.pids }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::attention::Attention;
    use crate::model::idle::{Busy, IdleAction};
    use crate::model::until::Until;

    /// Neither of the two may know the other, so this is where they are held together.
    #[test]
    fn each_word_of_the_model_is_one_of_the_wire() {
        for word in session::Status::ALL {
            let wire = types::Status::from_word(word.as_str());
            assert!(!matches!(wire, types::Status::Other(_)), "{word:?}");
        }
        for word in Attention::ALL {
            let wire = types::Attention::from_word(word.as_str());
            assert!(!matches!(wire, types::Attention::Other(_)), "{word:?}");
        }
        for word in IdleAction::ALL {
            let wire = types::IdleAction::from_word(word.as_str());
            assert!(!matches!(wire, types::IdleAction::Other(_)), "{word:?}");
        }
        for word in Busy::ALL {
            let wire = types::Busy::from_word(word.as_str());
            assert!(!matches!(wire, types::Busy::Other(_)), "{word:?}");
        }
        for word in Until::ALL {
            let wire = types::WaitFor::from_word(word.as_str());
            assert!(!matches!(wire, types::WaitFor::Other(_)), "{word:?}");
        }
    }
}
