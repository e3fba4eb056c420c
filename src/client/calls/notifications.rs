//! What the daemon tells without being asked.

use serde_json::value::RawValue;

use super::{CallError, Client, Incoming};

impl Client {
    /// Waits for the next notification, without a limit, and gives its params.
    ///
    /// # Errors
    /// `Gone` when the connection ends.
    pub fn next_notification(&mut self) -> Result<Box<RawValue>, CallError> {
        self.set_patience(None).map_err(|source| CallError::Gone { source })?;
        loop {
            self.read_line(&mut None)?;
            let garbled = |source| CallError::Garbled { method: "event.subscribe".to_owned(), source };
            let incoming: Incoming<'_> = serde_json::from_slice(&self.input[..self.line]).map_err(garbled)?;
            if let (Some(_), Some(params)) = (&incoming.method, incoming.params) {
                return Ok(params.to_owned());
            }
        }
    }
}
