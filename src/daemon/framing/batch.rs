//! The answers of a batch: one text, within bounds, and made in turns.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;

use super::answer::of_kind;
use super::dispatch::Outcome;
use super::memory::Share;
use crate::proto::errors::Kind;

/// Most bytes of a batch's answers together; as much as a few lists of all sessions have. Entries past it are answered with
/// kind `limit`, and as far as that is known before, not carried out.
const MAX_BATCH_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Entries of a batch that are started in one go, and bytes of answers that are made in it; others have their turn then.
pub(super) const TURN: (usize, usize) = (32, 256 * 1024);

/// Holds the bytes of a batch's answers.
#[derive(Clone)]
pub(super) struct Room(Arc<Share>);

impl Room {
    /// Empty.
    pub(super) fn new(share: Share) -> Self {
        Self(Arc::new(share))
    }

    /// How much it holds.
    pub(super) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Why no more entries are carried out, if none are.
    pub(super) fn is_full(&self) -> Option<String> {
        if self.0.is_tight() {
            return Some("too much is held for clients that do not read".to_owned());
        }
        let full = self.bytes() >= MAX_BATCH_ANSWER_BYTES;
        full.then(|| format!("the answers of the batch reach the limit of {MAX_BATCH_ANSWER_BYTES} bytes"))
    }

    /// The answer, or in its place an error where the limit is passed with it.
    pub(super) fn fit(&self, id: &str, answer: Vec<u8>) -> Vec<u8> {
        if self.0.grow(answer.len()) + answer.len() <= MAX_BATCH_ANSWER_BYTES {
            return answer;
        }
        let text = format!(
            "the answers of the batch pass the limit of {MAX_BATCH_ANSWER_BYTES} bytes; \
             this entry was carried out, its answer left out"
        );
        of_kind(id, Kind::Limit, &text)
    }
}

/// The answer to a batch, whose parts `room` holds until then.
pub(super) fn answer(outcomes: Vec<Outcome>, room: Room) -> Outcome {
    if !outcomes.iter().any(|outcome| matches!(outcome, Outcome::Pending(_))) {
        let ready = |outcome| match outcome {
            Outcome::Ready(answer) => Some(answer),
            Outcome::Nothing | Outcome::Pending(_) => None,
        };
        let answers = outcomes.into_iter().filter_map(ready).collect();
        return array(answers).map_or(Outcome::Nothing, Outcome::Ready);
    }
    let answers = outcomes.into_iter().map(|outcome| match outcome {
        Outcome::Nothing => std::future::ready(None).boxed(),
        Outcome::Ready(answer) => std::future::ready(Some(answer)).boxed(),
        Outcome::Pending(answer) => answer,
    });
    let answers = join_all(answers);
    let all = async move {
        let _room = room;
        array(answers.await.into_iter().flatten().collect())
    };
    Outcome::Pending(all.boxed())
}

/// The answers as one text, each given back once it is in it.
fn array(answers: Vec<Vec<u8>>) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(answers.iter().map(|answer| answer.len() + 1).sum::<usize>() + 1);
    for answer in answers {
        text.push(if text.is_empty() { b'[' } else { b',' });
        text.extend_from_slice(&answer);
    }
    if text.is_empty() {
        return None;
    }
    text.push(b']');
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batchs_answers_have_so_much_room_together_and_not_each() {
        let room = Room::new(Share::new(&Arc::default(), 0));
        let part = vec![b'1'; MAX_BATCH_ANSWER_BYTES / 4];
        for _ in 0..4 {
            assert_eq!(room.clone().fit("1", part.clone()).len(), part.len());
        }
        assert!(room.is_full().is_some());
        let left_out = String::from_utf8(room.fit("\"a\"", b"{}".to_vec())).expect("text");
        assert!(left_out.contains(r#""id":"a""#) && left_out.contains(r#""kind":"limit""#), "{left_out}");
    }
}
