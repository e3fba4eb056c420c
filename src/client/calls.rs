//! One connection to the daemon, and calls on it.

use std::borrow::Cow;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::proto::daemon::HelloResult;
use crate::proto::errors::WireError;
use crate::proto::methods::Method;
use crate::proto::version::MAX_MESSAGE_BYTES;

pub use watched::{Cancel, HangUp};

/// Least room for what is read from the socket at once: a list of a hundred sessions in one system call.
const READ_BYTES: usize = 64 * 1024;

/// An error that the daemon answered with.
#[derive(Debug, Clone)]
pub struct RemoteError {
    /// The error, as far as this version understands it.
    pub error: WireError,
    /// The error object as it came, with fields that this version does not know.
    pub raw: Box<RawValue>,
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The daemon refused or failed.
    #[error("{}", .0.error.message)]
    Remote(Box<RemoteError>),
    /// The connection broke before the answer.
    #[error("abxd went away before it answered; the operation may still be running")]
    Gone {
        /// The system's error.
        source: io::Error,
    },
    /// The daemon did not answer in the time that this call allows.
    #[error("abxd did not answer within {} s", .limit.as_secs())]
    Silent {
        /// The time that was allowed.
        limit: Duration,
    },
    /// What came is not JSON-RPC, or not the result that this method has.
    #[error("abxd answered {method} with something that this abx does not understand")]
    Garbled {
        /// The method.
        method: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The request cannot be sent.
    #[error("the request has {bytes} bytes, over the limit of {MAX_MESSAGE_BYTES}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The params cannot be written as JSON.
    #[error("the parameters of {method} cannot be written as JSON")]
    Encode {
        /// The method.
        method: String,
        /// Why.
        source: serde_json::Error,
    },
}

impl CallError {
    /// The daemon's error, if it answered with one.
    pub fn remote(&self) -> Option<&WireError> {
        if let Self::Remote(remote) = self { Some(&remote.error) } else { None }
    }

    /// Whether nothing was begun of what was asked: a daemon that stops said so, or it closed the connection before it had
    /// read all of it.
    pub fn was_not_begun(&self) -> bool {
        match self {
            Self::Remote(remote) => remote.error.data.as_ref().is_some_and(|data| data.begun == Some(false)),
            Self::Gone { source } => match source.kind() {
                io::ErrorKind::BrokenPipe => true,
                // Linux tells so, in unix_release_sock, where what was sent is left unread.
                io::ErrorKind::ConnectionReset => cfg!(target_os = "linux"),
                _ => false,
            },
            _ => false,
        }
    }
}

/// What happens before an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meanwhile {
    /// The operation told something.
    Progress(Progress),
    /// Nothing came for a while.
    Waiting,
}

/// What an operation tells about itself before it ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Progress {
    /// The operation's id, as the caller chose it.
    #[serde(default)]
    pub op: Option<String>,
    /// What is being done, in words.
    #[serde(default)]
    pub text: String,
    /// Bytes done so far.
    #[serde(default)]
    pub current_bytes: Option<u64>,
    /// Bytes to do in all.
    #[serde(default)]
    pub total_bytes: Option<u64>,
}

#[derive(Deserialize)]
struct Incoming<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Event {
    kind: String,
    data: Progress,
}

/// A question that goes out with the greeting, so that its answer is there as soon as that to the greeting. Only for
/// what changes nothing: a daemon of another protocol answers it, too, unheard.
#[derive(Debug)]
pub struct Asked {
    method: &'static str,
    params: Box<RawValue>,
}

impl Asked {
    /// A call of this method.
    ///
    /// # Errors
    /// When the params cannot be written as JSON.
    pub fn new<M: Method>(params: &M::Params) -> Result<Self, CallError> {
        Ok(Self { method: M::NAME, params: encode::<M>(params)? })
    }
}

/// A connection to the daemon on which versions were exchanged.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    /// What was read: the line that was answered last, and perhaps what follows it.
    input: Vec<u8>,
    /// Bytes of that line; it goes when the next one is asked for.
    line: usize,
    last_id: u64,
    hello: Option<HelloResult>,
}

impl Client {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, input: Vec::new(), line: 0, last_id: 0, hello: None }
    }

    pub(super) fn greeted(self, hello: HelloResult) -> Self {
        Self { hello: Some(hello), ..self }
    }

    /// What the daemon said about itself.
    ///
    /// # Panics
    /// Never: the connector gives out no client before the greeting.
    pub fn hello(&self) -> &HelloResult {
        self.hello.as_ref().expect("the connector greets before it gives the client out")
    }

    /// Calls a method and waits for its result without a limit.
    ///
    /// # Errors
    /// The daemon's own, or why there is no answer.
    pub fn call<M: Method>(&mut self, params: &M::Params) -> Result<M::Result, CallError> {
        parse::<M>(&self.call_document::<M>(params)?)
    }

    /// Calls a method and gives its result as it came, for output that keeps what this version does not know.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn call_document<M: Method>(&mut self, params: &M::Params) -> Result<Box<RawValue>, CallError> {
        self.exchange(M::NAME, &encode::<M>(params)?, None)?.into_raw()
    }

    /// Reads the answer to what was asked with the greeting: of its result what `T` has of it, in place.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn answer_part<'a, T: Deserialize<'a>>(&'a mut self, asked: &Asked) -> Result<T, CallError> {
        let method = asked.method;
        let result = self.answer(self.last_id, method, None)?;
        serde_json::from_slice(&self.input[result])
            .map_err(|source| CallError::Garbled { method: method.to_owned(), source })
    }

    /// Calls a method by its name.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn call_raw(&mut self, method: &str, params: &RawValue) -> Result<Box<RawValue>, CallError> {
        self.exchange(method, params, None)?.into_raw()
    }

    /// Limits how long the next calls wait for the next bytes of an answer; none is for ever.
    ///
    /// # Errors
    /// The system's, on a socket that is gone.
    pub fn set_patience(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(limit)
    }

    /// Waits until the daemon has closed the connection, at most for `limit`. Gives whether it has.
    pub fn wait_closed(mut self, limit: Duration) -> bool {
        if self.set_patience(Some(limit)).is_err() {
            return true;
        }
        loop {
            self.input.clear();
            match self.fill() {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return !is_timeout(&error),
            }
        }
    }

    fn exchange<'a>(
        &'a mut self,
        method: &'a str,
        params: &RawValue,
        watch: Option<Watch<'_>>,
    ) -> Result<Answer<'a>, CallError> {
        let request = self.request(method, params)?;
        let id = self.last_id;
        let sent = self.stream.write_all(request.as_bytes());
        let answer = self.answer_or(sent, id, method, watch)?;
        Ok(Answer { method, text: &self.input[answer] })
    }

    fn request(&mut self, method: &str, params: &RawValue) -> Result<String, CallError> {
        self.last_id += 1;
        let id = self.last_id;
        let name = serde_json::to_string(method)
            .map_err(|source| CallError::Encode { method: method.to_owned(), source })?;
        let request =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":{name},\"params\":{}}}\n", params.get());
        if request.len() > MAX_MESSAGE_BYTES {
            return Err(CallError::TooLarge { bytes: request.len() });
        }
        Ok(request)
    }

    /// Sends the greeting and what is asked with it, and gives the answer to the greeting.
    pub(super) fn greet<M: Method>(
        &mut self,
        params: &M::Params,
        asked: Option<&Asked>,
    ) -> Result<M::Result, CallError> {
        let mut text = self.request(M::NAME, &encode::<M>(params)?)?;
        let id = self.last_id;
        if let Some(asked) = asked {
            text.push_str(&self.request(asked.method, &asked.params)?);
        }
        let sent = self.stream.write_all(text.as_bytes());
        let answer = self.answer_or(sent, id, M::NAME, None)?;
        serde_json::from_slice(&self.input[answer])
            .map_err(|source| CallError::Garbled { method: M::NAME.to_owned(), source })
    }

    /// The answer, or why there is none. A daemon that refuses the connection may have said so before it closed.
    fn answer_or(
        &mut self,
        sent: io::Result<()>,
        id: u64,
        method: &str,
        watch: Option<Watch<'_>>,
    ) -> Result<Range<usize>, CallError> {
        match (self.answer(id, method, watch), sent) {
            (answer @ (Ok(_) | Err(CallError::Remote(_))), _) | (answer, Ok(())) => answer,
            (Err(_), Err(source)) => Err(CallError::Gone { source }),
        }
    }

    /// Gives where in the input the result stands.
    fn answer(
        &mut self,
        id: u64,
        method: &str,
        mut watch: Option<Watch<'_>>,
    ) -> Result<Range<usize>, CallError> {
        // How abxd begins an answer. Any other form of it is read at length.
        let begin = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":");
        let id = id.to_string();
        loop {
            self.read_line(&mut watch)?;
            let line = &self.input[..self.line];
            if line.starts_with(begin.as_bytes()) && line.ends_with(b"}\n") {
                return Ok(begin.len()..line.len() - 2);
            }
            let garbled = |source| CallError::Garbled { method: method.to_owned(), source };
            let incoming: Incoming<'_> = serde_json::from_slice(line).map_err(garbled)?;
            if incoming.method.is_some() {
                if let (Some(event), Some(watch)) = (event(&incoming), &mut watch) {
                    watch(Meanwhile::Progress(event));
                }
                continue;
            }
            // An error without an id is about the connection or about a request that could not be read: ours, since
            // there is no other.
            let unaddressed = incoming.id.is_none() || incoming.id.is_some_and(|i| i.get() == "null");
            if incoming.id.is_some_and(|i| i.get() == id) || (unaddressed && incoming.error.is_some()) {
                if let Some(raw) = incoming.error {
                    return Err(CallError::Remote(Box::new(remote(raw))));
                }
                let result = incoming.result.unwrap_or(RawValue::NULL).get().as_bytes().to_owned();
                let range = self.line..self.line + result.len();
                self.input.splice(self.line..self.line, result);
                self.line = range.end;
                return Ok(range);
            }
        }
    }

    fn read_line(&mut self, watch: &mut Option<Watch<'_>>) -> Result<(), CallError> {
        self.input.drain(..std::mem::take(&mut self.line));
        let mut searched = 0;
        loop {
            if let Some(end) = self.input[searched..].iter().position(|byte| *byte == b'\n') {
                self.line = searched + end + 1;
                return Ok(());
            }
            searched = self.input.len();
            // What was read of a line before the time was up is kept.
            match (self.fill(), &mut *watch) {
                (Ok(0), _) => return Err(CallError::Gone { source: io::ErrorKind::UnexpectedEof.into() }),
                (Ok(_), _) => {}
                (Err(error), Some(watch)) if is_timeout(&error) => watch(Meanwhile::Waiting),
                (Err(error), None) if is_timeout(&error) => {
                    let limit = self.stream.read_timeout().ok().flatten().unwrap_or_default();
                    return Err(CallError::Silent { limit });
                }
                (Err(source), _) => return Err(CallError::Gone { source }),
            }
        }
    }

    /// Reads once; 0 is the end.
    fn fill(&mut self) -> io::Result<usize> {
        self.input.reserve(READ_BYTES);
        loop {
            match rustix::io::read(&self.stream, rustix::buffer::spare_capacity(&mut self.input)) {
                Err(rustix::io::Errno::INTR) => {}
                read => return Ok(read?),
            }
        }
    }
}

/// A result where it was read.
struct Answer<'a> {
    method: &'a str,
    text: &'a [u8],
}

impl Answer<'_> {
    fn into_raw(self) -> Result<Box<RawValue>, CallError> {
        serde_json::from_slice(self.text)
            .map_err(|source| CallError::Garbled { method: self.method.to_owned(), source })
    }
}

/// Who hears what happens before an answer.
type Watch<'a> = &'a mut dyn FnMut(Meanwhile);

fn encode<M: Method>(params: &M::Params) -> Result<Box<RawValue>, CallError> {
    serde_json::value::to_raw_value(params)
        .map_err(|source| CallError::Encode { method: M::NAME.to_owned(), source })
}

/// Understands the result of a method.
///
/// # Errors
/// When it is not what the method gives.
pub(crate) fn parse<M: Method>(raw: &RawValue) -> Result<M::Result, CallError> {
    serde_json::from_str(raw.get())
        .map_err(|source| CallError::Garbled { method: M::NAME.to_owned(), source })
}

/// Understands an error object; one with strange data keeps its code and message.
pub(super) fn remote(raw: &RawValue) -> RemoteError {
    #[derive(Deserialize)]
    struct Bare {
        #[serde(default)]
        code: i64,
        #[serde(default)]
        message: String,
    }
    let error = serde_json::from_str::<WireError>(raw.get()).unwrap_or_else(|_| {
        let bare = serde_json::from_str::<Bare>(raw.get())
            .unwrap_or(Bare { code: 0, message: "an error without a message".to_owned() });
        WireError { code: i32::try_from(bare.code).unwrap_or_default(), message: bare.message, data: None }
    });
    RemoteError { error, raw: raw.to_owned() }
}

fn event(incoming: &Incoming<'_>) -> Option<Progress> {
    if incoming.method.as_deref() != Some("event") {
        return None;
    }
    let event: Event = serde_json::from_str(incoming.params?.get()).ok()?;
    (event.kind == "progress").then_some(event.data)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

mod notifications;
#[cfg(test)]
mod tests;
mod watched;
