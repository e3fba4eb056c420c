//! Styles that the model's crate does not keep apart, written as others that it does.
//!
//! It has one weight for a character, bold or faint, where terminals have both; and it takes the first sixteen of the 256
//! colours for the plain ones, which some terminals brighten in bold. So faint is given to it as framed, which no terminal
//! shows, and those colours as RGB. In what it paints they are put back.

/// Red and green of what stands for one of the first sixteen colours; its number is the blue.
const STANDS: (u16, u16) = (2, 1);

/// A program's own colour that looks like that has this green instead, which nobody sees.
const OTHER_GREEN: u16 = 2;

/// Returns what to give to the model in place of this control sequence, if that is not itself.
pub(super) fn for_model(sequence: &[u8]) -> Option<Vec<u8>> {
    let body = sequence.strip_prefix(b"\x1b[")?.strip_suffix(b"m")?;
    // All that is replaced has one of these digits in it.
    if !body.iter().any(|b| matches!(b, b'2' | b'5')) {
        return None;
    }
    let plain = |b: &u8| b.is_ascii_digit() || matches!(b, b';' | b':');
    let text = std::str::from_utf8(body).ok().filter(|_| body.iter().all(plain))?;
    let mut parts = text.split(';');
    let mut out: Vec<String> = Vec::new();
    while let Some(part) = parts.next() {
        match part.parse().unwrap_or(u16::MAX) {
            2 => out.push("51".to_owned()),
            22 => out.push("22;54".to_owned()),
            51 | 52 | 54 => {}
            kind @ (38 | 48) => out.push(colour(kind, &mut parts)),
            58 => out.push(format!("58;{}", arguments(&mut parts).join(";"))),
            _ if part.starts_with("38:") || part.starts_with("48:") => out.push(colon_colour(part)),
            _ => out.push(part.to_owned()),
        }
    }
    // Without anything it would be a reset.
    Some(if out.is_empty() { Vec::new() } else { format!("\x1b[{}m", out.join(";")).into_bytes() })
}

/// What belongs to a colour whose number came before.
fn arguments<'a>(parts: &mut impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let Some(how) = parts.next() else { return Vec::new() };
    let more = match how {
        "5" => 1,
        "2" => 3,
        _ => 0,
    };
    std::iter::once(how).chain(parts.take(more)).collect()
}

fn colour<'a>(kind: u16, parts: &mut impl Iterator<Item = &'a str>) -> String {
    let all = arguments(parts);
    replaced(kind, &all).unwrap_or_else(|| format!("{kind};{}", all.join(";")))
}

/// `38:5:n`, `38:2:r:g:b`, or with a colour space between.
fn colon_colour(part: &str) -> String {
    let all: Vec<&str> = part.split(':').collect();
    let how = match all.as_slice() {
        [_, "2", _, r, g, b, ..] | [_, "2", r, g, b] => vec!["2", r, g, b],
        [_, rest @ ..] => rest.to_vec(),
        [] => Vec::new(),
    };
    let kind = if part.starts_with('3') { 38 } else { 48 };
    replaced(kind, &how).unwrap_or_else(|| part.to_owned())
}

fn replaced(kind: u16, how: &[&str]) -> Option<String> {
    let number = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u16>().ok() };
    let (red, green) = STANDS;
    match *how {
        ["5", index] => {
            let index = number(index).filter(|n| *n < 16)?;
            Some(format!("{kind};2;{red};{green};{index}"))
        }
        ["2", r, g, b] if (number(r)?, number(g)?) == STANDS => {
            let blue = number(b).filter(|n| *n < 16)?;
            Some(format!("{kind};2;{red};{OTHER_GREEN};{blue}"))
        }
        _ => None,
    }
}

/// Puts back in what the model painted what stands for something else.
pub(super) fn put_back(painting: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(painting.len());
    let (mut weight, mut rest) = (Weight::default(), painting);
    while let Some(at) = rest.iter().position(|b| *b == 0x1b) {
        let (text, sequence) = rest.split_at(at);
        out.extend_from_slice(text);
        let plain = |b: &&u8| b.is_ascii_digit() || matches!(b, b';' | b':');
        let body = sequence.strip_prefix(b"\x1b[").unwrap_or_default();
        let body = &body[..body.iter().take_while(plain).count()];
        rest = &sequence[1..];
        if sequence.get(1) == Some(&b'[') && sequence.get(2 + body.len()) == Some(&b'm') {
            weight.write(body, &mut out);
            rest = &sequence[body.len() + 3..];
        } else {
            out.push(0x1b);
        }
    }
    out.extend_from_slice(rest);
    out
}

/// What of the two is on: one sequence switches both off.
#[derive(Debug, Default)]
struct Weight {
    bold: bool,
    faint: bool,
}

impl Weight {
    fn write(&mut self, body: &[u8], out: &mut Vec<u8>) {
        let text = String::from_utf8_lossy(body);
        let mut parts = text.split(';');
        let mut all: Vec<String> = Vec::new();
        while let Some(part) = parts.next() {
            match part {
                "" | "0" => *self = Self::default(),
                "1" => self.bold = true,
                "22" => self.bold = false,
                "51" => self.faint = true,
                "54" => self.faint = false,
                _ => {}
            }
            match part {
                "51" => all.push("2".to_owned()),
                "22" | "54" => {
                    all.push("22".to_owned());
                    all.extend(self.bold.then(|| "1".to_owned()));
                    all.extend(self.faint.then(|| "2".to_owned()));
                }
                "38" | "48" | "58" => all.push(stood_for(part, &arguments(&mut parts))),
                _ => all.push(part.to_owned()),
            }
        }
        out.extend_from_slice(format!("\x1b[{}m", all.join(";")).as_bytes());
    }
}

fn stood_for(kind: &str, how: &[&str]) -> String {
    let number = |text: &str| text.parse::<u16>().ok();
    match *how {
        ["2", r, g, index]
            if kind != "58"
                && (number(r), number(g)) == (Some(STANDS.0), Some(STANDS.1))
                && number(index).is_some_and(|n| n < 16) =>
        {
            format!("{kind};5;{index}")
        }
        _ => format!("{kind};{}", how.join(";")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(sequence: &str) -> String {
        let bytes = for_model(sequence.as_bytes()).unwrap_or_else(|| sequence.as_bytes().to_vec());
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn what_the_model_would_mix_up_is_given_to_it_as_something_else() {
        for (from, to) in [
            ("\x1b[m", "\x1b[m"),
            ("\x1b[1;31m", "\x1b[1;31m"),
            ("\x1b[1;2m", "\x1b[1;51m"),
            ("\x1b[22;3m", "\x1b[22;54;3m"),
            ("\x1b[38;5;9;48;5;123m", "\x1b[38;2;2;1;9;48;5;123m"),
            ("\x1b[48:5:15;2m", "\x1b[48;2;2;1;15;51m"),
            ("\x1b[38;2;2;1;3m", "\x1b[38;2;2;2;3m"),
            ("\x1b[38:2::2:1:3m", "\x1b[38;2;2;2;3m"),
            ("\x1b[38:2:9:8:7m", "\x1b[38:2:9:8:7m"),
            ("\x1b[38;2;2;1;99m", "\x1b[38;2;2;1;99m"),
            ("\x1b[58;5;2;4m", "\x1b[58;5;2;4m"),
            ("\x1b[52m", ""),
            ("\x1b[38;5m", "\x1b[38;5m"),
            ("\x1b[>4;2m", "\x1b[>4;2m"),
        ] {
            assert_eq!(given(from), to, "{}", from.escape_debug());
        }
    }

    #[test]
    fn it_is_put_back_and_what_else_is_on_stays() {
        let put = |painting: &str| String::from_utf8(put_back(painting.as_bytes())).unwrap();
        assert_eq!(put("a\x1b[1;51mb\x1b[54mc"), "a\x1b[1;2mb\x1b[22;1mc");
        assert_eq!(put("\x1b[1m\x1b[51m\x1b[22;4:3md"), "\x1b[1m\x1b[2m\x1b[22;2;4:3md");
        assert_eq!(put("\x1b[1m\x1b[m\x1b[54m"), "\x1b[1m\x1b[m\x1b[22m");
        assert_eq!(
            put("\x1b[48;2;2;1;4;58;5;2m\x1b[38;2;2;1;16m\x1b"),
            "\x1b[48;5;4;58;5;2m\x1b[38;2;2;1;16m\x1b"
        );
        assert_eq!(put("\x1b]0;51m\x07\x1b[1;2H\x1b[?51m"), "\x1b]0;51m\x07\x1b[1;2H\x1b[?51m");
    }
}
