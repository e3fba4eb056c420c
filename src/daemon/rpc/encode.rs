//! Sessions as JSON, encoded once per revision: a list of ten thousand is then a copy.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::convert;
use crate::model::id::SessionId;
use crate::model::session::Session;

/// A session's JSON, shared.
#[derive(Debug, Clone)]
pub(super) struct Encoded(Arc<RawValue>);

impl Encoded {
    /// The text, shared.
    pub(super) fn into_raw(self) -> Arc<RawValue> {
        self.0
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
    /// One session of a table of `total`.
    pub(super) fn one(&self, session: &Session, total: usize) -> Encoded {
        if let Some((revision, encoded)) =
            self.0.read().unwrap_or_else(PoisonError::into_inner).get(&session.id)
            && *revision == session.revision
        {
            return encoded.clone();
        }
        let encoded = encode(session);
        let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if map.len() > total + SLACK {
            map.clear();
        }
        map.insert(session.id.clone(), (session.revision, encoded.clone()));
        encoded
    }

    /// Many sessions, in the same order. `total` is the number of sessions in the table: what is remembered beyond
    /// that is of sessions that are gone, and is dropped.
    pub(super) fn many(&self, sessions: &[Arc<Session>], total: usize) -> Vec<Encoded> {
        let (encoded, anew): (Vec<Encoded>, bool) = {
            let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
            let mut anew = map.len() > total;
            let found = sessions.iter().map(|s| match map.get(&s.id) {
                Some((revision, encoded)) if *revision == s.revision => encoded.clone(),
                _ => {
                    anew = true;
                    encode(s)
                }
            });
            (found.collect(), anew)
        };
        if anew {
            let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
            if sessions.len() == total {
                map.clear();
            }
            let fresh = sessions.iter().zip(&encoded);
            map.extend(fresh.map(|(s, encoded)| (s.id.clone(), (s.revision, encoded.clone()))));
        }
        encoded
    }
}

fn encode(session: &Session) -> Encoded {
    let text = serde_json::value::to_raw_value(&convert::session(session));
    Encoded(Arc::from(text.expect("strings, numbers and maps of them always encode")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::session::tests::sample;

    fn text(encoded: &Encoded) -> String {
        serde_json::to_string(encoded).expect("encodes")
    }

    #[test]
    fn a_new_revision_is_encoded_anew_and_an_old_one_is_shared() {
        let encoder = Encoder::default();
        let old = sample("a");
        let first = encoder.one(&old, 1);
        assert!(Arc::ptr_eq(&first.0, &encoder.one(&old, 1).0));
        let new = Session { exec_count: 7, revision: old.revision + 1, ..old };
        assert!(text(&encoder.one(&new, 1)).contains("\"exec_count\":7"));
        let listed = encoder.many(&[Arc::new(new.clone())], 1);
        assert_eq!(text(&listed[0]), text(&encoder.one(&new, 1)));
    }

    #[test]
    fn sessions_that_are_gone_are_forgotten() {
        let encoder = Encoder::default();
        encoder.one(&sample("a"), 2);
        encoder.one(&sample("bb"), 2);
        encoder.many(&[Arc::new(sample("a"))], 1);
        assert_eq!(encoder.0.read().expect("no panic").len(), 1);
    }

    #[test]
    fn values_of_variables_are_masked() {
        let mut session = sample("a");
        session.spec.env.insert("TOKEN".to_owned(), crate::model::session::Secret::new("hunter2"));
        let text = text(&Encoder::default().one(&session, 1));
        assert!(text.contains(r#""TOKEN":"***""#) && !text.contains("hunter2"), "{text}");
    }
}
