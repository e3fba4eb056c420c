//! A client that writes and reads exactly what a test says.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use super::{LIMIT, until};

/// A connection. Reading fails the test after the limit.
pub(crate) struct Socket {
    stream: UnixStream,
    read: Vec<u8>,
}

impl Socket {
    /// Connects.
    pub(crate) fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("somebody listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
        stream.set_write_timeout(Some(LIMIT)).expect("a timeout");
        Self { stream, read: Vec::new() }
    }

    /// Writes these bytes.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.stream.write_all(bytes.as_ref()).expect("the daemon reads");
        self
    }

    /// Writes as many of these bytes as the daemon takes before it closes.
    pub(crate) fn send_what_it_takes(&mut self, bytes: &[u8]) -> &mut Self {
        match self.stream.write_all(bytes) {
            Err(error) if !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                panic!("{error}")
            }
            _ => self,
        }
    }

    /// Says that nothing more will be written.
    pub(crate) fn end(&mut self) -> &mut Self {
        self.stream.shutdown(Shutdown::Write).expect("open");
        self
    }

    /// Writes a request as a line.
    pub(crate) fn request(&mut self, id: impl Into<Value>, method: &str, params: Value) -> &mut Self {
        let request = json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params});
        self.send(format!("{request}\n"))
    }

    /// Makes a call and gives its result.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        let answer = self.request(1, method, params).line();
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Reads one line of JSON.
    pub(crate) fn line(&mut self) -> Value {
        let line = self.take(|read| read.iter().position(|byte| *byte == b'\n').map(|end| end + 1));
        serde_json::from_slice(&line).expect("JSON")
    }

    /// Reads one line of JSON, unless the daemon has closed the connection.
    pub(crate) fn try_line(&mut self) -> Option<Value> {
        while !self.read.contains(&b'\n') {
            if !self.fill() {
                return None;
            }
        }
        Some(self.line())
    }

    /// Reads so many bytes.
    pub(crate) fn exactly(&mut self, count: usize) -> Vec<u8> {
        self.take(|read| (read.len() >= count).then_some(count))
    }

    /// Reads one message with a Content-Length before it.
    pub(crate) fn message(&mut self) -> Value {
        let head = self.take(|read| read.windows(4).position(|four| four == b"\r\n\r\n").map(|end| end + 4));
        let head = String::from_utf8(head).expect("text");
        let length =
            head.strip_prefix("Content-Length: ").expect("the header").trim().parse().expect("a length");
        let body = self.take(|read| (read.len() >= length).then_some(length));
        serde_json::from_slice(&body).expect("JSON")
    }

    /// Reads until the daemon closes the connection.
    pub(crate) fn rest(&mut self) -> String {
        while self.fill() {}
        String::from_utf8(std::mem::take(&mut self.read)).expect("text")
    }

    /// Reads until this text has come, and gives everything up to its end.
    pub(crate) fn up_to(&mut self, text: &str) -> String {
        let read = self.take(|read| {
            read.windows(text.len()).position(|part| part == text.as_bytes()).map(|at| at + text.len())
        });
        String::from_utf8(read).expect("text")
    }

    /// Makes a call, and gives whether its answer is the first thing that comes: the daemon has taken everything that was
    /// written before, and what it had to say of it would have come first.
    pub(crate) fn is_silent(&mut self) -> bool {
        const ID: &str = "is it silent";
        self.request(ID, "daemon.info", json!({})).line()["id"] == ID
    }

    /// Whether nothing has come until now, where no call can be made. The daemon need not have seen what was written: the
    /// test shows in another way that it had its time.
    pub(crate) fn has_nothing(&mut self) -> bool {
        self.stream.set_nonblocking(true).expect("a socket");
        let mut one = [0];
        let silent =
            matches!(self.stream.read(&mut one), Err(error) if error.kind() == ErrorKind::WouldBlock);
        self.stream.set_nonblocking(false).expect("a socket");
        silent && self.read.is_empty()
    }

    /// Waits until the daemon no longer takes bytes, writing these again and again; gives how many were taken.
    pub(crate) fn send_until_full(&mut self, bytes: &[u8]) -> usize {
        self.stream.set_nonblocking(true).expect("a socket");
        let (mut taken, mut refused) = (0, 0);
        until("the daemon to stop reading", || {
            match self.stream.write(bytes) {
                Ok(written) => (taken, refused) = (taken + written, 0),
                Err(error) if error.kind() == ErrorKind::WouldBlock => refused += 1,
                Err(error) => panic!("{error}"),
            }
            (refused > 50).then_some(())
        });
        self.stream.set_nonblocking(false).expect("a socket");
        taken
    }

    fn take(&mut self, end: impl Fn(&[u8]) -> Option<usize>) -> Vec<u8> {
        loop {
            if let Some(end) = end(&self.read) {
                return self.read.drain(..end).collect();
            }
            assert!(self.fill(), "closed after {:?}", String::from_utf8_lossy(&self.read));
        }
    }

    fn fill(&mut self) -> bool {
        let mut chunk = vec![0; 64 * 1024];
        let read = loop {
            match self.stream.read(&mut chunk) {
                // A child of another test ended.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read.expect("an answer in time and no reset"),
            }
        };
        self.read.extend_from_slice(&chunk[..read]);
        read > 0
    }
}
