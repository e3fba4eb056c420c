//! Sessions as JSON, encoded once per revision: a list of ten thousand is then a copy. Those whose idle time counts differ
//! from one moment to the next, and are encoded each time.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::convert;
use crate::daemon::idle::Idleness;
use crate::model::id::SessionId;
use crate::model::session::Session;
use crate::proto::types;

/// A session's JSON, shared.
#[derive(Debug, Clone)]
pub(super) struct Encoded(Arc<RawValue>);

impl Encoded {
    /// The text, shared.
    pub(super) fn into_raw(self) -> Arc<RawValue> {
        self.0
    }
}

impl Encoded {
    /// A session that was just brought back, and what is to be said of that.
    pub(super) fn warned(session: &Session, idleness: Option<Idleness>, warnings: Vec<String>) -> Self {
        raw(&types::Session { warnings, ..convert::session(session, idleness) })
    }
}

impl Serialize for Encoded {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Sessions that are gone and still remembered, at most: some 100 KiB.
const SLACK: usize = 64;

/// Remembers each session's JSON until its revision changes.
#[derive(Debug, Default)]
pub(super) struct Encoder(RwLock<HashMap<SessionId, (u64, Encoded)>>);

impl Encoder {
    /// One session of a table of `total`, with how it stands with its idle time.
    pub(super) fn one(&self, session: &Session, total: usize, idleness: Option<Idleness>) -> Encoded {
        if idleness.is_some() {
            return encode(session, idleness);
        }
        if let Some((revision, encoded)) =
            self.0.read().unwrap_or_else(PoisonError::into_inner).get(&session.id)
            && *revision == session.revision
        {
            return encoded.clone();
        }
        let encoded = encode(session, None);
        let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if map.len() > total + SLACK {
            map.clear();
        }
        map.insert(session.id.clone(), (session.revision, encoded.clone()));
        encoded
    }

    /// Many sessions, in the same order. `total` is the number of sessions in the table: what is remembered beyond
    /// that is of sessions that are gone, and is dropped.
    pub(super) fn many(
        &self,
        sessions: &[Arc<Session>],
        total: usize,
        idleness: impl Fn(&Session) -> Option<Idleness>,
    ) -> Vec<Encoded> {
        let mut passing: HashSet<&SessionId> = HashSet::new();
        let (encoded, anew): (Vec<Encoded>, bool) = {
            let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
            let mut anew = map.len() > total;
            let found = sessions.iter().map(|s| match (idleness(s), map.get(&s.id)) {
                (Some(idleness), _) => {
                    passing.insert(&s.id);
                    encode(s, Some(idleness))
                }
                (None, Some((revision, encoded))) if *revision == s.revision => encoded.clone(),
                (None, _) => {
                    anew = true;
                    encode(s, None)
                }
            });
            (found.collect(), anew)
        };
        if anew {
            let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
            if sessions.len() == total {
                map.clear();
            }
            let fresh = sessions.iter().zip(&encoded).filter(|(s, _)| !passing.contains(&s.id));
            map.extend(fresh.map(|(s, encoded)| (s.id.clone(), (s.revision, encoded.clone()))));
        }
        encoded
    }
}

fn encode(session: &Session, idleness: Option<Idleness>) -> Encoded {
    raw(&convert::session(session, idleness))
}

fn raw(session: &types::Session) -> Encoded {
    let text = serde_json::value::to_raw_value(session);
    Encoded(Arc::from(text.expect("strings, numbers and maps of them always encode")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::Timestamp;
    use crate::model::session::tests::sample;

    fn text(encoded: &Encoded) -> String {
        serde_json::to_string(encoded).expect("encodes")
    }

    #[test]
    fn a_new_revision_is_encoded_anew_and_an_old_one_is_shared() {
        let encoder = Encoder::default();
        let old = sample("a");
        let first = encoder.one(&old, 1, None);
        assert!(Arc::ptr_eq(&first.0, &encoder.one(&old, 1, None).0));
        let new = Session { exec_count: 7, revision: old.revision + 1, ..old };
        assert!(text(&encoder.one(&new, 1, None)).contains("\"exec_count\":7"));
        let listed = encoder.many(&[Arc::new(new.clone())], 1, |_| None);
        assert_eq!(text(&listed[0]), text(&encoder.one(&new, 1, None)));
    }

    #[test]
    fn a_session_whose_idle_time_counts_is_encoded_as_it_stands_now() {
        let encoder = Encoder::default();
        let counts = |since| move |_: &Session| Some(Idleness { since, ..Idleness::default() });
        let row = [Arc::new(sample("a"))];
        for since in [None, Some(Timestamp(0)), None] {
            let listed = encoder.many(&row, 1, counts(since));
            let want = if since.is_some() { "\"idle_since\":\"1970" } else { "\"idle_since\":null" };
            assert!(text(&listed[0]).contains(want), "{}", text(&listed[0]));
            assert_eq!(text(&encoder.one(&row[0], 1, counts(since)(&row[0]))), text(&listed[0]));
        }
    }

    #[test]
    fn sessions_that_are_gone_are_forgotten() {
        let encoder = Encoder::default();
        encoder.one(&sample("a"), 2, None);
        encoder.one(&sample("bb"), 2, None);
        encoder.many(&[Arc::new(sample("a"))], 1, |_| None);
        assert_eq!(encoder.0.read().expect("no panic").len(), 1);
    }

    #[test]
    fn values_of_variables_are_masked() {
        let mut session = sample("a");
        session.spec.env.insert("TOKEN".to_owned(), crate::model::session::Secret::new("hunter2"));
        let text = text(&Encoder::default().one(&session, 1, None));
        assert!(text.contains(r#""TOKEN":"***""#) && !text.contains("hunter2"), "{text}");
    }
}
