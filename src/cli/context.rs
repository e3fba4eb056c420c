//! What every command needs: the way to the daemon, and the way out.

use std::cell::Cell;
use std::io::{BufRead, IsTerminal, stderr, stdin};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::value::RawValue;

use super::args::Global;
use super::failure::{DAEMON, Failure, chain};
use super::interrupt::Interrupt;
use super::output::{Output, clean};
use super::progress::Bar;
use crate::client::{
    Asked, CallError, Client, ConnectError, Connector, Meanwhile, RawStream, StreamError, same_protocol,
};
use crate::paths::Home;
use crate::proto::errors::Kind;
use crate::proto::methods::{Method, SessionConnect};
use crate::proto::stream::Open;
use crate::proto::version::VERSION;

/// How long a command whose daemon stops waits for the next one: as long as a stop and a start may take.
const SUCCESSOR_LIMIT: Duration = Duration::from_secs(15);

/// Between two looks for it.
const SUCCESSOR_PAUSE: Duration = Duration::from_millis(50);

/// One run of the command line.
pub(crate) struct Context {
    /// Where words go.
    pub(crate) output: Output,
    /// How to reach the daemon.
    pub(crate) connector: Connector,
    said: Cell<bool>,
    noticed: Cell<bool>,
}

impl Context {
    /// Finds the home.
    ///
    /// # Errors
    /// When there is none; gives the output back, so that this can be said.
    pub(crate) fn new(global: &Global, output: Output) -> Result<Self, (Failure, Output)> {
        match Home::find(global.home.as_deref(), global.socket.as_deref()) {
            Ok(home) => Ok(Self::with(Connector::new(home, !global.no_autostart), output)),
            Err(error) => {
                let causes = chain(&error).split_off(1);
                let mut failure = Failure::daemon(error.to_string(), causes);
                failure.exit = DAEMON;
                Err((failure.with_hint("name a home with --home or ABX_HOME"), output))
            }
        }
    }

    /// Uses this connector.
    pub(crate) fn with(connector: Connector, output: Output) -> Self {
        Self { output, connector, said: Cell::new(false), noticed: Cell::new(false) }
    }

    /// Connects, and says once what the user should know of the daemon.
    ///
    /// # Errors
    /// Exit code 6.
    pub(crate) fn connect(&self) -> Result<Client, Failure> {
        let client = self.greet(&self.connector)?;
        self.compare(&client)?;
        Ok(client)
    }

    /// As [`Context::connect`], asking something with the greeting.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn connect_asking(&self, asked: &Asked) -> Result<Client, Failure> {
        let client = self.notice(self.connector.connect_asking(asked)?);
        self.compare(&client)?;
        Ok(client)
    }

    fn compare(&self, client: &Client) -> Result<(), ConnectError> {
        let hello = client.hello();
        same_protocol(hello)?;
        if !self.said.replace(true) {
            self.compare_versions(&hello.version);
            if self.output.verbose {
                let socket = self.connector.home().socket().display().to_string();
                self.output.note(&format!(
                    "abxd {} (process {}) at {}",
                    clean(&hello.version),
                    hello.pid,
                    clean(&socket)
                ));
            }
        }
        Ok(())
    }

    /// Connects to a daemon of whatever protocol, and shows what it wants the user to know: it says so once, to
    /// whichever command comes first.
    ///
    /// # Errors
    /// As the client's.
    pub(crate) fn greet(&self, connector: &Connector) -> Result<Client, ConnectError> {
        Ok(self.notice(connector.connect_any_protocol()?))
    }

    fn notice(&self, client: Client) -> Client {
        if let Some(notice) = &client.hello().notice
            && !self.noticed.replace(true)
        {
            self.output.note(&clean(notice));
        }
        client
    }

    /// Opens a raw stream. With a key, an opening that a daemon's end cuts off is repeated: the command runs once.
    ///
    /// # Errors
    /// As the client's; the key is the id of the failed request.
    pub(crate) fn open(&self, open: &Open) -> Result<RawStream, Failure> {
        let open = &Open { hears: true, ..open.clone() };
        let opened = match self.connector.open_telling(open, &|line| self.doing(line)) {
            Err(StreamError::Gone { .. }) if open.key.is_some() => self.open_again(open, false, || true),
            Err(error) if open.key.is_some() && is_of(&error, Kind::ShuttingDown) => {
                self.open_again(open, true, || true)
            }
            // A key must be in the table before its command begins; without one that runs with a full disk, too.
            Err(error) if open.key.is_some() && is_of(&error, Kind::StoreFull) => {
                let open = Open { key: None, ..open.clone() };
                self.connector.open_telling(&open, &|line| self.doing(line))
            }
            opened => opened,
        };
        let stream = opened.map_err(|error| Failure::from(error).of_request(open.key.as_deref()))?;
        if !self.said.replace(true) {
            self.compare_versions(&stream.opened().version);
        }
        Ok(stream)
    }

    /// Opens a stream on a new connection after one before was lost. A daemon that is being stopped is not started again,
    /// but one that takes its place is waited for, as long as it is `wanted`.
    ///
    /// # Errors
    /// As the client's.
    pub(crate) fn open_again(
        &self,
        open: &Open,
        stopped: bool,
        wanted: impl Fn() -> bool,
    ) -> Result<RawStream, StreamError> {
        let connector = if stopped { self.connector.without_autostart() } else { self.connector.clone() };
        let deadline = Instant::now() + SUCCESSOR_LIMIT;
        loop {
            let error = match connector.open_telling(open, &|line| self.doing(line)) {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            // A daemon that was killed takes connections for a moment after it has closed others: it is gone all the
            // same.
            let waits = match &error {
                StreamError::Gone { .. } => true,
                // Where none is started from here, someone else does it.
                StreamError::Connect { .. } => !connector.autostart(),
                error => is_of(error, Kind::ShuttingDown),
            };
            if !waits || !wanted() || Instant::now() >= deadline {
                return Err(error);
            }
            sleep(SUCCESSOR_PAUSE);
        }
    }

    /// Connects to the daemon that takes the place of one that went away. One that was stopped on purpose is not started
    /// again, but its successor is waited for.
    ///
    /// # Errors
    /// Exit code 6, when there is none for as long as a stop and a start may take.
    pub(crate) fn come_back(&self, stopped: bool) -> Result<Client, Failure> {
        let connector = if stopped { self.connector.without_autostart() } else { self.connector.clone() };
        let deadline = Instant::now() + SUCCESSOR_LIMIT;
        loop {
            let error = match self.greet(&connector) {
                Ok(client) => return Ok(client),
                Err(error) => error,
            };
            if Instant::now() >= deadline {
                return Err(error.into());
            }
            sleep(SUCCESSOR_PAUSE);
        }
    }

    /// Calls a method that changes nothing, and asks the next daemon where this one goes away before it has answered, with
    /// what `params` says by then.
    ///
    /// # Errors
    /// The daemon's own, or why there is no answer.
    pub(crate) fn call_through<M: Method>(
        &self,
        client: &mut Client,
        mut params: impl FnMut() -> M::Params,
    ) -> Result<Box<RawValue>, Failure> {
        loop {
            let error = match client.call_document::<M>(&params()) {
                Ok(raw) => return Ok(raw),
                Err(error) => error,
            };
            let stopped = error.remote().is_some_and(|wire| wire.kind() == Some(Kind::ShuttingDown));
            if !stopped && !matches!(error, CallError::Gone { .. }) {
                return Err(error.into());
            }
            // One that stops may still take connections.
            sleep(SUCCESSOR_PAUSE);
            *client = self.come_back(stopped).map_err(|_| Failure::from(error))?;
        }
    }

    /// Calls a method; its progress is shown.
    ///
    /// # Errors
    /// The daemon's own, or why there is no answer.
    pub(crate) fn call<M: Method>(&self, params: &M::Params) -> Result<Box<RawValue>, Failure> {
        self.call_on::<M>(&mut self.connect()?, params)
    }

    /// As [`Context::call`], on a connection that there is already.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn call_on<M: Method>(
        &self,
        client: &mut Client,
        params: &M::Params,
    ) -> Result<Box<RawValue>, Failure> {
        let mut bar = Bar::new(&self.output, doing(M::NAME));
        let interrupt = Interrupt::during::<M>(params);
        let result = self.ask(client, |client| {
            let mut cancel = interrupt.cancel(client);
            client.call_watched::<M>(params, &mut |event| {
                match event {
                    // The one line that it has to tell stays, however soon it is done.
                    Meanwhile::Progress(progress) if M::NAME == SessionConnect::NAME => {
                        bar.clear();
                        self.doing(&progress.text);
                    }
                    event => bar.hear(event),
                }
                if interrupt.pressed() {
                    bar.clear();
                    interrupt.leave(cancel.as_mut(), &self.output);
                }
            })
        });
        bar.finish();
        result
    }

    /// Makes a call, and makes it of the next daemon where one that stops has begun nothing of it.
    ///
    /// # Errors
    /// The call's.
    pub(crate) fn ask<T>(
        &self,
        client: &mut Client,
        mut call: impl FnMut(&mut Client) -> Result<T, CallError>,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + SUCCESSOR_LIMIT;
        loop {
            match call(client) {
                Err(error) if error.was_not_begun() && Instant::now() < deadline => {
                    sleep(SUCCESSOR_PAUSE);
                    *client = self.come_back(false).map_err(|_| Failure::from(error))?;
                }
                result => return Ok(result?),
            }
        }
    }

    /// Prints a result: as it came under `--json`, the name under `-q`, else as text.
    ///
    /// # Errors
    /// When the result is not what the method gives.
    pub(crate) fn deliver<M: Method>(
        &self,
        raw: &RawValue,
        name: impl FnOnce(&M::Result) -> String,
        text: impl FnOnce(&M::Result) -> String,
    ) -> Result<(), Failure> {
        if self.output.json {
            self.output.data(raw.get());
            return Ok(());
        }
        let result = understand::<M>(raw)?;
        let text = if self.output.quiet { name(&result) } else { text(&result) };
        if !text.is_empty() {
            self.output.data(&text);
        }
        Ok(())
    }

    /// Asks a question on a terminal, the answer to which is no unless it is yes.
    pub(crate) fn agrees(&self, question: &str) -> bool {
        self.output.err(question);
        let mut answer = String::new();
        let read = stdin().lock().read_line(&mut answer);
        read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
    }

    /// Says what is done before what was asked for.
    fn doing(&self, line: &str) {
        if !self.output.quiet {
            self.output.note(&clean(line));
        }
    }

    fn compare_versions(&self, theirs: &str) {
        if theirs != VERSION {
            self.output.note(&format!(
                "abx is {VERSION}, the running abxd {}: to use one version, run abx daemon restart",
                clean(theirs)
            ));
        }
    }
}

/// What a method does, in words for whoever waits for it; empty where the user sees it anyway.
fn doing(method: &str) -> &'static str {
    match method {
        "session.start" => "starting",
        "session.stop" => "stopping",
        "session.save" => "saving",
        "session.resume" | "session.connect" => "resuming",
        "session.delete" => "deleting",
        "session.pause" => "pausing",
        "session.unpause" => "unpausing",
        "session.fork" => "forking",
        "session.rename" => "renaming",
        "session.import" | "table.import" => "importing",
        "snapshot.delete" => "deleting snapshots",
        "exec.run" | "exec.wait" | "session.wait" => "",
        _ => "waiting for abxd",
    }
}

fn is_of(error: &StreamError, kind: Kind) -> bool {
    matches!(error, StreamError::Refused(remote) if remote.error.kind() == Some(kind))
}

/// When a wait is given up, over as many calls as it takes.
pub(crate) struct Patience(Option<Instant>);

impl Patience {
    /// So many milliseconds from now; none and 0 are for ever.
    pub(crate) fn new(ms: Option<u64>) -> Self {
        let limit = ms.filter(|ms| *ms > 0).map(Duration::from_millis);
        Self(limit.and_then(|limit| Instant::now().checked_add(limit)))
    }

    /// Milliseconds that are left. Never 0, which would be no limit.
    pub(crate) fn left_ms(&self) -> Option<u64> {
        let left = self.0?.saturating_duration_since(Instant::now()).as_millis().max(1);
        Some(u64::try_from(left).unwrap_or(u64::MAX))
    }
}

/// What `--no-resume` says to the daemon: without it, the daemon's configuration decides.
pub(crate) fn refused(no_resume: bool) -> Option<bool> {
    no_resume.then_some(false)
}

/// Whether there is a user who can be asked.
pub(crate) fn can_ask() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

/// Understands the result of a method.
///
/// # Errors
/// When it is not what the method gives.
pub(crate) fn understand<M: Method>(raw: &RawValue) -> Result<M::Result, Failure> {
    serde_json::from_str(raw.get()).map_err(|error| {
        let message = format!("abxd answered {} with something that this abx does not understand", M::NAME);
        Failure::daemon(message, chain(&error)).with_hint("abx daemon restart")
    })
}

/// An id for an operation's progress, or of a request to start a command: this process and this instant have it for themselves.
pub(crate) fn operation_id() -> Option<String> {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    Some(format!("abx-{}-{nanos:x}", std::process::id()))
}
