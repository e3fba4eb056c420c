use proptest::prelude::*;

use super::*;
use super::super::split::{Piece, Splitter};

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

proptest! {
    /// However the output is cut, the same is found in it.
    #[test]
    fn cuts_change_nothing(cuts in prop::collection::vec(1_usize..9, 60)) {
        let output: &[u8] =
            b"a\x1b]9;one\x1b\\b\x1b]99;i=1:d=0;t\x1b\\\x1b]99;i=1:p=body;b\x07\x1b]777;notify;x;y\x07\x1b]9;4;3\x07\x07";
        let mut rest = output;
        let mut portions = Vec::new();
        for cut in cuts {
            let (portion, after) = rest.split_at(cut.min(rest.len()));
            portions.push(portion);
            rest = after;
        }
        portions.push(rest);
        prop_assert_eq!(found(portions), found([output]));
    }
}
