//! What a long operation tells about itself: one line that changes on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::output::{Output, clean};
use super::terminal;
use crate::client::{Meanwhile, Progress};
use crate::config::size;

/// Operations that end sooner are not worth a word.
const QUIET_TIME: Duration = Duration::from_secs(1);

/// Shortest time between two changes of the line on a terminal.
const REDRAW: Duration = Duration::from_millis(100);

/// Shortest time between two plain lines that differ in their numbers alone.
const REPEAT: Duration = Duration::from_secs(5);

/// Width where the terminal's is not known.
const USUAL_COLUMNS: usize = 80;

/// The progress of one call.
pub(crate) struct Bar<'a> {
    output: &'a Output,
    terminal: bool,
    columns: usize,
    begun: Instant,
    /// Sizes are told from the first moment, as of a pull that may take minutes.
    sizes_at_once: bool,
    /// What was told last, drawn or not.
    last: Progress,
    drawn: Option<Drawn>,
}

/// What stands on the terminal, or was printed last.
struct Drawn {
    at: Instant,
    text: String,
    line: String,
}

impl<'a> Bar<'a> {
    /// For a call that begins now; `doing` stands there until the operation tells more.
    pub(crate) fn new(output: &'a Output, doing: &str) -> Self {
        let terminal = stderr().is_terminal();
        Self::on(output, terminal, doing)
    }

    /// As [`Bar::new`], for an operation whose sizes are not worth a word either if it ends soon.
    pub(crate) fn patient(output: &'a Output, doing: &str) -> Self {
        Self { sizes_at_once: false, ..Self::new(output, doing) }
    }

    fn on(output: &'a Output, terminal: bool, doing: &str) -> Self {
        let columns = if terminal { terminal::size(stderr()).map(|s| s.cols.into()) } else { None };
        let columns = columns.filter(|c| *c > 0).unwrap_or(USUAL_COLUMNS);
        let last = Progress { text: doing.to_owned(), ..Progress::default() };
        Self { output, terminal, columns, begun: Instant::now(), sizes_at_once: true, last, drawn: None }
    }

    /// Takes note of what happens, and shows it if it is time to.
    pub(crate) fn hear(&mut self, event: Meanwhile) {
        match event {
            Meanwhile::Progress(progress) if progress.text.is_empty() => {}
            Meanwhile::Progress(progress) => self.last = progress,
            Meanwhile::Waiting => {}
        }
        self.show();
    }

    fn show(&mut self) {
        let Progress { text, current_bytes, .. } = &self.last;
        let sizes = self.sizes_at_once && current_bytes.is_some();
        let pull = sizes || text.to_ascii_lowercase().starts_with("pull");
        let elapsed = self.begun.elapsed();
        if self.output.quiet || text.is_empty() || (!pull && elapsed < QUIET_TIME) {
            return;
        }
        let mut line = line(&self.last);
        if self.terminal && elapsed >= QUIET_TIME {
            line.push_str(&format!("  {}", time(elapsed)));
        }
        let pause = if self.terminal { REDRAW } else { REPEAT };
        let stands = self
            .drawn
            .as_ref()
            .is_some_and(|drawn| drawn.line == line || (drawn.text == *text && drawn.at.elapsed() < pause));
        if stands {
            return;
        }
        if self.terminal {
            self.output.err(&format!("\r\u{1b}[K{}", cut(&line, self.columns.saturating_sub(1))));
        } else {
            self.output.note(&line);
        }
        self.drawn = Some(Drawn { at: Instant::now(), text: text.clone(), line });
    }

    /// Clears the line, so that what follows begins on a clean one.
    pub(crate) fn finish(mut self) {
        self.clear();
    }

    /// The same, where the call has not ended.
    pub(crate) fn clear(&mut self) {
        if self.terminal && self.drawn.take().is_some() {
            self.output.err("\r\u{1b}[K");
        }
    }
}

fn time(elapsed: Duration) -> String {
    match elapsed.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds => format!("{}m {}s", seconds / 60, seconds % 60),
    }
}

fn line(progress: &Progress) -> String {
    let text = clean(&progress.text);
    match (progress.current_bytes, progress.total_bytes.filter(|t| *t > 0)) {
        (Some(current), Some(total)) => {
            let percent = u128::from(current.min(total)) * 100 / u128::from(total);
            format!("{text}  {} of {} ({percent}%)", size(current), size(total))
        }
        (Some(current), None) => format!("{text}  {}", size(current)),
        (None, _) => text,
    }
}

fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut width = 0;
    text.chars()
        .take_while(|c| {
            width += c.width().unwrap_or(0);
            width <= columns
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(text: &str, current: Option<u64>, total: Option<u64>) -> Meanwhile {
        let text = text.to_owned();
        Meanwhile::Progress(Progress { op: None, text, current_bytes: current, total_bytes: total })
    }

    /// As if this much time had gone by.
    fn age(bar: &mut Bar<'_>, seconds: u64) {
        let by = Duration::from_secs(seconds);
        bar.begun -= by;
        if let Some(drawn) = &mut bar.drawn {
            drawn.at -= by;
        }
    }

    #[test]
    fn a_pull_is_told_at_once_and_its_numbers_are_not_repeated_on_every_event() {
        let (output, captured) = Output::captured(false, false);
        let mut bar = Bar::on(&output, false, "starting");
        bar.hear(progress("Pulling debian:stable-slim", Some(1 << 20), Some(4 << 20)));
        bar.hear(progress("Pulling debian:stable-slim", Some(2 << 20), Some(4 << 20)));
        bar.hear(progress("Extracting", Some(5), None));
        bar.finish();
        let want = "Pulling debian:stable-slim  1.0 MiB of 4.0 MiB (25%)\nExtracting  5 B\n";
        assert_eq!((captured.err.text().as_str(), captured.out.text().as_str()), (want, ""));
    }

    #[test]
    fn what_ends_within_a_second_is_not_worth_a_word() {
        for terminal in [false, true] {
            let (output, captured) = Output::captured(false, false);
            let mut bar = Bar::on(&output, terminal, "saving");
            bar.hear(progress("saving x-20260201", None, None));
            bar.hear(Meanwhile::Waiting);
            bar.finish();
            assert_eq!(captured.err.text(), "");
        }
    }

    #[test]
    fn what_was_told_once_at_the_start_is_shown_after_a_second() {
        let (output, captured) = Output::captured(false, false);
        let mut bar = Bar::on(&output, false, "saving");
        bar.hear(progress("saving x-20260201", None, None));
        for _ in 0..60 {
            age(&mut bar, 1);
            bar.hear(Meanwhile::Waiting);
        }
        bar.finish();
        assert_eq!(captured.err.text(), "saving x-20260201\n");
        let (output, captured) = Output::captured(false, false);
        let mut bar = Bar::on(&output, false, "importing");
        age(&mut bar, 2);
        bar.hear(Meanwhile::Waiting);
        assert_eq!(captured.err.text(), "importing\n");
    }

    #[test]
    fn on_a_terminal_the_seconds_tick_in_one_line_that_goes() {
        let (output, captured) = Output::captured(false, false);
        let mut bar = Bar::on(&output, true, "saving");
        for seconds in [1, 1, 70] {
            age(&mut bar, seconds);
            bar.hear(Meanwhile::Waiting);
            bar.hear(Meanwhile::Waiting);
        }
        bar.finish();
        let clear = "\r\u{1b}[K";
        let want = format!("{clear}saving  1s{clear}saving  2s{clear}saving  1m 12s{clear}");
        assert_eq!(captured.err.text(), want);
    }

    #[test]
    fn a_line_is_cut_by_width_not_by_characters() {
        assert_eq!(cut("数据会议", 5), "数据");
        assert_eq!(cut("abc", 5), "abc");
    }
}
