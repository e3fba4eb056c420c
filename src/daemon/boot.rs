//! The lives of the machine and of its engine: whether they began anew since the rows were last compared with the engine,
//! and which sessions come back then.
//!
//! A container that ended with the engine did not end by itself, also where nobody watched: both may have gone down before
//! this daemon came up. The kernel tells one boot from the next, and for an engine of this machine its process does.

use std::fmt;
use std::path::Path;
use std::sync::atomic::Ordering;

use super::driver::Driver;
use super::failure::Failure;
use super::progress::Report;
use crate::config;
use crate::model::id::SessionId;
use crate::model::reconcile::OnBoot;
use crate::model::session::{Reason, Session, Status};

/// The key under which the table remembers the life in which its rows were last compared with the engine.
const LIFE_KEY: &str = "engine.life";

/// The key under which it remembers the sessions that are still to come back, by their ids.
const OWED_KEY: &str = "boot.owed";

/// The program of engines whose end is that of their containers.
const ENGINE: &str = "dockerd";

/// One life.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Life {
    /// The kernel's name for it.
    boot: String,
    /// When the engine began, in the kernel's ticks since then; none where that cannot be told.
    engine: Option<String>,
}

impl Life {
    /// The one that is now, of this machine and of the engine at `address`; none where nobody tells.
    fn now(address: Option<&str>) -> Option<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        let socket = address.and_then(|address| address.strip_prefix("unix://"));
        Some(Self { boot, engine: socket.and_then(|socket| engine_began(Path::new(socket))) })
    }

    fn read(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace().map(str::to_owned);
        Some(Self { boot: words.next()?, engine: words.next() })
    }

    /// Whether what ran in the one `before` has ended.
    fn is_after(&self, before: &Self) -> bool {
        let engines = self.engine.as_ref().zip(before.engine.as_ref());
        self.boot != before.boot || engines.is_some_and(|(now, then)| now != then)
    }
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.boot, self.engine.as_deref().unwrap_or_default())
    }
}

/// When the engine behind a socket began. Where a service manager listens in its place, the engine's own note beside the
/// socket names its process.
fn engine_began(socket: &Path) -> Option<String> {
    let noted = || std::fs::read_to_string(socket.with_extension("pid")).ok()?.trim().parse::<i32>().ok();
    [listener(socket), noted()].into_iter().flatten().find_map(|process| {
        let about = |file: &str| std::fs::read_to_string(format!("/proc/{process}/{file}")).ok();
        let is_engine = about("comm").is_some_and(|name| name.trim_end() == ENGINE);
        // A program's name, which stands in brackets before, may hold anything (proc(5)); the 22nd field is the start.
        let began = about("stat")?.rsplit_once(')')?.1.split_whitespace().nth(19).map(str::to_owned);
        began.filter(|_| is_engine)
    })
}

/// The process that listens on a socket.
fn listener(socket: &Path) -> Option<i32> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let stream = std::os::unix::net::UnixStream::connect(socket).ok()?;
        let credentials = nix::sys::socket::getsockopt(&stream, nix::sys::socket::sockopt::PeerCredentials);
        Some(credentials.ok()?.pid())
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = socket;
        None
    }
}

impl Driver {
    /// Notes that the engine was away since the rows were last compared, if this life is another one than then. Before
    /// anything is asked of sessions, and again when the engine's address is known.
    pub(super) async fn note_life(&self, address: Option<&str>) {
        let before = self.0.store.write(|tx| Ok(tx.meta(LIFE_KEY))).await.ok().flatten();
        let before = before.as_deref().and_then(Life::read);
        if let (Some(before), Some(now)) = (before, Life::now(address))
            && now.is_after(&before)
        {
            tracing::info!(%before, %now, "the machine or its engine came up anew");
            self.0.away.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that the rows are those of this life.
    pub(super) async fn keep_life(&self, address: &str) {
        self.0.away.store(false, Ordering::Relaxed);
        let Some(now) = Life::now(Some(address)) else { return };
        let kept = self.0.store.write(move |tx| match now.to_string() {
            text if tx.meta(LIFE_KEY).as_ref() == Some(&text) => Ok(()),
            text => tx.set_meta(LIFE_KEY, &text),
        });
        if let Err(error) = kept.await {
            tracing::warn!(%error, "the next daemon will not know whether the engine went away meanwhile");
        }
    }

    /// Whether the engine was away since the rows were last compared with it.
    pub(super) fn was_away(&self) -> bool {
        self.0.away.load(Ordering::Relaxed)
    }

    /// Whether a session that ran when the engine went comes back with it.
    fn comes_back(&self, session: &Session) -> bool {
        let configured = || self.config().on_boot.value == config::OnBoot::Resume;
        session.on_boot.map_or_else(configured, |chosen| chosen == OnBoot::Resume)
    }

    /// Remembers that a session that ran when the engine went is to be brought back, if it is. In the table: this daemon
    /// may end before it has come to it.
    pub(super) async fn owe(&self, session: &Session) -> Result<(), Failure> {
        if !self.comes_back(session) {
            return Ok(());
        }
        let id = session.id.to_string();
        let noted = self.0.store.write(move |tx| {
            let mut owed = tx.meta(OWED_KEY).unwrap_or_default();
            if !owed.split(' ').any(|known| known == id) {
                owed = format!("{owed} {id}");
            }
            tx.set_meta(OWED_KEY, owed.trim())
        });
        Ok(noted.await?)
    }

    /// Brings back the sessions that are owed that, one after the other: a machine that comes up has enough to do. Each is
    /// tried once.
    pub(super) async fn bring_back(&self) {
        loop {
            let next = self.0.store.write(|tx| {
                let owed = tx.meta(OWED_KEY).unwrap_or_default();
                let Some(id) = owed.split(' ').next().filter(|id| !id.is_empty()) else { return Ok(None) };
                let id = id.to_owned();
                tx.set_meta(OWED_KEY, owed[id.len()..].trim())?;
                Ok(Some(SessionId::new(id)))
            });
            let Ok(Some(id)) = next.await else { return };
            let this = self.clone();
            let brought = self.submit(async move {
                let Some(mut held) = this.hold_id(&id).await else { return Ok(()) };
                let row = &held.session;
                let rests = row.status == Status::Stopped && row.reason == Some(Reason::Engine);
                if !rests || row.operation.is_some() {
                    return Ok(());
                }
                tracing::info!(session = %row.name, "bringing back what ran before the engine went");
                this.resume_held(&mut held, &Report::default()).await
            });
            if let Err(failure) = brought.await {
                // Its row says why it does not run, and whoever uses it gets this error.
                tracing::warn!(%failure, causes = ?failure.causes, "a session does not come back");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(text: &str) -> Life {
        Life::read(text).expect("a life")
    }

    #[test]
    fn another_boot_and_another_process_of_the_engine_are_another_life() {
        assert!(life("b 5").is_after(&life("a 5")));
        assert!(life("a 6").is_after(&life("a 5")));
        assert!(!life("a 5").is_after(&life("a 5")));
        assert!(!life("a").is_after(&life("a 5")), "nobody tells of the engine");
    }

    #[test]
    fn a_life_reads_back_as_it_is_kept() {
        for life in [life("a 5"), life("a")] {
            assert_eq!(Life::read(&life.to_string()), Some(life));
        }
        assert_eq!(Life::read(""), None);
    }
}
