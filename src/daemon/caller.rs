//! Who asks: noted with the events of all that is done for it.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use super::framing::Peer;
use crate::model::event::By;
use crate::store;

/// Longest name of a client that is noted, in characters.
const MAX_NAME_CHARS: usize = 64;

/// What a client called itself in its greeting, and what the system calls its program. One for each connection.
#[derive(Debug, Clone, Default)]
pub struct Introduced(Arc<Names>);

#[derive(Debug, Default)]
struct Names {
    own: OnceLock<String>,
    /// As it was when it was first asked for.
    program: OnceLock<Option<String>>,
}

impl Introduced {
    /// Notes the name, unless one was given before.
    pub fn note(&self, name: &str) {
        let name: String = name.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect();
        if !name.is_empty() {
            // A second greeting changes nothing.
            let _ = self.0.own.set(name);
        }
    }
}

/// The client at the other end of a connection.
pub fn of(peer: &Peer, introduced: Option<&Introduced>) -> By {
    let pid = peer.pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
    let name = match introduced {
        Some(Introduced(names)) => {
            let program = || names.program.get_or_init(|| pid.and_then(program)).clone();
            names.own.get().cloned().or_else(program)
        }
        None => pid.and_then(program),
    };
    By { client: name.unwrap_or_else(|| "a client".to_owned()), pid }
}

/// The name of a process's program, where the system tells.
fn program(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().chars().filter(|c| !c.is_control()).collect())
}

/// Does something for a client.
///
/// # Cancel safety
/// That of `work`.
pub async fn acting<F: Future>(by: Option<By>, work: F) -> F::Output {
    store::acting(by, work).await
}
