//! Identities: sessions, snapshots, names and instants.

use std::fmt;

use unicode_normalization::UnicodeNormalization;

/// Longest session name, in bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 128;

macro_rules! text_id {
    ($(#[doc = $doc:literal])+ $name:ident) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// Takes an id that was made or stored earlier.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id! {
    /// A session's id: a UUIDv7 in its usual text form.
    SessionId
}
text_id! {
    /// A snapshot's id: a UUIDv7 in its usual text form. Stands in the image's labels and tag.
    SnapshotId
}

text_id! {
    /// A command's id: a UUIDv7 in its usual text form.
    ExecId
}

/// Milliseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// This instant and `ms` milliseconds more, without wrapping.
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)))
    }

    /// This instant and `ms` milliseconds less, without wrapping.
    pub fn minus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX)))
    }
}

/// A session's name that keeps the rules: printable Unicode in NFC without `/`, 1 to 128 bytes, no control
/// characters, no leading `-` or `.`, no white space at the ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionName(String);

/// Which rule a name breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Nothing there.
    #[error("a session name cannot be empty")]
    Empty,
    /// Longer than [`MAX_NAME_BYTES`].
    #[error("a session name has at most {MAX_NAME_BYTES} bytes, this one has {0}")]
    TooLong(usize),
    /// A control, format, private or unassigned character.
    #[error("a session name cannot contain the character U+{0:04X}")]
    Unprintable(u32),
    /// A slash.
    #[error("a session name cannot contain '/'")]
    Slash,
    /// Looks like an option or a hidden file.
    #[error("a session name cannot begin with '{0}'")]
    Leading(char),
    /// White space at an end.
    #[error("a session name cannot begin or end with white space")]
    Space,
}

impl SessionName {
    /// Checks a name and brings it to NFC, so that two spellings of one name are one session.
    ///
    /// # Errors
    /// The first rule that the name breaks.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        plain_name(text).map(Self)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Checks a name that users give to something, and brings it to NFC.
///
/// # Errors
/// The first rule of [`SessionName`] that it breaks.
pub fn plain_name(text: &str) -> Result<String, NameError> {
    let name: String = text.nfc().collect();
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(NameError::TooLong(name.len()));
    }
    if let Some(c) = name.chars().find(|c| !is_printable(*c)) {
        return Err(NameError::Unprintable(c as u32));
    }
    // Joiners need something to join.
    if name.chars().all(|c| matches!(c, '\u{200C}' | '\u{200D}' | '\u{FE00}'..='\u{FE0F}')) {
        return Err(NameError::Unprintable(name.chars().next().map_or(0, u32::from)));
    }
    if name.contains('/') {
        return Err(NameError::Slash);
    }
    if let Some(c) = name.chars().next().filter(|c| matches!(c, '-' | '.')) {
        return Err(NameError::Leading(c));
    }
    if name.trim() != name {
        return Err(NameError::Space);
    }
    Ok(name)
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a character may stand in a name: not a control, not one of the invisible or direction-changing characters
/// that make two names look alike (U+200B..U+200F without the joiners, U+2028..U+202E, U+2066..U+206F, U+FEFF, the
/// noncharacters). The joiners U+200C and U+200D stay: emoji and several scripts need them.
fn is_printable(c: char) -> bool {
    let code = c as u32;
    !(c.is_control()
        || matches!(code, 0x00AD | 0x061C | 0x180E | 0x200B | 0x200E | 0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0xFEFF | 0xFFF9..=0xFFFB)
        || (0xE0000..=0xE0FFF).contains(&code) && !(0xE0020..=0xE007F).contains(&code)
        || (code & 0xFFFE) == 0xFFFE
        || (0xFDD0..=0xFDEF).contains(&code)
        || (0xE000..=0xF8FF).contains(&code)
        || code >= 0xF0000)
}

/// What the name of every sandbox begins with.
pub const SANDBOX_PREFIX: &str = "session-";

/// The container's name for a session: `session-` and the name with every character outside `[A-Za-z0-9_.-]` replaced
/// by `_`. Where that changes the name, or `taken` says it is in use, eight characters of the id follow, so that two
/// names never meet in one container name.
pub fn sandbox_name(name: &SessionName, id: &SessionId, taken: bool) -> String {
    let clean: String = name
        .as_str()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '_' })
        .collect();
    if clean == name.as_str() && !taken {
        format!("{SANDBOX_PREFIX}{clean}")
    } else {
        format!("{SANDBOX_PREFIX}{clean}-{}", short(id))
    }
}

/// The last eight characters of an id: in a UUIDv7 those are random, while the first are the clock.
fn short(id: &SessionId) -> &str {
    let text = id.as_str();
    text.get(text.len().saturating_sub(8)..).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn good_names_are_kept_as_they_are() {
        for name in
            ["a", "feature-x", "数据-会议", "dev env", "a.b", "~", "👩‍💻", "x:y", "COM1", "a'b\"c", "%41"]
        {
            assert_eq!(SessionName::parse(name).expect("good").as_str(), name);
        }
    }

    #[test]
    fn each_rule_refuses_by_its_own_name() {
        let long = "x".repeat(129);
        let cases = [
            ("", NameError::Empty),
            (long.as_str(), NameError::TooLong(129)),
            ("a\nb", NameError::Unprintable(0x0a)),
            ("a\u{202e}b", NameError::Unprintable(0x202e)),
            ("a\u{7f}", NameError::Unprintable(0x7f)),
            ("\u{200d}", NameError::Unprintable(0x200d)),
            ("../../evil", NameError::Slash),
            ("-x", NameError::Leading('-')),
            (".x", NameError::Leading('.')),
            (" x", NameError::Space),
            ("x\u{3000}", NameError::Space),
        ];
        for (name, want) in cases {
            assert_eq!(SessionName::parse(name).expect_err(name), want);
        }
    }

    #[test]
    fn two_spellings_of_one_name_are_one() {
        assert_eq!(SessionName::parse("cafe\u{301}"), SessionName::parse("caf\u{e9}"));
    }

    #[test]
    fn sandbox_names_follow_the_contract() {
        let id = SessionId::new("01920000-0000-7000-8000-0000deadbeef");
        let name = |text| SessionName::parse(text).expect("good");
        assert_eq!(sandbox_name(&name("feature-x"), &id, false), "session-feature-x");
        assert_eq!(sandbox_name(&name("feature-x"), &id, true), "session-feature-x-deadbeef");
        assert_eq!(sandbox_name(&name("dev env"), &id, false), "session-dev_env-deadbeef");
        assert_eq!(sandbox_name(&name("数据"), &id, false), "session-__-deadbeef");
    }

    proptest! {
        #[test]
        fn any_text_gives_a_valid_container_name_or_a_refusal(text in "\\PC{0,140}") {
            if let Ok(name) = SessionName::parse(&text) {
                let sandbox = sandbox_name(&name, &SessionId::new("01920000-0000-7000-8000-0000deadbeef"), false);
                prop_assert!(sandbox.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')));
                prop_assert_eq!(SessionName::parse(name.as_str()).expect("stays good"), name);
            }
        }
    }
}
