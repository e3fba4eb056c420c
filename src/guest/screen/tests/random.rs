//! Programs made by chance, cut anywhere: what was painted at the cut and what follows show the same as all of it.

use proptest::prelude::*;

use super::super::emulator::Emulator;
use super::super::model::{ScreenModel, Vterm};
use crate::guest::wire;

const SIZE: wire::Size = wire::Size { cols: 12, rows: 6 };
const SCROLLBACK: u32 = 40;

/// Narrow text, and what in part erases or moves it: terminals do not agree on what becomes of the other half of a wide
/// character. As all of these, with `~` between.
const NARROW: &str = "abc~x~ ~hello world~e\u{301}~ß~-~*~\x08\x1b[K~\x08\x1b[1K~\x08\x1b[J~\x1b[4h~\x1b[4l~\
    \x08\x1b[2X~\x08\x1b[P~\x08\x1b[3@";

/// Text that never comes to a last column which has no room for it.
const WIDE: &str = "\r\n日本語~\r\nab 好 😀~\r\n❤\u{fe0f} 한국어~\r\n👨\u{200d}👩~\r\nabc de~\r\x1b[2K";

/// Sequences that terminals agree upon.
const COMMON: &str = "\r\n~\r~\r\n\n~\x08~\r\x1b[2K~\r\x1b[2J~\r\x1bM~\r\x1bD~\x1bE~\x1b[?1h~\x1b[?1l~\x1b[?25l~\x1b[?25h~\
    \x1b=~\x1b>~\x1b[?1000h~\x1b[?1002h~\x1b[?1003h~\x1b[?1006h~\x1b[?1000l~\x1b[?1003l~\x1b[?1006l~\x1b[?1004h~\
    \x1b[?1004l~\x1b[?2004h~\x1b[?2004l~\x1b[2 q~\x1b[5 q~\x1b[ q~\x1b]0;one\x07~\x1b]2;two;three\x1b\\~\x1b[c~\
    \x1b[6n~\x1b[5n~\x1b[>c~\x1b[?u~\x1b]10;?\x07~\x1b]11;?\x1b\\~\x1b[?2004$p~\x1b[>q~\x1bP+q544e\x1b\\~\x1b[18t~\
    \x1b[>1u~\x1b[>5u~\x1b[<u~\x1b[r~\r\x1b[L~\r\x1b[M~\x1b[?5W~\x1b_Gi=1;AAAA\x1b\\";

/// Attributes and colours.
const STYLES: &str = "0~1~2~1;2~3~4~4:3~7~9~22~23~24~27~29~31~42~39~49~93~104~38;5;123~48;5;200~38;5;3~48:5:12~\
    38;2;1;2;3~    48;2;9;8;7~38:2::4:5:6";

/// Sequences in whose details terminals differ.
const SPECIAL: &str = "\x1b[3X~\x1b[2P~\x1b[2@~\x1b[K~\x1b[1K~\x1b[J~\x1b[1J~\n~\x1bM~\x1bD~\x1b[!p~好~日本語~😀~\x1b[2A~\
    \x1b[3B~\t~\x1bH~\x1b[g~\x1b[3g~\x1b[I~\x1b[Z~\x1b7~\x1b8~\x1b[s~\x1b[u~\x1b[?6h~\x1b[?6l~\x1b[?7l~\x1b[?7h~\
    \x1b[?69h~\x1b[3;9s~\x1b[?69l~\x1b(0~\x1b(B~\x0e~\x0f~\x1b)0~\x1bc~\x1b[S~\x1b[2T~\x1b[?1049h~\x1b[?1049l~\x1b[3J~\
    \x1b]8;;http://a/b\x07~\x1b]8;;\x07~\x1b]4;1;red\x07~\x1b]104\x07~\x1b]11;#123456\x07~\x1b[22t~\x1b[23t~\
    \x1b[?2026l~\x1b[>4;2m~\x1b[?1007h~\x1b#8~\x1b[4:3;58;5;9m~\x1b]7;file://h/p\x07";

fn one_of(parts: &'static str) -> impl Strategy<Value = String> {
    proptest::sample::select(parts.split('~').map(str::to_owned).collect::<Vec<_>>())
}

/// Parts whose meaning terminals agree upon.
fn common(text: &'static str) -> impl Strategy<Value = String> {
    prop_oneof![
        6 => one_of(text),
        6 => one_of(COMMON),
        3 => one_of(STYLES).prop_map(|style| format!("\x1b[{style}m")),
        2 => (1_u16..8, 1_u16..14).prop_map(|(row, column)| format!("\x1b[{row};{column}H")),
        1 => (1_u16..5, 2_u16..7).prop_map(|(top, bottom)| format!("\x1b[{top};{bottom}r")),
        2 => (1_u16..4, proptest::sample::select(&b"CDGd"[..]))
            .prop_map(|(count, last)| format!("\x1b[{count}{}", char::from(last))),
    ]
}

/// A program that goes to the alternate screen at most once, and perhaps comes back. Before it goes the cursor is at no line's
/// end: whether a wrap is still due on the other screen, terminals do not agree on.
fn program(text: &'static str) -> impl Strategy<Value = String> {
    let parts = move || proptest::collection::vec(common(text), 0..30).prop_map(|parts| parts.concat());
    prop_oneof![
        parts(),
        (parts(), parts()).prop_map(|(main, alternate)| format!("{main}\r\x1b[?1049h{alternate}")),
        (parts(), parts(), parts()).prop_map(|(main, alternate, after)| format!(
            "{main}\r\x1b[?1049h{alternate}\r\x1b[?1049l{after}"
        )),
    ]
}

/// Parts in which terminals differ in details: the model has to agree with itself.
fn special() -> impl Strategy<Value = String> {
    prop_oneof![3 => common(NARROW), 2 => one_of(SPECIAL)]
}

/// Leaves out marks upon characters when the program switches wrapping off: in the last column the model takes them to be
/// upon the character before, and keeps them if there is one.
fn without_marks_where_nothing_wraps(output: String) -> String {
    if output.contains("\x1b[?7l") { output.replace('\u{301}', "") } else { output }
}

fn model(bytes: &[u8]) -> Vterm {
    let mut model = Vterm::new(SIZE, SCROLLBACK);
    model.process(bytes);
    model
}

fn lines(all: &[String]) -> String {
    all.join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_painting_shows_on_another_terminal_what_the_output_showed(
        output in prop_oneof![program(NARROW), program(WIDE)],
        cut in any::<proptest::sample::Index>(),
    ) {
        let (before, after) = output.as_bytes().split_at(cut.index(output.len() + 1));
        let direct = Emulator::show(SIZE, output.as_bytes());
        // In one piece: the emulator's own parser loses characters next to one that is cut in two.
        let painted = Emulator::show(SIZE, &[&model(before).redraw(SCROLLBACK), after].concat());
        prop_assert_eq!(lines(&painted.snapshot(0)), lines(&direct.snapshot(0)));
    }

    #[test]
    fn a_painting_and_the_rest_give_a_second_model_the_same_state(
        parts in proptest::collection::vec(special(), 0..60),
        cut in any::<proptest::sample::Index>(),
    ) {
        let output = without_marks_where_nothing_wraps(parts.concat()).into_bytes();
        let (before, after) = output.split_at(cut.index(output.len() + 1));
        let first = model(&output);
        let mut second = model(&model(before).redraw(SCROLLBACK));
        second.process(after);
        let shows = |model: &Vterm| Emulator::show(SIZE, &model.redraw(SCROLLBACK));
        let (first, second) = (shows(&first), shows(&second));
        prop_assert_eq!(lines(&second.snapshot(0)), lines(&first.snapshot(0)));
    }

    #[test]
    fn bytes_of_any_kind_are_taken_and_the_painting_asks_nothing(
        output in proptest::collection::vec(
            prop_oneof![any::<u8>(), proptest::sample::select(&b"\x1b[]?;>P\\\x07cnmhu0123456789 $"[..])], 0..400),
        size in (0_u16..20, 0_u16..8),
    ) {
        let mut model = Vterm::new(SIZE, SCROLLBACK);
        model.process(&output[..output.len() / 2]);
        model.resize(wire::Size { cols: size.0, rows: size.1 });
        model.process(&output[output.len() / 2..]);
        // What is held is the program's own, and was not whole.
        let emulator = Emulator::show(SIZE, &model.redraw(SCROLLBACK));
        prop_assert!(!emulator.events().iter().any(|event| event.starts_with("PtyWrite") || event.contains("Request")));
        prop_assert!(model.peek(SCROLLBACK).lines.len() >= usize::from(size.1));
    }
}
