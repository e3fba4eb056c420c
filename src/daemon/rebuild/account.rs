//! What was lost and what came back, in the words that the user gets: in `daemon.info` as long as the daemon runs, and once
//! to whoever uses `abx` next.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::store::Tx;
use crate::store::error::StoreError;

/// The key under which the table keeps what nobody was told of yet.
const UNTOLD_KEY: &str = "rebuilt.untold";

/// Most names in a sentence.
const MOST_NAMES: usize = 5;

/// What a row was made again from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::daemon) enum Source {
    /// The session's container.
    Container,
    /// A snapshot's image: there is no container any more.
    Snapshot,
}

impl Source {
    /// Its word in events.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Snapshot => "snapshot",
        }
    }

    /// What it does not hold, as fields of a session.
    pub(super) const fn lost(self) -> &'static [&'static str] {
        match self {
            Self::Container => &["env", "exec_count", "history"],
            Self::Snapshot => &["env", "exec_count", "history", "workspace", "mounts"],
        }
    }
}

/// What became of a lost table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Account {
    /// Of the table itself, a sentence.
    table: Option<String>,
    /// Names of sessions that came back from their containers.
    containers: Vec<String>,
    /// Names of sessions of which snapshots came back.
    snapshots: Vec<String>,
}

impl Account {
    /// Says what became of the table itself.
    pub(super) fn set_table(&mut self, sentence: String) {
        self.table = Some(sentence);
    }

    /// Adds a session.
    pub(super) fn add(&mut self, name: String, source: Source) {
        match source {
            Source::Container => self.containers.push(name),
            Source::Snapshot => self.snapshots.push(name),
        }
    }

    /// Reads what nobody was told of.
    pub(super) fn untold(tx: &Tx<'_>) -> Self {
        // One that cannot be read is none: words for the user are not worth a start that fails.
        tx.meta(UNTOLD_KEY).and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    /// Adds to what nobody was told of.
    pub(super) fn change(tx: &mut Tx<'_>, change: impl FnOnce(&mut Self)) -> Result<(), StoreError> {
        let mut account = Self::untold(tx);
        change(&mut account);
        tx.set_meta(UNTOLD_KEY, &serde_json::json!(account).to_string())
    }

    /// Forgets what was told; if more came meanwhile, all of it is told again.
    pub(super) fn forget(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        if Self::untold(tx) == *self { tx.delete_meta(UNTOLD_KEY) } else { Ok(()) }
    }

    /// It in sentences.
    pub(super) fn sentences(&self) -> Vec<String> {
        let containers = names(&self.containers).map(|(count, names)| {
            format!(
                "{count} came back from the labels of their containers ({names}): values of the environment, history, \
                 and what was updated since they were made are lost"
            )
        });
        let snapshots = names(&self.snapshots).map(|(count, names)| {
            format!(
                "{count} came back from the labels of their snapshots ({names}): values of the environment, mounts and \
                 history are lost"
            )
        });
        self.table.clone().into_iter().chain(containers).chain(snapshots).collect()
    }
}

/// How many, and who.
fn names(all: &[String]) -> Option<(String, String)> {
    let count = match all.len() {
        0 => return None,
        1 => "1 session".to_owned(),
        n => format!("{n} sessions"),
    };
    let mut shown = all[..all.len().min(MOST_NAMES)].join(", ");
    if all.len() > MOST_NAMES {
        shown.push_str(&format!(" and {} more", all.len() - MOST_NAMES));
    }
    Some((count, shown))
}

/// The account of this daemon's life, and what is still to be done about it.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Rebuilt(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    all: Account,
    untold: Account,
    /// The engines with which the table was compared, if it is a copy that was not compared with all of them yet.
    linked: Option<BTreeSet<String>>,
}

impl Rebuilt {
    /// Begins with what the table says.
    pub(super) fn begin(&self, untold: Account, linked: Option<BTreeSet<String>>) {
        *self.state() = State { all: untold.clone(), untold, linked };
    }

    /// Adds a session.
    pub(in crate::daemon) fn add(&self, name: String, source: Source) {
        let mut state = self.state();
        state.all.add(name.clone(), source);
        state.untold.add(name, source);
    }

    /// Whether the table is a copy that was not compared with this engine yet.
    pub(super) fn is_unlinked(&self, engine: Option<&str>) -> bool {
        self.state().linked.as_ref().is_some_and(|linked| !linked.contains(engine.unwrap_or_default()))
    }

    /// Notes with which it was; none once that were all.
    pub(super) fn linked(&self, linked: Option<BTreeSet<String>>) {
        self.state().linked = linked;
    }

    pub(super) fn sentences(&self) -> Vec<String> {
        self.state().all.sentences()
    }

    /// What nobody was told of; nobody is told of it again.
    pub(super) fn take_untold(&self) -> Option<Account> {
        let untold = std::mem::take(&mut self.state().untold);
        (untold != Account::default()).then_some(untold)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_names_some_and_counts_all() {
        let mut account = Account::default();
        assert_eq!(account.sentences(), Vec::<String>::new());
        account.set_table("the table was damaged".to_owned());
        (1..8).for_each(|n| account.add(format!("s{n}"), Source::Container));
        account.add("kept".to_owned(), Source::Snapshot);
        let [table, containers, snapshots] = &account.sentences()[..] else { panic!("three sentences") };
        assert_eq!(table, "the table was damaged");
        assert!(containers.starts_with("7 sessions "), "{containers}");
        assert!(containers.contains("(s1, s2, s3, s4, s5 and 2 more)"), "{containers}");
        assert!(snapshots.starts_with("1 session ") && snapshots.contains("(kept)"), "{snapshots}");
    }
}
