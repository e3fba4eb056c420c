//! Acting at a terminal without seeing it.

use std::future::poll_fn;

use tokio::time::timeout_at;

use super::Guests;
use super::ask::{self, lost};
use super::follow::{Wanted, request};
use crate::engine::{EngineError, WindowSize};
use crate::guest::wire::{INPUT_WINDOW, Kind, Payload, Signal};
use crate::model::session::Session;
use crate::proto::terminals::MAX_WRITE_BYTES;

const _: () = assert!(MAX_WRITE_BYTES <= INPUT_WINDOW as usize, "what one call types goes out at once");

/// What is done at a terminal.
#[derive(Debug, Clone, Copy)]
pub enum Act<'a> {
    /// Keys are typed, [`MAX_WRITE_BYTES`] at most.
    Type(&'a [u8]),
    /// It gets this size.
    Resize(WindowSize),
}

impl Guests {
    /// Does something at the terminal of a command, and gives whether there is one: as a follower who gets nothing, for
    /// as long as it takes.
    ///
    /// # Errors
    /// `Conflict` when the sandbox does not run or is frozen, `Limit` when much waits for the command already, and the
    /// engine's.
    pub async fn act(&self, session: &Session, id: &str, act: Act<'_>) -> Result<bool, EngineError> {
        self.require_thawed(session)?;
        let live = self.live(session).await?.ok_or_else(lost)?;
        let (keys, size) = match act {
            Act::Type(keys) => (keys, None),
            Act::Resize(size) => (&[][..], Some(size)),
        };
        let wanted = Wanted { writes: true, size, ..Wanted::default() };
        let open = live.link.open(Kind::Follow, &request(id, &wanted, 0).encode(), 0).ok_or_else(lost)?;
        if !keys.is_empty() {
            // All at once: a new stream has room for more than one call types.
            let taken = timeout_at(ask::deadline(), poll_fn(|cx| open.poll_input(cx, keys.len()))).await;
            taken.ok().flatten().filter(|taken| *taken == keys.len()).ok_or_else(lost)?;
            open.send(Kind::Input, keys);
        }
        self.keys(&session.id, id).hear(keys);
        // abx-init takes frames in their order: its answer to one that comes after the keys says that it has them. There
        // is no signal of this number, so nothing else follows from it.
        let after = Signal { id: id.to_owned(), signal: 0 }.encode();
        let after = live.link.open(Kind::Signal, &after, 0).ok_or_else(lost)?;
        let there = self.0.following(&live, &open).await?.is_some();
        self.0.answer(&live, &after).await?;
        Ok(there)
    }
}
