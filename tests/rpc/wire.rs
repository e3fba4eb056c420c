//! The three framings that carry subscriptions, alike, and events for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

use crate::support::{Daemon, Home, Socket, until};

/// Events that the daemon keeps.
pub(super) const KEPT: u64 = 10_000;

/// Calls that are under way at once: fewer than may wait on one connection.
pub(super) const AT_ONCE: u64 = 100;

/// Changes a row that needs no engine, to have each of these numbers. Each is one event of kind `session.changed`, if
/// the row had another before, but for the first of a row, which makes it.
pub(super) fn change(socket: &mut Socket, name: &str, changes: std::ops::Range<u64>) {
    for begun in changes.clone().step_by(AT_ONCE as usize) {
        let some = begun..changes.end.min(begun + AT_ONCE);
        for n in some.clone() {
            let row = json!({"name": name, "status": "running", "metadata": {"n": n.to_string()}});
            socket.request(n, "store.save", row);
        }
        for _ in some {
            assert!(socket.line()["error"].is_null());
        }
    }
}

/// Starts a daemon, and waits until it has told what it has to by itself: that it was started, and of its engine.
pub(super) fn settled(home: &Home) -> Daemon {
    let daemon = Daemon::start(home);
    let mut socket = daemon.connect();
    until("the engine to be told of", || {
        let told = socket.call("event.list", json!({"kinds": ["daemon.", "engine."], "limit": 1}));
        told[0]["kind"].as_str().is_some_and(|kind| kind.starts_with("engine.")).then_some(())
    });
    daemon
}

/// The number of the newest event.
pub(super) fn last_event(socket: &mut Socket) -> u64 {
    let events = socket.call("event.list", json!({"limit": 1}));
    events[0]["seq"].as_u64().expect("an event")
}

/// Something that is done on a connection of its own, again and again until this is dropped.
pub(super) struct Busy {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Busy {
    pub(super) fn with(daemon: &Daemon, mut act: impl FnMut(&mut Socket) + Send + 'static) -> Self {
        let (mut socket, stop) = (daemon.connect(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                act(&mut socket);
            }
        });
        Self { stop, thread: Some(thread) }
    }

    /// Ends it.
    pub(super) fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it ends once").join().expect("it was done each time");
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// How messages are told apart.
#[derive(Debug, Clone, Copy)]
pub(super) enum Framing {
    Lines,
    Length,
    WebSocket,
}

impl Framing {
    pub(super) const ALL: [Self; 3] = [Self::Lines, Self::Length, Self::WebSocket];
}

/// A connection in one of them.
pub(super) struct Wire {
    pub(super) framing: Framing,
    pub(super) socket: Socket,
}

impl Wire {
    pub(super) fn connect(daemon: &Daemon, framing: Framing) -> Self {
        let mut socket = daemon.connect();
        if let Framing::WebSocket = framing {
            let hello = "GET / HTTP/1.1\r\nHost: abx\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
            let answer = socket.send(hello).up_to("\r\n\r\n");
            assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
        }
        Self { framing, socket }
    }

    /// Sends one message.
    pub(super) fn send(&mut self, message: &Value) {
        let text = message.to_string();
        match self.framing {
            Framing::Lines => self.socket.send(text + "\n"),
            Framing::Length => self.socket.send(format!("Content-Length: {}\r\n\r\n{text}", text.len())),
            Framing::WebSocket => {
                // A final text frame with a mask of zeros, which leaves the bytes as they are.
                let length = u16::try_from(text.len()).expect("a short message").to_be_bytes();
                self.socket.send([&[0x81, 0x80 | 126], &length[..], &[0; 4], text.as_bytes()].concat())
            }
        };
    }

    /// Sends a request.
    pub(super) fn request(&mut self, id: u64, method: &str, params: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    /// Reads one message.
    pub(super) fn receive(&mut self) -> Value {
        match self.framing {
            Framing::Lines => self.socket.line(),
            Framing::Length => self.socket.message(),
            Framing::WebSocket => {
                let head = self.socket.exactly(2);
                assert_eq!(head[0], 0x81, "a whole text");
                let length = match head[1] {
                    126 => self.number(2),
                    127 => self.number(8),
                    short => short.into(),
                };
                serde_json::from_slice(&self.socket.exactly(length)).expect("JSON")
            }
        }
    }

    fn number(&mut self, bytes: usize) -> usize {
        self.socket.exactly(bytes).iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
    }

    /// Reads the next event.
    pub(super) fn event(&mut self) -> Value {
        let message = self.receive();
        assert_eq!(message["method"], "event", "{:?}: {message}", self.framing);
        message["params"].clone()
    }

    /// Subscribes, and gives what tells where the events begin.
    pub(super) fn subscribe(&mut self, params: &Value) -> Value {
        self.request(1, "event.subscribe", params);
        let answer = self.receive();
        let begun = self.event();
        assert_eq!((&begun["kind"], &begun["subscription"]), (&json!("subscribed"), &answer["result"]));
        begun
    }
}
