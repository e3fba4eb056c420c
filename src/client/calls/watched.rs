//! Calls that somebody watches, and may not wait for to the end.

use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::value::RawValue;

use super::{Answer, CallError, Client, Meanwhile, encode};
use crate::proto::methods::Method;

/// How often a caller that watches an operation hears of it while nothing comes: what it counts are seconds.
const WAITING: Duration = Duration::from_millis(200);

impl Client {
    /// As [`Client::call_document`], but `watch` hears what happens before the answer.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn call_watched<M: Method>(
        &mut self,
        params: &M::Params,
        watch: &mut dyn FnMut(Meanwhile),
    ) -> Result<Box<RawValue>, CallError> {
        self.call_raw_watched(M::NAME, &encode::<M>(params)?, watch)
    }

    /// As [`Client::call_raw`], but `watch` hears what happens before the answer.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn call_raw_watched(
        &mut self,
        method: &str,
        params: &RawValue,
        watch: &mut dyn FnMut(Meanwhile),
    ) -> Result<Box<RawValue>, CallError> {
        let gone = |source| CallError::Gone { source };
        self.set_patience(Some(WAITING)).map_err(gone)?;
        let result = self.exchange(method, params, Some(watch)).and_then(Answer::into_raw);
        self.set_patience(None).map_err(gone)?;
        result
    }

    /// What is needed to give up the next call while it is watched.
    ///
    /// # Errors
    /// The system's, when no descriptor is left.
    pub fn cancel_next(&self) -> io::Result<Cancel> {
        Ok(Cancel { stream: self.stream.try_clone()?, id: self.last_id + 1 })
    }

    /// What another thread needs to end this connection while a call waits on it.
    ///
    /// # Errors
    /// The system's, when no descriptor is left.
    pub fn hang_up(&self) -> io::Result<HangUp> {
        Ok(HangUp(self.stream.try_clone()?))
    }
}

/// Gives up the next call on a connection.
#[derive(Debug)]
pub struct Cancel {
    stream: UnixStream,
    id: u64,
}

impl Cancel {
    /// Says that nobody waits for the call any more, and that what can be given up of it is to be. It is answered with an
    /// error then, unless its own answer is on the way.
    pub fn now(&mut self) {
        let id = self.id;
        let text =
            format!("{{\"jsonrpc\":\"2.0\",\"method\":\"$/cancelRequest\",\"params\":{{\"id\":{id}}}}}\n");
        // Fails only when the connection is gone already.
        let _ = self.stream.write_all(text.as_bytes());
    }
}

/// Ends a connection from outside.
#[derive(Debug)]
pub struct HangUp(UnixStream);

impl HangUp {
    /// Ends it: a call that waits on it fails at once. What was begun goes on.
    pub fn now(&self) {
        // Fails only when the connection is gone already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}
