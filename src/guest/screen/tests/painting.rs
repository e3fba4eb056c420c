//! What a painting brings back, mode by mode, and at the sizes that matter.

use alacritty_terminal::term::TermMode;

use super::super::emulator::Emulator;
use super::super::model::{ScreenModel, Vterm};
use crate::guest::wire;

const SIZE: wire::Size = wire::Size { cols: 80, rows: 24 };

fn model(output: &[u8]) -> Vterm {
    let mut model = Vterm::new(SIZE, 1000);
    model.process(output);
    model
}

fn painted(output: &[u8]) -> Emulator {
    Emulator::show(SIZE, &model(output).redraw(0))
}

/// Paints on a terminal on which everything is otherwise, as one that fell behind.
fn painted_over(output: &[u8], dirt: &[u8]) -> Emulator {
    let mut emulator = Emulator::show(SIZE, dirt);
    emulator.feed(&model(output).redraw(0));
    emulator
}

#[test]
fn every_mode_comes_back_and_is_off_again_when_the_program_switched_it_off() {
    for (on, off, mode) in [
        ("\x1b[?1h", "\x1b[?1l", TermMode::APP_CURSOR),
        ("\x1b=", "\x1b>", TermMode::APP_KEYPAD),
        ("\x1b[?1000h", "\x1b[?1000l", TermMode::MOUSE_REPORT_CLICK),
        ("\x1b[?1002h", "\x1b[?1002l", TermMode::MOUSE_DRAG),
        ("\x1b[?1003h", "\x1b[?1003l", TermMode::MOUSE_MOTION),
        ("\x1b[?1006h", "\x1b[?1006l", TermMode::SGR_MOUSE),
        ("\x1b[?1004h", "\x1b[?1004l", TermMode::FOCUS_IN_OUT),
        ("\x1b[?2004h", "\x1b[?2004l", TermMode::BRACKETED_PASTE),
        ("\x1b[4h", "\x1b[4l", TermMode::INSERT),
        ("\x1b[?6h", "\x1b[?6l", TermMode::ORIGIN),
        ("\x1b[20h", "\x1b[20l", TermMode::LINE_FEED_NEW_LINE),
        ("\x1b[>1u", "\x1b[<u", TermMode::DISAMBIGUATE_ESC_CODES),
        ("\x1b[?1049h", "\x1b[?1049l", TermMode::ALT_SCREEN),
    ] {
        let plain = painted(b"").mode();
        assert!(!plain.contains(mode));
        assert_eq!(painted(on.as_bytes()).mode(), plain | mode, "{}", on.escape_debug());
        let undone = format!("{on}{off}");
        assert_eq!(painted(undone.as_bytes()).mode(), plain, "{}", off.escape_debug());
        assert_eq!(
            painted_over(undone.as_bytes(), on.as_bytes()).mode(),
            plain,
            "left: {}",
            on.escape_debug()
        );
    }
    assert!(!painted(b"\x1b[?25l").mode().contains(TermMode::SHOW_CURSOR));
    assert!(!painted(b"\x1b[?7l").mode().contains(TermMode::LINE_WRAP));
    assert!(!painted(b"\x1b[?1007l").mode().contains(TermMode::ALTERNATE_SCROLL));
}

#[test]
fn a_full_screen_program_comes_back_with_the_shell_under_it() {
    let output = b"$ vi\r\n\x1b[?1049h\x1b[?1h\x1b=\x1b[2;23r\x1b[5 q\x1b[?1002;1006h\x1b]2;vi \xe5\xa5\xbd\x07\x1b[H~ file\x1b[3;5H";
    let mut emulator = painted(output);
    assert_eq!(emulator.text(0)[0], "~ file");
    assert_eq!(emulator.title().as_deref(), Some("Title(vi 好)"));
    assert_eq!(emulator.snapshot(0), Emulator::show(SIZE, output).snapshot(0));
    emulator.feed(b"\x1b[23;1H\nlast\x1b[?1049l\x1b[r");
    let text = emulator.text(0);
    assert_eq!((text[0].as_str(), text[1].as_str()), ("$ vi", ""));
    let shape = model(output).redraw(0);
    assert!(shape.windows(5).any(|w| w == b"\x1b[5 q"));
}

#[test]
fn queries_are_never_painted_and_nothing_is_answered() {
    let queries: [&[u8]; 16] = [
        b"\x1b[c",
        b"\x1b[>c",
        b"\x1b[=c",
        b"\x1b[5n",
        b"\x1b[6n",
        b"\x1b[?6n",
        b"\x1b[>q",
        b"\x1b]10;?\x07",
        b"\x1b]11;?\x1b\\",
        b"\x1b]4;1;?\x07",
        b"\x1b[?2026$p",
        b"\x1b[4$p",
        b"\x1b[?u",
        b"\x1bP+q544e;524742\x1b\\",
        b"\x1bP$qm\x1b\\",
        b"\x1b[18t",
    ];
    let mut output = b"$ ".to_vec();
    queries.iter().for_each(|query| output.extend_from_slice(query));
    output.extend_from_slice(b"\x1b]52;c;?\x07\x1b[?996n\x1b[14t\x1b[21t");
    let painting = model(&output).redraw(1000);
    assert_eq!(Emulator::show(SIZE, &painting).events(), Vec::<String>::new());
    assert_eq!(
        painting,
        model(b"$ ").redraw(1000),
        "a screen that was asked is painted like one that was not"
    );
}

#[test]
fn a_painting_ends_what_a_terminal_that_fell_behind_was_in_the_middle_of() {
    for half in ["\x1b[38;5", "\x1b]2;half a tit", "\x1bPq#0;2", "\x1b", "\x1b_Gf=100"] {
        let emulator = painted_over(b"whole", half.as_bytes());
        assert_eq!(emulator.text(0)[0], "whole", "{}", half.escape_debug());
    }
    let mut emulator = Emulator::show(SIZE, b"\xf0\x9f");
    emulator.feed(&model(b"whole").redraw(0));
    assert_eq!(emulator.text(0)[0], "whole");
}

#[test]
fn long_coloured_output_of_wide_characters_comes_back_line_by_line() {
    let mut model = model(b"");
    let mut want = Vec::new();
    for line in 0..9000 {
        let text = format!("{line:5} 漢字かな交じり文 한국어 😀🎉 ÄÖÜ");
        model.process(
            format!("\x1b[38;5;{}m{text}\x1b[48;2;1;2;{}m!\x1b[0m\r\n", line % 256, line % 256).as_bytes(),
        );
        want.push(format!("{text}!"));
    }
    model.process(b"$ ");
    let painting = model.redraw(1000);
    let mut emulator = Emulator::new(SIZE);
    emulator.feed(&painting);
    let mut shown = emulator.text(1000);
    assert_eq!(shown.pop().as_deref(), Some("$"));
    assert_eq!(emulator.history(), 1000);
    assert_eq!(shown, want[9000 - 1023..]);
    let screen = model.peek(1000);
    assert_eq!((screen.scrollback, screen.row, screen.column), (1000, 23, 2));
    assert_eq!(screen.lines[..1023], want[9000 - 1023..]);
    let few = Emulator::show(SIZE, &model.redraw(10));
    assert_eq!(few.history(), 10, "only as many lines as were asked for");
}

#[test]
fn no_character_is_lost_where_long_text_is_cut() {
    let line = "好".repeat(40);
    for shift in 0..4 {
        let mut model = model("x".repeat(shift).as_bytes());
        model.process(format!("\r\n{line}{line}").repeat(100).as_bytes());
        assert_eq!(model.peek(1000).lines.iter().filter(|shown| **shown == line).count(), 200);
    }
}

#[test]
fn a_resize_keeps_the_lines_and_paints_for_the_new_size() {
    let line = "0123456789".repeat(8);
    let mut model = model(format!("{line}\r\n好{line}\r\n$ ").as_bytes());
    model.resize(wire::Size { cols: 40, rows: 10 });
    model.resize(wire::Size { cols: 80, rows: 24 });
    let screen = model.peek(1000);
    assert_eq!(screen.lines[..2], [line.clone(), format!("好{}", &line[..78])]);
    let size = wire::Size { cols: 33, rows: 7 };
    model.resize(size);
    let emulator = Emulator::show(size, &model.redraw(0));
    assert_eq!(emulator.text(0), model.peek(0).lines);
    let mut resized = Emulator::show(SIZE, &model.redraw(0));
    resized.resize(size);
    model.resize(wire::Size { cols: 0, rows: 0 });
    model.process("好好\r\n".as_bytes());
    assert_eq!(model.peek(5).size, wire::Size { cols: 1, rows: 1 });
}

#[test]
fn a_peek_tells_text_cursor_and_title() {
    let screen = model(b"\x1b]0;a\xc2\x9bb\x07one\r\n  two \x1b[31m- *\x1b[0m\r\n\x1b[?25l\x1b[5;7H").peek(0);
    assert_eq!(screen.lines[..3], ["one", "  two - *", ""]);
    assert_eq!((screen.lines.len(), screen.row, screen.column), (24, 4, 6));
    assert_eq!((screen.title.as_str(), screen.cursor_visible, screen.alternate), ("ab", false, false));
    let screen = model(b"shell\x1b[?1049h\x1b[2;3Hfull").peek(100);
    assert_eq!((screen.lines[1].as_str(), screen.scrollback, screen.alternate), ("  full", 0, true));
}

#[test]
fn keyboard_protocols_and_synchronized_output_come_back() {
    let output = b"\x1b[>1u\x1b[>4;2m\x1b[?1049h\x1b[>5u\x1b[?2026h";
    let painting = String::from_utf8(model(output).redraw(0)).unwrap();
    assert!(painting.ends_with("\x1b[<99u\x1b[>5u\x1b[>4;2m\x1b[?2026h"), "{}", painting.escape_debug());
    let mut emulator = painted(&output[..output.len() - 8]);
    assert!(emulator.mode().contains(TermMode::DISAMBIGUATE_ESC_CODES | TermMode::REPORT_ALTERNATE_KEYS));
    emulator.feed(b"\x1b[<u\x1b[?1049l");
    assert!(emulator.mode().contains(TermMode::DISAMBIGUATE_ESC_CODES));
    emulator.feed(b"\x1b[<u");
    assert!(!emulator.mode().intersects(TermMode::KITTY_KEYBOARD_PROTOCOL));
}

#[test]
fn hostile_output_costs_neither_memory_nor_much_time() {
    let started = std::time::Instant::now();
    let mut model = model(b"");
    let link = format!("\x1b]8;;{}\x07", "x".repeat(2000));
    for part in [
        "\x1b[65535b",
        "a\x1b[65535b",
        "\x1b[65535L",
        "\x1b[65535S",
        "\x1b[65535@",
        "\x1b[65535I",
        "e\u{301}",
        link.as_str(),
    ] {
        model.process(part.repeat(300).as_bytes());
    }
    model.process(&vec![0xff; 1 << 20]);
    model.process(&vec![b'x'; 1 << 20]);
    model.process(format!("\x1b]0;{}", "t".repeat(1 << 22)).as_bytes());
    assert!(model.redraw(1000).len() < 1 << 20);
    assert!(started.elapsed() < std::time::Duration::from_secs(30), "{:?}", started.elapsed());
}

#[test]
fn a_cursor_saved_on_an_earlier_visit_to_the_alternate_screen_is_forgotten_by_painter_and_painted_alike() {
    for back in ["\x1b[?1049l", "\x1b[?25h\x1b[?1049l", "\x1bc"] {
        let before = format!("\x1b[?1049h\x1b[2;9H\x1b(0\x1b[1m\x1b7{back}\r\nab");
        let mut direct = model(before.as_bytes());
        let mut painted = model(&direct.redraw(100));
        for model in [&mut direct, &mut painted] {
            model.process(b"\x1b[?1049h\x1b8*");
        }
        assert_eq!(painted.peek(0), direct.peek(0), "{back:?}");
    }
}
