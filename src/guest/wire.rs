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
//! A running sandbox keeps the `abx-init` that it was started with, so `abxd` speaks every version since [`OLDEST`]. Both skip
//! kinds that they do not know. Fields are only ever added at the end of a payload: a reader ignores what follows those
//! that it knows, and takes a default (nothing, 0, false) for those that are not there at all. What cannot be done so
//! gets a new version, and [`Welcome`] says which one is spoken.
//!
//! # Trust
//! `abxd` trusts nothing that comes from inside: lengths are bounded here before anything is read, text is checked, and
//! a payload that does not decode ends the connection.

mod messages;
#[cfg(test)]
mod tests;

use std::fmt;

pub use messages::{
    Credit, Entry, Exited, Failed, Follow, Following, Hello, Notice, Oom, Peek, Run, Screen, Signal, Size,
    Started, Welcome,
};

/// The variable that marks a command and all that it starts with the command's id.
pub const EXEC_MARK: &str = "ABX_EXEC_ID";

/// The version spoken.
pub const VERSION: u16 = 2;

/// The oldest that abxd speaks. Version 1 was in no release.
pub const OLDEST: u16 = 2;

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 8;

/// Longest payload from `abx-init`, in bytes.
pub const MAX_FROM_GUEST: usize = 256 * 1024;

/// Longest payload from `abxd`, in bytes: a command with arguments and environment as long as Linux takes them.
pub const MAX_TO_GUEST: usize = 8 * 1024 * 1024;

/// Most output bytes in one frame. Long enough that headers cost nothing, short enough that streams take turns.
pub const MAX_DATA_BYTES: usize = 128 * 1024;

/// Longest id, and longest name of a terminal, that `abx-init` takes, in bytes: an [`Entry`] has both, and must fit a frame.
/// Those of `abxd` are far shorter.
pub const MAX_NAME_BYTES: usize = 1024;

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

impl Kind {
    /// Whether it is sent by the guest. Credit goes both ways.
    pub fn is_from_guest(self) -> bool {
        self as u8 >= Self::Hello as u8 || self == Self::Credit
    }

    /// Whether it is the last that the guest sends on its stream.
    pub fn is_last(self) -> bool {
        matches!(self, Self::Failed | Self::Exited | Self::Screen | Self::Done)
    }
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
    /// something in the last second.
    Active = 76,
    /// From the guest, on stream 0: [`Oom`].
    Oom = 77,
    /// From the guest, on stream 0: [`Notice`]. Of what a terminal writes at most one bell a second and five others.
    Notice = 78,
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
    /// Writes it.
    fn encode(&self) -> Vec<u8>;

    /// Reads it. What follows the known fields is ignored; those that an older sender did not have get their defaults.
    ///
    /// # Errors
    /// When a field does not decode, or is cut off.
    fn decode(payload: &[u8]) -> Result<Self, Malformed>;
}

/// Takes a field of a payload; its default where the payload has ended before it.
fn field<T: Field + Default>(from: &mut &[u8]) -> Result<T, Malformed> {
    if from.is_empty() { Ok(T::default()) } else { T::take(from) }
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
