//! The daemon's side of one connection, as plainly as it can be.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use abx::guest::wire::{
    Credit, Exited, Failed, Follow, HEADER_BYTES, Header, Hello, Kind, MAX_FROM_GUEST, Payload, Run, Size,
    VERSION, Welcome, frame,
};

use crate::support::LIMIT;

/// Credit that a follower gets at first.
pub(crate) const WINDOW: u32 = 1 << 20;

/// A connection.
pub(crate) struct Talk {
    pub(crate) socket: UnixStream,
    pub(crate) hello: Hello,
    next: u32,
    /// Frames that were read while another stream's were waited for.
    waiting: HashMap<u32, VecDeque<(Kind, Vec<u8>)>>,
}

/// All that came on a stream until its end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) exited: Exited,
}

impl Done {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }
}

impl Talk {
    pub(crate) fn agree(socket: UnixStream) -> Self {
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.set_write_timeout(Some(LIMIT)).unwrap();
        let mut talk = Self { socket, hello: Hello::default(), next: 0, waiting: HashMap::new() };
        let (kind, payload) = talk.receive(0);
        assert_eq!(kind, Kind::Hello);
        talk.hello = Hello::decode(&payload).unwrap();
        talk.send(Kind::Welcome, 0, &Welcome { version: VERSION }.encode());
        talk
    }

    pub(crate) fn stream(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    pub(crate) fn send(&mut self, kind: Kind, stream: u32, payload: &[u8]) {
        self.socket.write_all(&frame(kind, stream, payload)).unwrap();
    }

    /// Asks on a stream of its own.
    pub(crate) fn ask(&mut self, kind: Kind, payload: &[u8]) -> u32 {
        let stream = self.stream();
        self.send(kind, stream, payload);
        stream
    }

    /// Whether the other side has closed it, whatever it said before.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.socket.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    /// The next frame, whatever stream it is of.
    pub(crate) fn any(&mut self) -> (Kind, u32, Vec<u8>) {
        let mut header = [0; HEADER_BYTES];
        self.socket.read_exact(&mut header).expect("a frame comes");
        let header = Header::parse(header, MAX_FROM_GUEST).unwrap();
        let mut payload = vec![0; header.length];
        self.socket.read_exact(&mut payload).expect("its payload comes");
        (header.kind.expect("a known kind"), header.stream, payload)
    }

    /// The next frame of a stream.
    pub(crate) fn receive(&mut self, stream: u32) -> (Kind, Vec<u8>) {
        loop {
            if let Some(frame) = self.waiting.get_mut(&stream).and_then(VecDeque::pop_front) {
                return frame;
            }
            let (kind, of, payload) = self.any();
            self.waiting.entry(of).or_default().push_back((kind, payload));
        }
    }

    /// The next frame of a stream, which is of this kind.
    pub(crate) fn expect<T: Payload>(&mut self, stream: u32, kind: Kind) -> T {
        let (got, payload) = self.receive(stream);
        assert_eq!(got, kind, "{:?}", String::from_utf8_lossy(&payload));
        T::decode(&payload).unwrap()
    }

    /// Starts a command and waits until it runs.
    pub(crate) fn start(&mut self, run: &Run) -> (u32, u32) {
        let stream = self.ask(Kind::Run, &run.encode());
        let started: abx::guest::wire::Started = self.expect(stream, Kind::Started);
        (stream, started.pid)
    }

    /// Runs a command to its end.
    pub(crate) fn run(&mut self, run: &Run) -> Done {
        let (stream, _) = self.start(run);
        self.finish(stream)
    }

    /// What is refused.
    pub(crate) fn refused(&mut self, kind: Kind, payload: &[u8]) -> Failed {
        let stream = self.ask(kind, payload);
        self.expect(stream, Kind::Failed)
    }

    pub(crate) fn give(&mut self, stream: u32, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap();
        self.send(Kind::Credit, stream, &Credit { bytes }.encode());
    }

    /// Reads all output until the end, and gives credit for it.
    pub(crate) fn finish(&mut self, stream: u32) -> Done {
        let mut done = Done::default();
        loop {
            let (kind, payload) = self.receive(stream);
            match kind {
                Kind::Stdout => done.stdout.extend_from_slice(&payload),
                Kind::Stderr => done.stderr.extend_from_slice(&payload),
                Kind::Exited => {
                    done.exited = Exited::decode(&payload).unwrap();
                    return done;
                }
                Kind::Credit | Kind::Redraw => continue,
                other => panic!("{other:?} while output was expected"),
            }
            self.give(stream, payload.len());
        }
    }

    /// Reads output, of either kind, until it ends with `end`.
    pub(crate) fn read_to(&mut self, stream: u32, end: &[u8]) -> Vec<u8> {
        self.read_while(stream, |all| !all.ends_with(end))
    }

    /// Reads output until `text` is in it, whatever follows: a prompt, say.
    pub(crate) fn read_past(&mut self, stream: u32, text: &str) {
        self.read_while(stream, |all| !String::from_utf8_lossy(all).contains(text));
    }

    fn read_while(&mut self, stream: u32, more: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut all = Vec::new();
        while more(&all) {
            let (kind, payload) = self.receive(stream);
            assert!(
                matches!(kind, Kind::Stdout | Kind::Stderr | Kind::Redraw),
                "{kind:?} after {:?}",
                String::from_utf8_lossy(&all)
            );
            self.give(stream, payload.len());
            all.extend(payload);
        }
        all
    }

    /// Follows a command from these offsets.
    pub(crate) fn follow(&mut self, id: &str, from: [u64; 2]) -> u32 {
        let follow = Follow {
            id: id.to_owned(),
            stdout_from: from[0],
            stderr_from: from[1],
            window: WINDOW,
            writes: true,
            ..Follow::default()
        };
        self.ask(Kind::Follow, &follow.encode())
    }

    /// Sends a signal.
    pub(crate) fn signal(&mut self, id: &str, signal: u8) {
        let request = abx::guest::wire::Signal { id: id.to_owned(), signal };
        let stream = self.ask(Kind::Signal, &request.encode());
        assert_eq!(self.receive(stream).0, Kind::Done);
    }

    /// The record of a command.
    pub(crate) fn entry(&mut self, id: &str) -> Option<abx::guest::wire::Entry> {
        let stream = self.ask(Kind::List, b"");
        let mut found = None;
        loop {
            let (kind, payload) = self.receive(stream);
            if kind == Kind::Done {
                return found;
            }
            let entry = abx::guest::wire::Entry::decode(&payload).unwrap();
            found = if entry.id == id { Some(entry) } else { found };
        }
    }
}

/// A command of a shell.
pub(crate) fn sh(id: &str, script: &str) -> Run {
    command(id, &["sh", "-c", script])
}

pub(crate) fn command(id: &str, argv: &[&str]) -> Run {
    Run {
        id: id.to_owned(),
        argv: argv.iter().map(|argument| argument.as_bytes().to_vec()).collect(),
        env: vec![b"PATH=/usr/local/bin:/usr/bin:/bin".to_vec()],
        keep: 1 << 20,
        window: WINDOW,
        orphan_ms: 60_000,
        ..Run::default()
    }
}

/// A command on a terminal.
pub(crate) fn terminal(id: &str, name: &str, script: &str) -> Run {
    Run {
        tty: Some(Size { cols: 80, rows: 24 }),
        terminal: name.to_owned(),
        stdin: true,
        scrollback: 100,
        ..sh(id, script)
    }
}
