//! What `abxd` and `abx-init` say to each other, on one connection per sandbox.
//!
//! `abx-init` connects, and sends [`Hello`]; `abxd` answers with [`Welcome`]. From then on both send frames: a header of
//! [`HEADER_BYTES`] (kind, three bytes of length, four bytes of stream; big-endian) and a payload.
//!
//! Every request opens a stream, whose number `abxd` chooses and never uses again on that connection. Stream 0 carries
//! what belongs to no request. Bytes flow only within credit, per stream and direction, so that one reader that stops
//! holds nobody else up and nothing piles up: output within the window that its follower gave, input within the window
//! that `abx-init` gave.
//!
//! # Versions
//! A running sandbox keeps the `abx-init` that it was started with, so `abxd` speaks every version since 1. Both skip
//! kinds that they do not know. Fields are only ever added at the end of a payload: a reader ignores what follows those
//! that it knows, and takes a default for those that are not there. What cannot be done so gets a new version, and
//! [`Welcome`] says which one is spoken.
//!
//! # Trust
//! `abxd` trusts nothing that comes from inside: lengths are bounded here before anything is read, text is checked, and
//! a payload that does not decode ends the connection.

use std::fmt;

/// The version spoken.
pub const VERSION: u16 = 1;

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 8;

/// Longest payload from `abx-init`, in bytes.
pub const MAX_FROM_GUEST: usize = 256 * 1024;

/// Longest payload from `abxd`, in bytes: a command with arguments and environment as long as Linux takes them.
pub const MAX_TO_GUEST: usize = 8 * 1024 * 1024;

/// Most output bytes in one frame. Long enough that headers cost nothing, short enough that streams take turns.
pub const MAX_DATA_BYTES: usize = 64 * 1024;

/// Input that may be on its way to a command, in bytes, before `abx-init` gives more credit.
pub const INPUT_WINDOW: u32 = 256 * 1024;

/// The stream of what belongs to no request.
pub const NO_STREAM: u32 = 0;

/// A payload that does not decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $name:ident = $byte:literal,)+) => {
        /// What a frame is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Kind { $($(#[doc = $doc])+ $name = $byte,)+ }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            fn from_byte(byte: u8) -> Option<Self> {
                match byte { $($byte => Some(Self::$name),)+ _ => None }
            }
        }
    };
}

kinds! {
    /// To the guest: [`Welcome`].
    Welcome = 1,
    /// To the guest: [`Run`]. Answered with `Started`, then output, then `Exited`; or with `Failed`. If the id is known
    /// already, it is a `Follow` of it from its beginning.
    Run = 2,
    /// To the guest: [`Follow`]. Answered with `Following`, then output, then `Exited`; or with `Failed`.
    Follow = 3,
    /// To the guest: bytes for the command's input, within credit.
    Input = 4,
    /// To the guest, empty: the input ends.
    InputEnd = 5,
    /// Both ways, [`Credit`]: to the guest it is for output of the stream, from the guest for input.
    Credit = 6,
    /// To the guest: [`Size`] of the terminal that the stream follows.
    Resize = 7,
    /// To the guest: [`Signal`]. On a stream of its own; answered with `Done` or `Failed`.
    Signal = 8,
    /// To the guest, empty: the stream is given up; the command goes on. Not answered.
    Leave = 9,
    /// To the guest, empty: answered with an `Entry` for each command that is known, then `Done`.
    List = 10,
    /// To the guest: [`Peek`]. Answered with `Screen`, or `Failed`.
    Peek = 11,
    /// To the guest: an id as text. Its record and output are dropped, if it has ended. Answered with `Done` or `Failed`.
    Forget = 12,

    /// From the guest: [`Hello`].
    Hello = 64,
    /// From the guest: [`Started`].
    Started = 65,
    /// From the guest, the stream's last: [`Failed`].
    Failed = 66,
    /// From the guest: bytes of standard output, or of a terminal.
    Stdout = 67,
    /// From the guest: bytes of standard error.
    Stderr = 68,
    /// From the guest: [`Following`].
    Following = 69,
    /// From the guest: bytes that paint the screen of a terminal as it is, from whatever it was; then follow bytes of
    /// `Stdout` again. Large ones come in several frames. First after `Following` of a terminal, and again whenever the
    /// follower fell so far behind that output was left out.
    Redraw = 70,
    /// From the guest, the stream's last, after all output: [`Exited`].
    Exited = 71,
    /// From the guest: [`Entry`].
    Entry = 72,
    /// From the guest, the stream's last: [`Screen`].
    Screen = 73,
    /// From the guest, empty, the stream's last: it was done.
    Done = 74,
    /// From the guest, on stream 0: [`Entry`] of a command that has just ended.
    Ended = 75,
    /// From the guest, on stream 0, at most once a second per terminal: an id as text, of a terminal that wrote
    /// something.
    Active = 76,
    /// From the guest, on stream 0: [`Oom`].
    Oom = 77,
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// None for a kind that this version does not know: the payload is skipped.
    pub kind: Option<Kind>,
    /// The stream.
    pub stream: u32,
    /// Bytes of payload.
    pub length: usize,
}

impl Header {
    /// Reads a header; `limit` is the longest payload that this side takes.
    ///
    /// # Errors
    /// When the payload is longer.
    pub fn parse(bytes: [u8; HEADER_BYTES], limit: usize) -> Result<Self, Malformed> {
        let length = u32::from_be_bytes([0, bytes[1], bytes[2], bytes[3]]) as usize;
        if length > limit {
            return Err(Malformed("a frame is longer than its limit"));
        }
        let stream = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        Ok(Self { kind: Kind::from_byte(bytes[0]), stream, length })
    }
}

/// Writes a header.
///
/// # Panics
/// When the payload is longer than any limit: senders split or refuse before.
pub fn header(kind: Kind, stream: u32, length: usize) -> [u8; HEADER_BYTES] {
    assert!(length <= MAX_TO_GUEST, "a frame of {length} bytes was not split");
    let [_, a, b, c] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    let [d, e, f, g] = stream.to_be_bytes();
    [kind as u8, a, b, c, d, e, f, g]
}

/// A whole frame.
pub fn frame(kind: Kind, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    bytes.extend_from_slice(&header(kind, stream, payload.len()));
    bytes.extend_from_slice(payload);
    bytes
}

/// What has a place in a payload.
pub trait Field: Sized {
    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);

    /// Takes it off the front.
    ///
    /// # Errors
    /// When it is not there as a whole.
    fn take(from: &mut &[u8]) -> Result<Self, Malformed>;
}

/// A payload of fields.
pub trait Payload: Sized {
    /// Its kind or kinds' bytes.
    fn encode(&self) -> Vec<u8>;

    /// Reads it; what follows the known fields is ignored.
    ///
    /// # Errors
    /// When a field does not decode.
    fn decode(payload: &[u8]) -> Result<Self, Malformed>;
}

macro_rules! integers {
    ($($type:ty),+) => {$(
        impl Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }

            fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                let (bytes, rest) = from.split_first_chunk().ok_or(Malformed("a number is cut off"))?;
                *from = rest;
                Ok(Self::from_be_bytes(*bytes))
            }
        }
    )+};
}

integers!(u8, u16, u32, u64, i32);

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(u8::take(from)? != 0)
    }
}

/// Bytes of any kind: arguments and environment need not be UTF-8.
impl Field for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(self.len()).unwrap_or(u32::MAX).put(out);
        out.extend_from_slice(self);
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let length = u32::take(from)? as usize;
        let (bytes, rest) = from.split_at_checked(length).ok_or(Malformed("bytes are cut off"))?;
        *from = rest;
        Ok(bytes.to_vec())
    }
}

impl Field for String {
    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(self.len()).unwrap_or(u32::MAX).put(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Self::from_utf8(Vec::take(from)?).map_err(|_| Malformed("text is not UTF-8"))
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        if bool::take(from)? { T::take(from).map(Some) } else { Ok(None) }
    }
}

/// A list of byte strings.
impl Field for Vec<Vec<u8>> {
    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(self.len()).unwrap_or(u32::MAX).put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        // The count is not trusted: each item takes bytes that must be there.
        (0..u32::take(from)?).map(|_| Vec::take(from)).collect()
    }
}

impl Field for Vec<String> {
    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(self.len()).unwrap_or(u32::MAX).put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        (0..u32::take(from)?).map(|_| String::take(from)).collect()
    }
}

macro_rules! payloads {
    ($($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $fdoc:literal])+ $field:ident: $type:ty,)+ })+) => {$(
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name { $($(#[doc = $fdoc])+ pub $field: $type,)+ }

        impl Payload for $name {
            fn encode(&self) -> Vec<u8> {
                let mut out = Vec::new();
                $(self.$field.put(&mut out);)+
                out
            }

            fn decode(mut payload: &[u8]) -> Result<Self, Malformed> {
                let from = &mut payload;
                Ok(Self { $($field: <$type as Field>::take(from)?,)+ })
            }
        }

        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)+
            }

            fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                Ok(Self { $($field: <$type as Field>::take(from)?,)+ })
            }
        }
    )+};
}

payloads! {
    /// Who connects.
    Hello {
        /// The oldest version that it speaks.
        oldest: u16,
        /// The newest.
        newest: u16,
        /// The build, as `abx-init --version` prints it.
        build: String,
        /// Different at each start of the sandbox.
        boot: u64,
        /// Whether it can run commands as any user; without the capabilities for that, only as its own.
        any_user: bool,
        /// The user that it runs as.
        uid: u32,
    }

    /// Which version is spoken.
    Welcome {
        /// One of those offered.
        version: u16,
    }

    /// A terminal's size in characters.
    Size {
        /// Columns.
        cols: u16,
        /// Rows.
        rows: u16,
    }

    /// What to run.
    Run {
        /// The command's id, chosen by `abxd`: a UUIDv7.
        id: String,
        /// Program and arguments.
        argv: Vec<Vec<u8>>,
        /// Its whole environment, each `NAME=value`. `HOME`, `USER` and `LOGNAME` are filled in where they are missing.
        env: Vec<Vec<u8>>,
        /// Working directory; none is the user's home, or `/`.
        cwd: Option<Vec<u8>>,
        /// `name`, `uid`, `name:group` or `uid:gid`, looked up in the sandbox's own files; none is the guest's own.
        user: Option<String>,
        /// A terminal of this size; none is three pipes.
        tty: Option<Size>,
        /// The terminal's name; empty for commands.
        terminal: String,
        /// Whether there will be input; otherwise it is `/dev/null`.
        stdin: bool,
        /// Whether a command without follower goes on. Without it, one whose connection is lost is held for
        /// `orphan_ms` and then ended.
        detached: bool,
        /// Output that is kept for those who come later, in bytes, of each of the two.
        keep: u32,
        /// Credit for output of this stream; none is no follower: the stream ends with `Started`.
        window: Option<u32>,
        /// How long a command that is not detached waits for a follower after its connection was lost, in milliseconds.
        orphan_ms: u32,
        /// Lines of scrollback that the terminal keeps.
        scrollback: u32,
    }

    /// It runs.
    Started {
        /// Its id.
        id: String,
        /// Its process id in the sandbox.
        pid: u32,
    }

    /// It does not run, or was not done.
    Failed {
        /// What kind of failure: one of the constants of [`Failed`].
        why: u8,
        /// A line for the user.
        text: String,
    }

    /// Which command to follow, and from where.
    Follow {
        /// Its id, or the terminal's name.
        id: String,
        /// Bytes of standard output that the follower has already. For terminals it is ignored: they are repainted.
        stdout_from: u64,
        /// Bytes of standard error that the follower has already.
        stderr_from: u64,
        /// Credit for output. A follower without any waits for the end alone.
        window: u32,
        /// Whether its input and its size count. Any number of writers may follow a terminal.
        writes: bool,
        /// The follower's size, for a terminal.
        size: Option<Size>,
        /// Lines of scrollback to paint above the screen.
        scrollback: u32,
    }

    /// It is followed.
    Following {
        /// Its id.
        id: String,
        /// Where standard output begins here; more than was asked for when what is between is no longer kept.
        stdout_from: u64,
        /// The same of standard error.
        stderr_from: u64,
        /// The terminal's size, if it is one.
        size: Option<Size>,
    }

    /// How many more bytes may be sent.
    Credit {
        /// In bytes.
        bytes: u32,
    }

    /// A signal for a command.
    Signal {
        /// Its id, or the terminal's name.
        id: String,
        /// The signal's number.
        signal: u8,
        /// Whether all that it started gets it, too, whatever group or session it is in; otherwise its process group.
        all: bool,
    }

    /// How a command ended.
    Exited {
        /// Its exit code; 128+n after signal n.
        code: i32,
        /// The signal that ended it, or 0.
        signal: u8,
        /// Whether the kernel ended it for want of memory.
        oom: bool,
        /// Bytes of standard output that it wrote.
        stdout: u64,
        /// Bytes of standard error that it wrote.
        stderr: u64,
    }

    /// A command as it is known.
    Entry {
        /// Its id.
        id: String,
        /// The terminal's name; empty for commands.
        terminal: String,
        /// Program and arguments.
        argv: Vec<Vec<u8>>,
        /// Its process id in the sandbox.
        pid: u32,
        /// When it started, in milliseconds since 1970-01-01 UTC by the sandbox's clock.
        started_ms: u64,
        /// How it ended, and when.
        ended: Option<Exited>,
        /// In milliseconds as above; 0 while it runs.
        ended_ms: u64,
        /// Bytes of standard output so far.
        stdout: u64,
        /// Bytes of standard error so far.
        stderr: u64,
        /// Bytes of its output that are no longer kept.
        dropped: u64,
        /// How many follow it.
        followers: u32,
        /// The terminal's size, if it is one.
        size: Option<Size>,
        /// Whether it goes on without a follower.
        detached: bool,
    }

    /// Which screen to show.
    Peek {
        /// The terminal's id or name.
        id: String,
        /// Lines of scrollback above the screen.
        scrollback: u32,
    }

    /// A screen as text.
    Screen {
        /// Its lines, without blanks at their ends; those of the scrollback come first.
        lines: Vec<String>,
        /// How many of them are scrollback.
        scrollback: u32,
        /// Its size.
        size: Size,
        /// The cursor's column, from 0.
        column: u16,
        /// The cursor's row on the screen, from 0.
        row: u16,
        /// Whether the cursor is shown.
        cursor_visible: bool,
        /// Whether this is the alternate screen.
        alternate: bool,
        /// The title that the program set.
        title: String,
    }

    /// The kernel killed a process for want of memory.
    Oom {
        /// How many were killed since the last of these.
        kills: u64,
    }
}

impl Failed {
    /// There is no such program: 127.
    pub const NOT_FOUND: u8 = 1;
    /// The program cannot be run: 126.
    pub const NOT_EXECUTABLE: u8 = 2;
    /// The working directory is not there or may not be entered: 126.
    pub const NO_DIRECTORY: u8 = 3;
    /// There is no such user or group in the sandbox: 126.
    pub const NO_USER: u8 = 4;
    /// The guest may not become that user: the engine can.
    pub const NEEDS_ENGINE: u8 = 5;
    /// No such command or terminal is known.
    pub const UNKNOWN: u8 = 6;
    /// There are too many commands, or the sandbox is out of processes or memory.
    pub const LIMIT: u8 = 7;
    /// It makes no sense in this state: a peek at what is no terminal, a signal to what has ended.
    pub const STATE: u8 = 8;
    /// The sandbox is being stopped.
    pub const STOPPING: u8 = 9;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Run {
        Run {
            id: "0192".to_owned(),
            argv: vec![b"sh".to_vec(), vec![0xff, b'x']],
            env: vec![b"A=b=c".to_vec()],
            cwd: Some(b"/w".to_vec()),
            user: None,
            tty: Some(Size { cols: 80, rows: 24 }),
            terminal: "main".to_owned(),
            stdin: true,
            keep: 1 << 20,
            window: Some(9),
            ..Run::default()
        }
    }

    #[test]
    fn headers_and_payloads_come_back_as_they_went() {
        for &kind in Kind::ALL {
            let bytes = header(kind, 0x0102_0304, 70_000);
            let parsed = Header::parse(bytes, MAX_FROM_GUEST).expect("a short one");
            assert_eq!(parsed, Header { kind: Some(kind), stream: 0x0102_0304, length: 70_000 });
        }
        assert_eq!(Run::decode(&run().encode()), Ok(run()));
        let entry =
            Entry { ended: Some(Exited { code: 137, signal: 9, ..Exited::default() }), ..Entry::default() };
        assert_eq!(Entry::decode(&entry.encode()), Ok(entry));
    }

    #[test]
    fn a_payload_of_a_newer_version_is_read_as_far_as_it_is_known() {
        let mut bytes = run().encode();
        bytes.extend_from_slice(b"more");
        assert_eq!(Run::decode(&bytes), Ok(run()));
    }

    #[test]
    fn what_is_cut_off_or_lies_about_its_length_is_refused_without_reserving_it() {
        let whole = run().encode();
        for cut in 0..whole.len() {
            assert!(Run::decode(&whole[..cut]).is_err(), "{cut} bytes");
        }
        let huge = u32::MAX.to_be_bytes();
        assert!(Vec::<Vec<u8>>::take(&mut huge.as_slice()).is_err());
        assert!(String::take(&mut [0, 0, 0, 1, 0xff].as_slice()).is_err());
        assert!(Header::parse(header(Kind::Stdout, 1, MAX_FROM_GUEST + 1), MAX_FROM_GUEST).is_err());
    }
}
