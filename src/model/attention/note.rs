//! Text from inside a sandbox as one line that anybody can be shown.

/// Longest line, in bytes.
const MAX_BYTES: usize = 512;

/// Characters that turn the direction of what stands around them.
fn turns(c: char) -> bool {
    matches!(u32::from(c), 0x061C | 0x200E | 0x200F | 0x2028..=0x202E | 0x2066..=0x2069)
}

/// Title and text of a notification in one line, without what could act on a terminal; none where nothing is left.
pub fn note(title: &str, body: &str) -> Option<String> {
    let (title, body) = (one_line(title), one_line(body));
    let mut line = match (title.as_str(), body.as_str()) {
        ("", text) | (text, "") => text.to_owned(),
        (title, body) => format!("{title}: {body}"),
    };
    line.truncate(line.floor_char_boundary(MAX_BYTES));
    line.truncate(line.trim_end().len());
    Some(line).filter(|line| !line.is_empty())
}

fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control() || turns(c));
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::note;

    #[test]
    fn a_line_has_no_control_characters_and_an_end() {
        let line = |title, body| note(title, body).unwrap_or_default();
        assert_eq!(line("claude", "needs\n\u{1b}[2J you\u{202e}r  key"), "claude: needs [2J you r key");
        assert_eq!((line("", "text"), line("title", " ")), ("text".to_owned(), "title".to_owned()));
        assert_eq!(note("\u{7}", "\u{9b}"), None);
        let long = line("", &"数".repeat(1000));
        assert!(long.len() <= 512 && long.chars().all(|c| c == '数'), "{}", long.len());
    }
}
