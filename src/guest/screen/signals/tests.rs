use proptest::prelude::*;

use super::super::split::{Piece, Splitter};
use super::*;

/// Source, state, and `title|body`.
type Found = (u8, u8, String);

/// What is found in output that comes in these portions.
fn found<'a>(portions: impl IntoIterator<Item = &'a [u8]>) -> Vec<Found> {
    let (mut splitter, mut signals) = (Splitter::default(), Signals::default());
    for portion in portions {
        splitter.split(portion, |piece| match piece {
            Piece::Text(text) | Piece::Control(text) => signals.text(text),
            Piece::Command(command) => signals.command(command),
            Piece::Other => {}
        });
    }
    let all = signals.take(Instant::now());
    all.into_iter().map(|n| (n.source, n.state, format!("{}|{}", n.title, n.body))).collect()
}

fn one(output: &[u8]) -> Option<Found> {
    let mut all = found([output]);
    assert!(all.len() < 2, "{all:?}");
    all.pop()
}

#[test]
fn each_escape_is_found_with_its_text_and_others_are_not() {
    let waiting = |source, text: &str| Some((source, Notice::WAITING, text.to_owned()));
    let cases: [(&[u8], Option<Found>); 20] = [
        (b"a\x07b", waiting(Notice::BELL, "|")),
        (b"\x1b]9;which?\x07", waiting(Notice::OSC9, "|which?")),
        (b"\x1b]9;a;b\x1b\\", waiting(Notice::OSC9, "|a;b")),
        (b"\x1b]9;4;3\x07", Some((Notice::PROGRESS, Notice::WORKING, "|".to_owned()))),
        (b"\x1b]9;4;1;50\x1b\\", Some((Notice::PROGRESS, Notice::WORKING, "|".to_owned()))),
        (b"\x1b]9;4;0;\x07", None),
        (b"\x1b]9;9;/tmp\x07", None),
        (b"\x1b]9;\x07", None),
        (b"\x1b]99;;which?\x1b\\", waiting(Notice::OSC99, "which?|")),
        (b"\x1b]777;notify;claude;which;one?\x07", waiting(Notice::OSC777, "claude|which;one?")),
        (b"\x1b]777;notify;claude\x07", waiting(Notice::OSC777, "claude|")),
        (b"\x1b]777;preexec\x07", None),
        (b"\x1b]0;title\x07", None),
        (b"\x1b]8;;http://a\x07link\x1b]8;;\x07", None),
        (b"\x1b]9;cut off\x18", None),
        (b"\x1b]9;broken\x1b[1m", None),
        (b"\x1bPq\x07\x1b\\", None),
        (b"\x1b[1\x07m", waiting(Notice::BELL, "|")),
        ("\x1b]9;数\x07".as_bytes(), waiting(Notice::OSC9, "|数")),
        (b"\x1b]9;not \xff text\x07", waiting(Notice::OSC9, "|not \u{fffd} text")),
    ];
    for (output, want) in cases {
        assert_eq!(one(output), want, "{}", output.escape_ascii());
    }
}

#[test]
fn a_flood_leaves_some_and_a_bell_keeps_no_words_away() {
    let flood = b"\x07\x1b]9;a\x07".repeat(1000);
    let all = found(flood.chunks(64));
    assert_eq!(all.iter().filter(|(source, ..)| *source == Notice::BELL).count(), 1);
    assert_eq!(all.len(), 1 + MAX_IN_TURN as usize);
    let mut signals = Signals::default();
    let now = Instant::now();
    let takes = |signals: &mut Signals, now| {
        signals.text(b"\x07");
        signals.take(now).len()
    };
    assert_eq!((takes(&mut signals, now), takes(&mut signals, now)), (1, 0));
    assert_eq!(takes(&mut signals, now + TURN), 1);
}

#[test]
fn a_long_text_is_cut() {
    let long = [b"\x1b]777;notify;", "数".repeat(1000).as_bytes(), b";", &[b'x'; 9000], b"\x07"].concat();
    let (mut splitter, mut signals) = (Splitter::default(), Signals::default());
    splitter.split(&long, |piece| {
        if let Piece::Command(command) = piece {
            signals.command(command);
        }
    });
    let notice = signals.take(Instant::now()).pop().expect("it is found");
    assert!(notice.title.len() <= Notice::MAX_TEXT_BYTES && notice.body.len() == Notice::MAX_TEXT_BYTES);
}

#[test]
fn progress_is_told_when_it_begins_and_when_it_is_over() {
    let mut signals = Signals::default();
    let mut now = Instant::now();
    let mut says = |command: &[u8]| {
        now += TURN;
        signals.command(command);
        signals.take(now).into_iter().map(|notice| notice.state).collect::<Vec<_>>()
    };
    assert_eq!(says(b"\x1b]9;4;1;10\x07"), [Notice::WORKING]);
    assert_eq!(says(b"\x1b]9;4;1;20\x07"), [0_u8; 0]);
    assert_eq!(says(b"\x1b]9;4;0\x07"), [Notice::NOTHING]);
}

#[test]
fn the_end_of_progress_is_told_however_much_was_said_before() {
    let mut signals = Signals::default();
    let now = Instant::now();
    let mut told = Vec::new();
    for _ in 0..2 * MAX_IN_TURN {
        for command in [&b"\x1b]9;4;1;10\x07"[..], b"\x1b]9;4;0\x07"] {
            signals.command(command);
            told.extend(signals.take(now).into_iter().map(|notice| notice.state));
        }
    }
    assert!(told.len() <= 2 * MAX_IN_TURN as usize, "{told:?}");
    assert_eq!(told.last(), Some(&Notice::NOTHING));
}

/// All that is found, of whatever number: each command has a turn of its own.
fn heard<'a>(portions: impl IntoIterator<Item = &'a [u8]>) -> Vec<Found> {
    let (mut splitter, mut signals) = (Splitter::default(), Signals::default());
    let (mut now, mut all) = (Instant::now(), Vec::new());
    for portion in portions {
        splitter.split(portion, |piece| match piece {
            Piece::Text(text) | Piece::Control(text) => signals.text(text),
            Piece::Command(command) => {
                signals.command(command);
                now += TURN;
                all.extend(signals.take(now));
            }
            Piece::Other => {}
        });
    }
    all.extend(signals.take(now + TURN));
    all.into_iter().map(|n| (n.source, n.state, format!("{}|{}", n.title, n.body))).collect()
}

fn waiting(source: u8, text: &str) -> Found {
    (source, Notice::WAITING, text.to_owned())
}

#[test]
fn a_bell_that_ends_a_command_is_none_and_one_after_it_is() {
    for command in [&b"\x1b]0;title\x07"[..], b"\x1b]9;4;0\x07", b"\x1b]52;c;aGk=\x07", b"\x1b]\x07"] {
        assert_eq!(heard([command]), [], "{}", command.escape_ascii());
        let rung = [command, b"\x07"].concat();
        assert_eq!(heard([&rung[..]]), [waiting(Notice::BELL, "|")], "{}", rung.escape_ascii());
    }
}

#[test]
fn what_a_window_is_called_is_no_notice_whatever_it_says() {
    for number in ["0", "1", "2", "l", "L", "21"] {
        let title = format!("\x1b]{number};claude is waiting for you\x1b\\");
        assert_eq!(heard([title.as_bytes()]), [], "{number}");
    }
}

#[test]
fn only_what_ends_a_string_in_a_terminal_for_utf_8_ends_it_here() {
    let one = |output: &[u8]| heard([output]);
    assert_eq!(one(b"\x1b]9;seven bits\x1b\\"), [waiting(Notice::OSC9, "|seven bits")]);
    // The last byte of the check mark is what one byte of eight bits would end a string with.
    assert_eq!(one("\x1b]9;done ✓ really\x07".as_bytes()), [waiting(Notice::OSC9, "|done ✓ really")]);
    assert_eq!(one(b"\x1b]9;a\x9cb\x07"), [waiting(Notice::OSC9, "|a\u{fffd}b")]);
    assert_eq!(one(b"\x9d9;not begun\x9c"), []);
    assert_eq!(one(b"\x9d9;not begun\x07"), [waiting(Notice::BELL, "|")], "it is a text, and a bell");
}

#[test]
fn a_command_that_is_never_ended_says_nothing_and_what_breaks_it_off_is_heard() {
    assert_eq!(heard([&b"\x1b]9;never ended"[..]]), []);
    assert_eq!(heard([&b"\x1b]9;never ended\x1b"[..]]), []);
    assert_eq!(heard([&b"\x1b]9;one\x1b]9;two\x07"[..]]), [waiting(Notice::OSC9, "|two")]);
    assert_eq!(heard([&b"\x1b]9;one\x18\x07"[..]]), [waiting(Notice::BELL, "|")]);
    assert_eq!(heard([&b"\x1bPq\x1b]777;notify;a;b\x1b\\"[..]]), [waiting(Notice::OSC777, "a|b")]);
}

#[test]
fn a_command_without_end_is_no_notice_and_the_next_one_is_heard() {
    let endless = vec![b'x'; 1 << 20];
    for (begin, end) in
        [("\x1b]9;", "\x07"), ("\x1b]9;", "\x1b\\"), ("\x1b]777;notify;", "\x18"), ("\x1bP", "\x1b\\")]
    {
        let output = [begin.as_bytes(), &endless, end.as_bytes(), b"\x1b]9;next\x07"].concat();
        assert_eq!(heard(output.chunks(4096)), [waiting(Notice::OSC9, "|next")], "{begin:?} {end:?}");
    }
}

#[test]
fn what_is_wrapped_for_a_tmux_that_is_not_there_is_heard_as_a_terminal_would_hear_it() {
    let want = [waiting(Notice::OSC9, "|which?")];
    assert_eq!(heard([&b"\x1bPtmux;\x1b\x1b]9;which?\x07\x1b\\"[..]]), want);
    assert_eq!(heard([&b"\x1bPtmux;\x1b\x1bPtmux;\x1b\x1b\x1b\x1b]9;which?\x07\x1b\x1b\\\x1b\\"[..]]), want);
    assert_eq!(heard([&b"\x1bP\x1b]9;which?\x07\x1b\\"[..]]), want, "screen's");
}

/// Beginnings, ends, whole escapes and what may stand between them.
const FRAGMENTS: &[&[u8]] = &[
    b"\x1b]9;",
    b"\x1b]99;",
    b"\x1b]99;i=1:d=0;",
    b"\x1b]99;i=1:p=body;",
    b"\x1b]777;notify;",
    b"\x1b]0;",
    b"\x1b]9;4;3",
    b"\x1b]9;4;0",
    b"\x1b]",
    b"\x1b[",
    b"\x1b[1;2m",
    b"\x1bP",
    b"\x1bPtmux;\x1b",
    b"\x1b_",
    b"\x1b(",
    b"\x1b",
    b"\x1b\\",
    b"\x07",
    b"\x18",
    b"\x1a",
    b"\x9c",
    b"\x9d9;",
    b"\xc2\x9c",
    b"a;b",
    b";",
    b"text",
    "✓数".as_bytes(),
    b"\xe2\x9c",
    b"\n",
];

fn fragment() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::sample::select(FRAGMENTS).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 1..6),
    ]
}

/// Output, and where it is cut.
fn cut_output() -> impl Strategy<Value = (Vec<u8>, Vec<usize>)> {
    let output = prop::collection::vec(fragment(), 0..24).prop_map(|parts| parts.concat());
    output.prop_flat_map(|output| {
        let cuts = prop::collection::vec(0..=output.len(), 0..12);
        (Just(output), cuts)
    })
}

proptest! {
    /// However the output is cut, the same is heard in it.
    #[test]
    fn cuts_change_nothing((output, mut cuts) in cut_output()) {
        let whole = heard([&output[..]]);
        prop_assert_eq!(&heard(output.chunks(1)), &whole);
        cuts.sort_unstable();
        cuts.push(output.len());
        let mut begun = 0;
        let portions = cuts.iter().map(|end| &output[std::mem::replace(&mut begun, *end)..*end]);
        prop_assert_eq!(heard(portions), whole);
    }

    /// What is whole is heard wherever it is cut.
    #[test]
    fn each_escape_is_heard_however_it_is_cut(cuts in prop::collection::vec(1_usize..9, 60)) {
        let mut rest: &[u8] =
            b"a\x1b]9;one\x1b\\b\x1b]99;i=1:d=0;t\x1b\\\x1b]99;i=1:p=body;b\x07\x1b]777;notify;x;y\x07\x1b]9;4;3\x07\x07";
        let mut portions = Vec::new();
        for cut in cuts {
            let (portion, after) = rest.split_at(cut.min(rest.len()));
            portions.push(portion);
            rest = after;
        }
        portions.push(rest);
        let want = [
            waiting(Notice::OSC9, "|one"),
            waiting(Notice::OSC99, "t|b"),
            waiting(Notice::OSC777, "x|y"),
            (Notice::PROGRESS, Notice::WORKING, "|".to_owned()),
            waiting(Notice::BELL, "|"),
        ];
        prop_assert_eq!(heard(portions), want);
    }
}
