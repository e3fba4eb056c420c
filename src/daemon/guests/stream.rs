//! One stream of a connection: what arrived on it and was not taken yet, and how much more may go either way.
//!
//! Everything here is bounded by credit, whatever the other side sends: output by what its reader granted, answers by
//! [`MAX_ANSWERS_BYTES`]. What goes beyond is malformed, and ends the connection.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_util::task::AtomicWaker;

use crate::guest::wire::{Credit, INPUT_WINDOW, Kind, Malformed, Payload};

/// Most bytes of answers that wait on one stream: a long list of commands, or a large screen.
const MAX_ANSWERS_BYTES: usize = 8 * 1024 * 1024;

/// What an answer costs beside its bytes, so that empty ones are bounded too.
const ANSWER_BYTES: usize = 64;

/// Output from this size on is kept where it was read; smaller pieces are gathered. A piece keeps all that was read with
/// it from being freed, so it must be a good part of that.
const WHOLE_BYTES: usize = 32 * 1024;

/// Which of a command's outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Stdout,
    Stderr,
}

/// What arrives on a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    Answer(Kind, Bytes),
    Output(Source, Bytes),
}

/// One side's view of a stream. One task takes what arrives, one gives input.
#[derive(Debug)]
pub(super) struct Stream {
    state: Mutex<State>,
    arrived: AtomicWaker,
    granted: AtomicWaker,
}

#[derive(Debug)]
struct State {
    waiting: VecDeque<Slot>,
    answers_bytes: usize,
    /// Output that may still come.
    window: u64,
    /// Input that may still go.
    input: u64,
    /// Whether nothing comes any more.
    closed: bool,
}

#[derive(Debug)]
enum Slot {
    Answer(Kind, Bytes),
    Whole(Source, Bytes),
    /// Small pieces one after the other, and how long each run of one source is.
    Small(BytesMut, VecDeque<(Source, usize)>),
}

impl Stream {
    /// A stream whose output has this much credit.
    pub(super) fn new(window: u32) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            answers_bytes: 0,
            window: window.into(),
            input: INPUT_WINDOW.into(),
            closed: false,
        };
        Self { state: Mutex::new(state), arrived: AtomicWaker::new(), granted: AtomicWaker::new() }
    }

    /// Takes in a frame.
    ///
    /// # Errors
    /// When it is one that may not come.
    pub(super) fn take_in(&self, kind: Kind, payload: Bytes) -> Result<(), Malformed> {
        let mut state = self.lock();
        match kind {
            Kind::Stdout | Kind::Redraw => state.output(Source::Stdout, payload)?,
            Kind::Stderr => state.output(Source::Stderr, payload)?,
            Kind::Credit => {
                let more = Credit::decode(&payload)?.bytes;
                state.input = state.input.saturating_add(more.into()).min(INPUT_WINDOW.into());
                drop(state);
                self.granted.wake();
                return Ok(());
            }
            answer => {
                state.answers_bytes += payload.len() + ANSWER_BYTES;
                if state.answers_bytes > MAX_ANSWERS_BYTES {
                    return Err(Malformed("more is answered than anybody asks for"));
                }
                // What was read with it must not be kept for it.
                state.waiting.push_back(Slot::Answer(answer, Bytes::copy_from_slice(&payload)));
                state.closed |= answer.is_last();
            }
        }
        drop(state);
        self.arrived.wake();
        Ok(())
    }

    /// Notes that nothing comes any more.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.arrived.wake();
        self.granted.wake();
    }

    /// The next that arrived; none once there is nothing more and will be nothing. Cancel safe.
    pub(super) async fn next(&self) -> Option<Item> {
        poll_fn(|cx| {
            self.arrived.register(cx.waker());
            let mut state = self.lock();
            match state.take() {
                Some(item) => Poll::Ready(Some(item)),
                None if state.closed => Poll::Ready(None),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Notes credit for output that is being sent to the other side.
    pub(super) fn grant(&self, bytes: u32) {
        self.lock().window += u64::from(bytes);
    }

    /// Wakes this task when input may be taken again.
    pub(super) fn wake_for_input(&self, cx: &Context<'_>) {
        self.granted.register(cx.waker());
    }

    /// Lets input be taken that something else than credit held up.
    pub(super) fn take_input_again(&self) {
        self.granted.wake();
    }

    /// Takes credit for up to `wanted` bytes of input; none once nobody takes input any more.
    pub(super) fn poll_input(&self, cx: &Context<'_>, wanted: usize) -> Poll<Option<usize>> {
        self.wake_for_input(cx);
        let mut state = self.lock();
        if state.closed {
            return Poll::Ready(None);
        }
        let may = usize::try_from(state.input).unwrap_or(usize::MAX).min(wanted);
        if may == 0 {
            return Poll::Pending;
        }
        state.input -= may as u64;
        Poll::Ready(Some(may))
    }

    /// Whether credit has come back for all input that was taken.
    pub(super) fn has_taken_input(&self) -> bool {
        self.lock().input >= INPUT_WINDOW.into()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn output(&mut self, source: Source, bytes: Bytes) -> Result<(), Malformed> {
        let length = bytes.len();
        self.window =
            self.window.checked_sub(length as u64).ok_or(Malformed("more output came than was granted"))?;
        if length >= WHOLE_BYTES {
            self.waiting.push_back(Slot::Whole(source, bytes));
        } else if length > 0 {
            if !matches!(self.waiting.back(), Some(Slot::Small(..))) {
                self.waiting.push_back(Slot::Small(BytesMut::new(), VecDeque::new()));
            }
            if let Some(Slot::Small(all, runs)) = self.waiting.back_mut() {
                all.extend_from_slice(&bytes);
                match runs.back_mut() {
                    Some((last, run)) if *last == source => *run += length,
                    _ => runs.push_back((source, length)),
                }
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Option<Item> {
        match self.waiting.front_mut()? {
            Slot::Small(all, runs) => {
                let run = runs.pop_front();
                let item = run.map(|(source, length)| Item::Output(source, all.split_to(length).freeze()));
                if runs.is_empty() {
                    self.waiting.pop_front();
                }
                item
            }
            Slot::Answer(..) | Slot::Whole(..) => match self.waiting.pop_front()? {
                Slot::Answer(kind, bytes) => {
                    self.answers_bytes -= bytes.len() + ANSWER_BYTES;
                    Some(Item::Answer(kind, bytes))
                }
                Slot::Whole(source, bytes) => Some(Item::Output(source, bytes)),
                Slot::Small(..) => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[tokio::test]
    async fn what_arrives_is_taken_in_its_order_however_small_it_came() {
        let stream = Stream::new(1 << 20);
        for (kind, text) in
            [(Kind::Stdout, "a"), (Kind::Stdout, "b"), (Kind::Stderr, "c"), (Kind::Stdout, "d")]
        {
            stream.take_in(kind, bytes(text)).expect("granted");
        }
        let whole = Bytes::from(vec![b'x'; WHOLE_BYTES]);
        stream.take_in(Kind::Stderr, whole.clone()).expect("granted");
        stream.take_in(Kind::Stdout, Bytes::new()).expect("nothing");
        stream.take_in(Kind::Exited, bytes("end")).expect("an answer");
        let mut got = Vec::new();
        while let Some(item) = stream.next().await {
            got.push(item);
        }
        let want = [
            Item::Output(Source::Stdout, bytes("ab")),
            Item::Output(Source::Stderr, bytes("c")),
            Item::Output(Source::Stdout, bytes("d")),
            Item::Output(Source::Stderr, whole),
            Item::Answer(Kind::Exited, bytes("end")),
        ];
        assert_eq!(got, want);
    }

    #[tokio::test]
    async fn more_than_was_granted_or_asked_for_is_malformed() {
        let stream = Stream::new(3);
        stream.take_in(Kind::Stdout, bytes("ab")).expect("granted");
        stream.take_in(Kind::Stderr, bytes("cd")).expect_err("one too many");
        stream.grant(1);
        stream.take_in(Kind::Stderr, bytes("cd")).expect("granted now");
        let answers = (0..).take_while(|_| stream.take_in(Kind::Entry, Bytes::new()).is_ok());
        assert_eq!(answers.count(), MAX_ANSWERS_BYTES / ANSWER_BYTES);
    }

    #[tokio::test]
    async fn input_waits_for_credit_and_ends_with_the_stream() {
        let stream = Stream::new(0);
        let ask = || poll_fn(|cx| stream.poll_input(cx, usize::MAX));
        assert_eq!(ask().await, Some(INPUT_WINDOW as usize));
        let more = async { stream.take_in(Kind::Credit, Credit { bytes: 5 }.encode().into()) };
        let (got, granted) = tokio::join!(ask(), more);
        granted.expect("credit");
        assert_eq!(got, Some(5));
        stream.close();
        assert_eq!((ask().await, stream.next().await), (None, None));
    }
}
