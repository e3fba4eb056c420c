//! The only printer: data on standard output, everything else on standard error.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::failure::Failure;
use crate::paths;

/// Where a command's words go.
pub(crate) struct Output {
    /// One JSON document on standard output.
    pub(crate) json: bool,
    /// Names only.
    pub(crate) quiet: bool,
    /// More on standard error.
    pub(crate) verbose: bool,
    color: bool,
    out: RefCell<Box<dyn Write>>,
    err: RefCell<Box<dyn Write>>,
    problem: Cell<Option<io::Error>>,
}

impl Output {
    /// The process's own streams.
    pub(crate) fn standard(json: bool, quiet: bool, verbose: bool) -> Self {
        Self {
            json,
            quiet,
            verbose,
            color: io::stderr().is_terminal() && wants_color(),
            out: RefCell::new(Box::new(Patient(io::stdout()))),
            err: RefCell::new(Box::new(Patient(io::stderr()))),
            problem: Cell::new(None),
        }
    }

    #[cfg(test)]
    pub(crate) fn captured(json: bool, quiet: bool) -> (Self, tests::Captured) {
        let captured = tests::Captured::default();
        let output = Self {
            json,
            quiet,
            verbose: false,
            color: false,
            out: RefCell::new(Box::new(captured.out.clone())),
            err: RefCell::new(Box::new(captured.err.clone())),
            problem: Cell::new(None),
        };
        (output, captured)
    }

    /// Prints a line, or several, of data: a document where one is asked for. The caller has cleaned what came from outside
    /// where it is for people.
    pub(crate) fn data(&self, text: &str) {
        if self.json {
            return self.document(text);
        }
        self.out(&format!("{text}\n"));
    }

    /// Prints a JSON document.
    pub(crate) fn document(&self, json: &str) {
        self.out(&format!("{}\n", clean_json(json)));
    }

    /// Prints data that ends its own lines.
    pub(crate) fn out(&self, text: &str) {
        let mut out = self.out.borrow_mut();
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            if error.kind() == io::ErrorKind::BrokenPipe {
                end_by_broken_pipe();
            }
            self.problem.set(Some(error));
        }
    }

    /// Prints a line for people.
    pub(crate) fn note(&self, text: &str) {
        self.err(&format!("{text}\n"));
    }

    /// Prints on standard error as it is. Nobody is left to tell when that fails.
    pub(crate) fn err(&self, text: &str) {
        let mut err = self.err.borrow_mut();
        let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
    }

    /// Prints an error: as a document, or as lines for people.
    pub(crate) fn failure(&self, failure: &Failure) {
        if self.json {
            self.data(&failure.document());
        } else {
            self.err(&failure.text(self.color));
        }
    }

    /// Prints an error where standard output is not for words of ours.
    pub(crate) fn failure_aside(&self, failure: &Failure) {
        if self.json {
            self.note(&clean_json(&failure.document()));
        } else {
            self.err(&failure.text(self.color));
        }
    }

    /// What kept data from being written, if anything did.
    pub(crate) fn problem(&self) -> Option<io::Error> {
        self.problem.take()
    }
}

/// Makes text from outside safe to print: control characters and those that change a line's direction are escaped.
pub(crate) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmful(c) { clean.extend(c.escape_default()) } else { clean.push(c) }
    }
    clean
}

/// The same document with what is not safe to print escaped as JSON has it. Below U+007F JSON does so itself.
pub(crate) fn clean_json(json: &str) -> Cow<'_, str> {
    let harmful = |c: char| c >= '\u{7f}' && is_harmful(c);
    if !json.contains(harmful) {
        return Cow::Borrowed(json);
    }
    let mut clean = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        if harmful(c) { clean.push_str(&format!("\\u{:04x}", u32::from(c))) } else { clean.push(c) }
    }
    Cow::Owned(clean)
}

fn is_harmful(c: char) -> bool {
    let turns = matches!(u32::from(c), 0x061C | 0x200E | 0x200F | 0x2028..=0x202E | 0x2066..=0x2069);
    c.is_control() || turns
}

/// As [`clean`], but lines stay lines; those after the first are indented.
pub(crate) fn clean_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(clean).collect();
    lines.join("\n  ")
}

/// Standard output for bytes of a command, without a buffer.
pub(crate) fn raw_stdout() -> io::Result<Patient<File>> {
    Ok(Patient(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
}

/// Standard error for bytes of a command, without a buffer.
pub(crate) fn raw_stderr() -> io::Result<Patient<File>> {
    Ok(Patient(File::from(io::stderr().as_fd().try_clone_to_owned()?)))
}

/// Standard input for bytes that are passed on, without a buffer.
pub(crate) struct RawStdin(File);

impl RawStdin {
    /// A copy of the process's own.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self(File::from(io::stdin().as_fd().try_clone_to_owned()?)))
    }

    /// Waits for bytes; 0 is the end.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait_until(self.0.as_fd(), PollFlags::POLLIN)?;
                }
                // A terminal that is gone has no more input.
                read => return Ok(read.unwrap_or(0)),
            }
        }
    }
}

/// Ends the process as a program ends whose reader went away, without a word.
pub(crate) fn end_by_broken_pipe() {
    // Does not come back; should it fail, the write's error is reported like any other.
    let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGPIPE);
}

/// Waits until a descriptor that somebody made non-blocking can be used.
pub(crate) fn wait_until(fd: BorrowedFd<'_>, flags: PollFlags) -> io::Result<()> {
    match poll(&mut [PollFd::new(fd, flags)], PollTimeout::NONE) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// A writer that waits where another process made the shared descriptor non-blocking.
pub(crate) struct Patient<W>(W);

impl<W: Write + AsFd> Write for Patient<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait_until(self.0.as_fd(), PollFlags::POLLOUT)?;
                }
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        loop {
            match self.0.flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait_until(self.0.as_fd(), PollFlags::POLLOUT)?;
                }
                done => return done,
            }
        }
    }
}

fn wants_color() -> bool {
    paths::variable("NO_COLOR").is_none_or(|v| v.is_empty())
        && paths::variable("TERM").is_none_or(|v| v != "dumb")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::rc::Rc;

    use super::*;

    /// What a command printed.
    #[derive(Default)]
    pub(crate) struct Captured {
        pub(crate) out: Sink,
        pub(crate) err: Sink,
    }

    #[derive(Clone, Default)]
    pub(crate) struct Sink(Rc<RefCell<Vec<u8>>>);

    impl Sink {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.borrow().clone()).expect("UTF-8")
        }
    }

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn control_sequences_from_outside_do_not_reach_the_terminal() {
        assert_eq!(clean("a\u{1b}[2Jb\r\n\u{9b}31m"), "a\\u{1b}[2Jb\\r\\n\\u{9b}31m");
        assert_eq!(clean("\u{202e}txt.exe"), "\\u{202e}txt.exe");
        assert_eq!(clean("数据-会议 👩\u{200d}💻"), "数据-会议 👩\u{200d}💻");
        assert_eq!(clean_lines("one\ntwo\u{7}"), "one\n  two\\u{7}");
    }

    #[test]
    fn a_document_stays_the_same_without_characters_that_steer_a_terminal() {
        let value =
            serde_json::json!({ "a": "\u{9b}31m\u{7f}\u{202e}x\u{2066}\u{2028}\u{1b}数据👩\u{200d}💻" });
        let (output, captured) = Output::captured(true, false);
        output.data(&value.to_string());
        output.failure(&Failure::refused("\u{85}\u{2029}"));
        let text = captured.out.text();
        assert!(text.contains(r"\u009b31m\u007f\u202ex\u2066\u2028\u001b数据👩"), "{text}");
        assert!(!text.chars().any(|c| c != '\n' && is_harmful(c)), "{text:?}");
        let mut documents = serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>();
        assert_eq!(documents.next().expect("the first").expect("JSON"), value);
        let failure = documents.next().expect("the second").expect("JSON");
        assert_eq!(failure["message"], "\u{85}\u{2029}");
    }

    #[test]
    fn a_non_blocking_pipe_is_waited_for() {
        use std::io::Read;
        use std::os::unix::net::UnixStream;
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("non-blocking");
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).map(|_| all.len())
        });
        let bytes = vec![7; 4 << 20];
        let mut patient = Patient(ours);
        patient.write_all(&bytes).expect("all written");
        drop(patient);
        assert_eq!(reader.join().expect("no panic").expect("read"), bytes.len());
    }
}
