//! What a fuzzer gives bytes to: whatever programs write to their terminals.

use super::emulator::Emulator;
use super::model::{ScreenModel, Vterm};
use super::split::{Piece, Splitter};
use super::wire;
use crate::fuzzing::{number, pieces};

/// Lines of scrollback.
const SCROLLBACK: u32 = 40;

/// Most columns and rows: small screens wrap and scroll with few bytes.
const MOST: (u16, u16) = (20, 8);

/// A screen that is resized in between: it can be painted and read at any time, and no painting asks a
/// terminal anything, for the answer would be typed into the program.
pub(crate) fn model(mut data: &[u8]) {
    let (first, second) = (size(&mut data), size(&mut data));
    let (before, after) = data.split_at(usize::from(number(&mut data)).min(data.len()));
    let mut model = Vterm::new(first, SCROLLBACK);
    model.process(before);
    looked_at(&model, first);
    model.resize(second);
    model.process(after);
    looked_at(&model, second);
}

fn size(data: &mut &[u8]) -> wire::Size {
    wire::Size { cols: u16::from(number(data)) % MOST.0 + 1, rows: u16::from(number(data)) % MOST.1 + 1 }
}

fn looked_at(model: &Vterm, size: wire::Size) {
    let painting = model.redraw(SCROLLBACK);
    let emulator = Emulator::show(size, &painting);
    // By its name alone: a title may be any word.
    let asks = |event: &String| {
        let name = event.split('(').next().unwrap_or_default();
        name == "PtyWrite" || name.ends_with("Request")
    };
    assert!(!emulator.events().iter().any(asks), "{:?}", emulator.events());
    let screen = model.peek(SCROLLBACK);
    assert!(screen.lines.len() >= usize::from(size.rows), "{} lines", screen.lines.len());
    assert!(!screen.title.chars().any(char::is_control), "{:?}", screen.title);
    // A second painting of the same screen is the same: reading it changes nothing.
    assert_eq!(model.redraw(SCROLLBACK), painting);
}

/// The cutting into sequences: the same ones however the output is cut, and every byte of text is passed on.
pub(crate) fn splitter(mut data: &[u8]) {
    let length = number(&mut data);
    let whole = split(std::iter::once(data));
    assert_eq!(split(pieces(data, length)), whole, "in pieces of {length} and one");
}

fn split<'d>(pieces: impl Iterator<Item = &'d [u8]>) -> (Vec<(&'static str, Vec<u8>)>, Vec<u8>) {
    let (mut splitter, mut all) = (Splitter::default(), Vec::<(&str, Vec<u8>)>::new());
    for piece in pieces {
        splitter.split(piece, |piece| match piece {
            Piece::Text(text) => match all.last_mut() {
                Some(("text", last)) => last.extend_from_slice(text),
                _ => all.push(("text", text.to_vec())),
            },
            Piece::Control(sequence) => all.push(("control", sequence.to_vec())),
            Piece::Command(command) => all.push(("command", command.to_vec())),
            Piece::Other => all.push(("other", Vec::new())),
        });
    }
    (all, splitter.held().to_vec())
}
