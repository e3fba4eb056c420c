//! What a long operation tells about itself: one line that changes on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::output::{Output, clean};
use super::table::bytes;
use super::terminal;
use crate::client::Progress;

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
    drawn: Option<Instant>,
    text: String,
}

impl<'a> Bar<'a> {
    /// For a call that begins now.
    pub(crate) fn new(output: &'a Output) -> Self {
        let terminal = stderr().is_terminal();
        Self::on(output, terminal)
    }

    fn on(output: &'a Output, terminal: bool) -> Self {
        let columns = if terminal { terminal::size(stderr()).map(|s| s.cols.into()) } else { None };
        let columns = columns.filter(|c| *c > 0).unwrap_or(USUAL_COLUMNS);
        Self { output, terminal, columns, begun: Instant::now(), drawn: None, text: String::new() }
    }

    /// Shows it, if it is time to.
    pub(crate) fn show(&mut self, progress: &Progress) {
        let pull = progress.current_bytes.is_some() || progress.text.to_ascii_lowercase().starts_with("pull");
        if self.output.quiet || progress.text.is_empty() || (!pull && self.begun.elapsed() < QUIET_TIME) {
            return;
        }
        let changed = progress.text != self.text;
        let pause = if self.terminal { REDRAW } else { REPEAT };
        if !changed && self.drawn.is_some_and(|drawn| drawn.elapsed() < pause) {
            return;
        }
        let line = line(progress);
        if self.terminal {
            self.output.err(&format!("\r\u{1b}[K{}", cut(&line, self.columns.saturating_sub(1))));
        } else {
            self.output.note(&line);
        }
        self.drawn = Some(Instant::now());
        self.text.clone_from(&progress.text);
    }

    /// Clears the line, so that what follows begins on a clean one.
    pub(crate) fn finish(self) {
        if self.terminal && self.drawn.is_some() {
            self.output.err("\r\u{1b}[K");
        }
    }
}

fn line(progress: &Progress) -> String {
    let text = clean(&progress.text);
    match (progress.current_bytes, progress.total_bytes.filter(|t| *t > 0)) {
        (Some(current), Some(total)) => {
            let percent = u128::from(current.min(total)) * 100 / u128::from(total);
            format!("{text}  {} of {} ({percent}%)", bytes(current), bytes(total))
        }
        (Some(current), None) => format!("{text}  {}", bytes(current)),
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

    fn progress(text: &str, current: Option<u64>, total: Option<u64>) -> Progress {
        Progress { op: None, text: text.to_owned(), current_bytes: current, total_bytes: total }
    }

    #[test]
    fn a_pull_is_told_at_once_and_its_numbers_are_not_repeated_on_every_event() {
        let (output, captured) = Output::captured(false, false);
        let mut bar = Bar::on(&output, false);
        bar.show(&progress("Pulling debian:stable-slim", Some(1 << 20), Some(4 << 20)));
        bar.show(&progress("Pulling debian:stable-slim", Some(2 << 20), Some(4 << 20)));
        bar.show(&progress("Extracting", Some(5), None));
        bar.finish();
        let want = "Pulling debian:stable-slim  1.0 MiB of 4.0 MiB (25%)\nExtracting  5 B\n";
        assert_eq!((captured.err.text().as_str(), captured.out.text().as_str()), (want, ""));
    }

    #[test]
    fn what_ends_within_a_second_is_not_worth_a_word() {
        let (output, captured) = Output::captured(false, false);
        let mut bar = Bar::on(&output, false);
        bar.show(&progress("Stopping", None, None));
        bar.finish();
        assert_eq!(captured.err.text(), "");
    }

    #[test]
    fn a_line_is_cut_by_width_not_by_characters() {
        assert_eq!(cut("数据会议", 5), "数据");
        assert_eq!(cut("abc", 5), "abc");
    }
}
