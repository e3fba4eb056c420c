//! A connection on which one call after the other is made, and on which the daemon tells news in between.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::daemon::Daemon;

/// Longest wait for anything: an engine that makes containers for others, too, takes its time.
const LIMIT: Duration = Duration::from_secs(180);

/// What the daemon says.
#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    id: Option<u64>,
    #[serde(default)]
    result: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<Value>,
    #[serde(default)]
    params: Option<Value>,
}

/// The connection.
pub(super) struct Line {
    stream: BufReader<UnixStream>,
    read: Vec<u8>,
    news: VecDeque<Value>,
    calls: u64,
}

impl Line {
    pub(super) fn connect(daemon: &Daemon) -> Self {
        let stream = daemon.connect();
        stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
        Self { stream: BufReader::new(stream), read: Vec::new(), news: VecDeque::new(), calls: 0 }
    }

    /// Makes a call; gives its result, or its error.
    #[expect(clippy::needless_pass_by_value, reason = "callers write them down in place")]
    pub(super) fn call(&mut self, method: &str, params: Value) -> Result<Box<RawValue>, Value> {
        self.calls += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.calls, "method": method, "params": params});
        writeln!(self.stream.get_mut(), "{request}").expect("abxd reads");
        loop {
            let message = self.message();
            match (message.id, message.result, message.error) {
                (Some(id), Some(result), None) if id == self.calls => return Ok(result),
                (Some(id), None, Some(error)) if id == self.calls => return Err(error),
                (None, None, None) => self.news.extend(message.params),
                _ => panic!("not an answer to {request}: {}", String::from_utf8_lossy(&self.read)),
            }
        }
    }

    /// Makes a call that nothing stands in the way of.
    pub(super) fn must(&mut self, method: &str, params: Value) -> Value {
        let result =
            self.call(method, params.clone()).unwrap_or_else(|error| panic!("{method} {params}: {error}"));
        serde_json::from_str(result.get()).expect("JSON")
    }

    /// Waits for the next news of a subscription; what others had to tell is passed over.
    pub(super) fn news(&mut self, subscription: &Value) -> Value {
        loop {
            let Some(news) = self.news.pop_front() else {
                let params = self.message().params;
                self.news.extend(params);
                continue;
            };
            if news["subscription"] == *subscription {
                return news;
            }
        }
    }

    fn message(&mut self) -> Message {
        self.read.clear();
        self.stream.read_until(b'\n', &mut self.read).expect("a message in time");
        let text = || String::from_utf8_lossy(&self.read);
        serde_json::from_slice(&self.read)
            .unwrap_or_else(|error| panic!("{error}, and the message is {:?}", text()))
    }
}
