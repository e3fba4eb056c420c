//! Calls that somebody watches, and may not wait for to the end.

use std::io;
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

    /// What another thread needs to end this connection while a call waits on it.
    ///
    /// # Errors
    /// The system's, when no descriptor is left.
    pub fn hang_up(&self) -> io::Result<HangUp> {
        Ok(HangUp(self.stream.try_clone()?))
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
