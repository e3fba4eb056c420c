//! Remembers what a program has set in its terminal that the screen model does not know, or does not put back.
//!
//! Restoring is in two parts, around what the model paints: [`Modes::before`] puts an outer terminal, in whatever state
//! it is, to where the model expects it; [`Modes::after`] sets what goes with the screen that was painted. Only what the
//! program touched is named, so a terminal that knows less than others hears nothing new.

/// Private modes that only we remember: reverse video, X10 and highlight mouse reports, numeric keypad, backarrow key,
/// wheel as arrows, meta and alt keys, synchronized output, clusters of characters, colour scheme reports, Win32 input.
///
/// In-band size reports (2048) are not among them: a terminal answers at once when they are switched on.
const PRIVATE: [u16; 14] = [5, 9, 66, 67, 1001, 1007, 1034, 1035, 1036, 1039, 2026, 2027, 2031, 9001];

/// Kinds of mouse reports, then their encodings. Of each, most terminals have the one that was set last, or none when that
/// was unset; the model keeps them apart, and does not know the order.
const MOUSE: [&[u16]; 2] = [&[9, 1000, 1001, 1002, 1003], &[1005, 1006, 1015, 1016]];

/// Resources of `CSI > Ps ; Pv m`, xterm's key modifier options; 4 is modifyOtherKeys.
const KEY_RESOURCES: usize = 8;

/// Most keyboard states that are remembered per screen. Terminals forget the oldest past some such number, too.
const MAX_KEYBOARDS: usize = 32;

/// Pops more keyboard states than there are, which leaves a terminal with none and all flags off.
const POP_ALL_KEYBOARDS: &[u8] = b"\x1b[<99u";

/// Numbers of the dynamic colours, from OSC 10 to OSC 19.
const DYNAMIC_COLOURS: std::ops::Range<usize> = 10..20;

/// The private mode of the alternate screen that saves and restores the main screen's cursor with it.
const RESTORING: u16 = 1049;

/// Whether a sequence leaves the alternate screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// It does, and the cursor will be as the main screen has it saved, whatever is done to it before.
    WithCursorRestored,
    /// It does not, or not so.
    Otherwise,
}

/// What is known beside the model. `None` is never touched.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Modes {
    private: [Option<bool>; PRIVATE.len()],
    mouse: [Exclusive; MOUSE.len()],
    newline: Option<bool>,
    key_resources: [Option<Option<u16>>; KEY_RESOURCES],
    keyboards: [Keyboard; 2],
    keyboard_touched: bool,
    cursor_touched: bool,
    tabs_touched: bool,
    palette_touched: bool,
    dynamic_touched: [bool; 10],
    alternate: bool,
}

/// Modes of which one at most is in force.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Exclusive {
    touched: Vec<u16>,
    set: Option<u16>,
}

impl Exclusive {
    fn change(&mut self, mode: u16, on: bool) {
        if !self.touched.contains(&mode) {
            self.touched.push(mode);
        }
        if on {
            self.set = Some(mode);
        } else if self.set == Some(mode) {
            self.set = None;
        }
    }

    /// One alone the model puts back itself.
    fn restore(&self, out: &mut Vec<u8>) {
        if self.touched.len() > 1 {
            for mode in self.touched.iter().filter(|mode| self.set != Some(**mode)) {
                out.extend_from_slice(format!("\x1b[?{mode}l").as_bytes());
            }
            if let Some(mode) = self.set {
                out.extend_from_slice(format!("\x1b[?{mode}h").as_bytes());
            }
        }
    }
}

/// The kitty keyboard protocol's state of one screen.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Keyboard {
    base: u16,
    pushed: Vec<u16>,
}

impl Keyboard {
    fn push(&mut self, flags: u16) {
        if self.pushed.len() == MAX_KEYBOARDS {
            self.pushed.remove(0);
        }
        self.pushed.push(flags);
    }

    fn pop(&mut self, count: u16) {
        match self.pushed.len().checked_sub(count.into()) {
            Some(left) => self.pushed.truncate(left),
            None => *self = Self::default(),
        }
    }

    /// `CSI = flags ; how u`: 1 sets all, 2 adds, 3 takes away.
    fn set(&mut self, flags: u16, how: u16) {
        let now = self.pushed.last_mut().unwrap_or(&mut self.base);
        match how {
            1 => *now = flags,
            2 => *now |= flags,
            3 => *now &= !flags,
            _ => {}
        }
    }

    fn restore(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(POP_ALL_KEYBOARDS);
        if self.base != 0 {
            out.extend_from_slice(format!("\x1b[={};1u", self.base).as_bytes());
        }
        for flags in &self.pushed {
            out.extend_from_slice(format!("\x1b[>{flags}u").as_bytes());
        }
    }
}

/// A control sequence taken apart.
struct Control<'a> {
    /// One of `<=>?`, or 0.
    private: u8,
    parameters: &'a [u8],
    /// The last byte before the final one, if it is no parameter, or 0.
    intermediate: u8,
    last: u8,
}

impl<'a> Control<'a> {
    fn parse(sequence: &'a [u8]) -> Option<Self> {
        let body = sequence.strip_prefix(b"\x1b[")?;
        let (&last, body) = body.split_last()?;
        let (private, body) = match body.split_first() {
            Some((&private @ 0x3c..=0x3f, rest)) => (private, rest),
            _ => (0, body),
        };
        let digits = |b: &u8| b.is_ascii_digit() || matches!(b, b';' | b':');
        let parameters = &body[..body.iter().take_while(|b| digits(b)).count()];
        let intermediate = body[parameters.len()..].last().copied().unwrap_or(0);
        Some(Self { private, parameters, intermediate, last })
    }

    /// Parameters as numbers; those left out, or too large, are `None`.
    fn numbers(&self) -> impl Iterator<Item = Option<u16>> + use<'a> {
        self.parameters.split(|b| *b == b';').map(|n| std::str::from_utf8(n).ok()?.parse().ok())
    }

    fn number(&self, index: usize, default: u16) -> u16 {
        self.numbers().nth(index).flatten().unwrap_or(default)
    }
}

impl Modes {
    /// Looks at an escape or control sequence; tells whether it leaves the alternate screen.
    pub(super) fn control(&mut self, sequence: &[u8]) -> Left {
        let was_alternate = self.alternate;
        match sequence {
            b"\x1bc" => self.reset(),
            b"\x1bH" => self.tabs_touched = true,
            _ => {
                if let Some(control) = Control::parse(sequence) {
                    self.sequence(&control);
                    let restores = control.numbers().any(|mode| mode == Some(RESTORING));
                    if was_alternate && !self.alternate && restores {
                        return Left::WithCursorRestored;
                    }
                }
            }
        }
        Left::Otherwise
    }

    /// Looks at an operating system command, with its `ESC ]` and its end.
    pub(super) fn command(&mut self, command: &[u8]) {
        let text = &command[2..];
        let end = text.iter().position(|b| matches!(b, 0x07 | 0x18 | 0x1a | 0x1b)).unwrap_or(text.len());
        let mut parameters = text[..end].split(|b| *b == b';');
        let number = parameters.next().and_then(|n| std::str::from_utf8(n).ok()?.parse::<usize>().ok());
        // `?` asks, and changes nothing.
        let sets = |value: &[u8]| value != b"?";
        match number {
            Some(4) => self.palette_touched |= parameters.skip(1).step_by(2).any(sets),
            // One command may go on to the colours that follow.
            Some(first) if DYNAMIC_COLOURS.contains(&first) => {
                let touched = &mut self.dynamic_touched[first - DYNAMIC_COLOURS.start..];
                touched.iter_mut().zip(parameters).for_each(|(touched, value)| *touched |= sets(value));
            }
            _ => {}
        }
    }

    /// Returns what to send before what the model paints.
    pub(super) fn before(&self, columns: u16) -> Vec<u8> {
        // A terminal that fell behind is left within anything; this ends it.
        let mut out = b"\x18\x1b\\".to_vec();
        if self.keyboard_touched {
            // Each screen has its own, and the main one is painted first.
            out.extend_from_slice(b"\x1b[?1049l");
            self.keyboards[0].restore(&mut out);
            if !self.alternate && self.keyboards[1] != Keyboard::default() {
                out.extend_from_slice(b"\x1b[?1049h");
                self.keyboards[1].restore(&mut out);
                out.extend_from_slice(b"\x1b[?1049l");
            }
        }
        if self.cursor_touched {
            out.extend_from_slice(b"\x1b[0 q");
        }
        if self.palette_touched {
            out.extend_from_slice(b"\x1b]104\x1b\\");
        }
        for number in DYNAMIC_COLOURS.filter(|n| self.dynamic_touched[n - DYNAMIC_COLOURS.start]) {
            out.extend_from_slice(format!("\x1b]1{number}\x1b\\").as_bytes());
        }
        if self.newline.is_some() {
            out.extend_from_slice(b"\x1b[20l");
        }
        if self.tabs_touched {
            out.extend_from_slice(b"\x1b[?69l\x1b[3g\r");
            (8..columns).step_by(8).for_each(|_| out.extend_from_slice(b"\x1b[8C\x1bH"));
        }
        out
    }

    /// Returns what to send after what the model painted.
    pub(super) fn after(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.keyboard_touched && self.alternate {
            self.keyboards[1].restore(&mut out);
        }
        for (resource, value) in self.key_resources.iter().enumerate() {
            match value {
                Some(Some(value)) => out.extend_from_slice(format!("\x1b[>{resource};{value}m").as_bytes()),
                Some(None) => out.extend_from_slice(format!("\x1b[>{resource}m").as_bytes()),
                None => {}
            }
        }
        if self.newline == Some(true) {
            out.extend_from_slice(b"\x1b[20h");
        }
        for (mode, on) in PRIVATE.iter().zip(self.private) {
            if let Some(on) = on {
                out.extend_from_slice(format!("\x1b[?{mode}{}", if on { 'h' } else { 'l' }).as_bytes());
            }
        }
        self.mouse.iter().for_each(|modes| modes.restore(&mut out));
        out
    }

    fn sequence(&mut self, control: &Control<'_>) {
        match (control.private, control.intermediate, control.last) {
            (b'?', 0, b'h' | b'l') => {
                control.numbers().flatten().for_each(|mode| self.private(mode, control.last == b'h'));
            }
            (0, 0, b'h' | b'l') if control.numbers().any(|n| n == Some(20)) => {
                self.newline = Some(control.last == b'h');
            }
            (b'>' | b'<' | b'=', 0, b'u') => self.keyboard(control),
            (b'>', 0, b'm' | b'n') => self.key_resource(control),
            (0, b' ', b'q') => self.cursor_touched = true,
            (0 | b'?', 0, b'W') | (0, 0, b'g') => self.tabs_touched = true,
            _ => {}
        }
    }

    fn private(&mut self, mode: u16, on: bool) {
        for (modes, state) in MOUSE.iter().zip(&mut self.mouse) {
            if modes.contains(&mode) {
                state.change(mode, on);
            }
        }
        match mode {
            12 => self.cursor_touched = true,
            47 | 1047 | RESTORING => self.alternate = on,
            _ => {
                if let Some(index) = PRIVATE.iter().position(|known| *known == mode) {
                    self.private[index] = Some(on);
                }
            }
        }
    }

    fn keyboard(&mut self, control: &Control<'_>) {
        self.keyboard_touched = true;
        let keyboard = &mut self.keyboards[usize::from(self.alternate)];
        match control.private {
            b'>' => keyboard.push(control.number(0, 0)),
            b'<' => keyboard.pop(control.number(0, 1).max(1)),
            _ => keyboard.set(control.number(0, 0), control.number(1, 1)),
        }
    }

    /// `CSI > Ps ; Pv m` sets a resource, without a value it resets it, without anything it resets all; with `n` it is
    /// off, which is no value.
    fn key_resource(&mut self, control: &Control<'_>) {
        let resource = control.numbers().next().flatten();
        let value = control.numbers().nth(1).flatten().filter(|_| control.last == b'm');
        match resource {
            Some(resource) => {
                if let Some(known) = self.key_resources.get_mut(usize::from(resource)) {
                    *known = Some(value);
                }
            }
            None => self.key_resources.iter_mut().flatten().for_each(|value| *value = None),
        }
    }

    /// A full reset. What was touched stays so: a terminal that did not see the reset still has it.
    fn reset(&mut self) {
        self.private.iter_mut().flatten().for_each(|on| *on = false);
        self.mouse.iter_mut().for_each(|modes| modes.set = None);
        self.newline = self.newline.map(|_| false);
        self.key_resources.iter_mut().flatten().for_each(|value| *value = None);
        self.keyboards = Default::default();
        self.alternate = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(sequences: &[&str]) -> (String, String) {
        let mut modes = Modes::default();
        for sequence in sequences {
            match sequence.as_bytes() {
                command @ [0x1b, b']', ..] => modes.command(command),
                control => {
                    modes.control(control);
                }
            }
        }
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace('\x1b', "^");
        (text(modes.before(20)).replacen("\x18^\\", "", 1), text(modes.after()))
    }

    #[test]
    fn a_program_that_touched_nothing_needs_nothing() {
        let none = (String::new(), String::new());
        assert_eq!(after(&[]), none);
        assert_eq!(
            after(&["\x1b[?25l", "\x1b[1;31m", "\x1b[?u", "\x1b[>c", "\x1b[?2026$p", "\x1b]0;t\x07"]),
            none
        );
    }

    #[test]
    fn keyboards_of_both_screens_come_back_as_they_were_stacked() {
        let got = after(&[
            "\x1b[>1u",
            "\x1b[>5u",
            "\x1b[=2;2u",
            "\x1b[?1049h",
            "\x1b[=8u",
            "\x1b[>31u",
            "\x1b[>3u",
            "\x1b[<u",
        ]);
        assert_eq!(got, ("^[?1049l^[<99u^[>1u^[>7u".to_owned(), "^[<99u^[=8;1u^[>31u".to_owned()));
        assert_eq!(after(&["\x1b[>1u", "\x1b[<9u"]), ("^[?1049l^[<99u".to_owned(), String::new()));
        let mut modes = Modes::default();
        (0..1000).for_each(|_| {
            modes.control(b"\x1b[>1u");
        });
        assert_eq!(modes.keyboards[0].pushed.len(), MAX_KEYBOARDS);
    }

    #[test]
    fn modes_the_model_does_not_know_are_set_or_unset_as_the_program_left_them() {
        let got = after(&["\x1b[?2026h", "\x1b[?1007;5h", "\x1b[?5l", "\x1b[>4;2m", "\x1b[>1m", "\x1b[20h"]);
        assert_eq!(got.1, "^[>1m^[>4;2m^[20h^[?5l^[?1007h^[?2026h");
        assert_eq!(after(&["\x1b[?2026h", "\x1b[>4;1m", "\x1b[>4n"]).1, "^[>4m^[?2026h");
        assert_eq!(after(&["\x1b[?2026h", "\x1b[>4;1m", "\x1b[>m", "\x1bc"]).1, "^[>4m^[?2026l");
    }

    #[test]
    fn of_the_mouse_reports_those_that_were_set_last_come_back() {
        assert_eq!(after(&["\x1b[?1003h", "\x1b[?1000h", "\x1b[?1006h"]).1, "^[?1003l^[?1000h");
        assert_eq!(after(&["\x1b[?1002h", "\x1b[?1000h", "\x1b[?1000l"]).1, "^[?1002l^[?1000l");
        assert_eq!(after(&["\x1b[?1000;1006h"]).1, "", "one alone the model sets itself");
    }

    #[test]
    fn what_the_model_only_ever_sets_is_first_put_back() {
        let got = after(&["\x1b[3 q", "\x1b]4;1;red\x07", "\x1b]11;#000;#fff\x1b\\", "\x1bH"]);
        assert_eq!(got.0, "^[0 q^]104^\\^]111^\\^]112^\\^[?69l^[3g\r^[8C^H^[8C^H");
    }
}
