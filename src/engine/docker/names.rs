//! Which texts from outside may stand in a request's path.

use crate::engine::EngineError;

/// Whether text may stand for a container in a request's path: a name or an id.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

/// Refuses what may not.
pub(super) fn check(id: &str) -> Result<(), EngineError> {
    if is_name(id) { Ok(()) } else { Err(EngineError::NoSandbox { id: id.to_owned() }) }
}

/// Whether text may stand for an image in a request's path.
pub(super) fn is_reference(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | ':' | '/' | '@'))
        && !text.split('/').any(|part| part.is_empty() || part == "." || part == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_leave_their_place_in_a_path_are_no_names() {
        for text in ["", "../x", "a/b", "a?x=1", "a#b", "a b", "-a", "a%2f"] {
            assert!(!is_name(text), "{text}");
        }
        for text in ["", "../x", "a/../b", "a//b", "a?x", "a b", "/a"] {
            assert!(!is_reference(text), "{text}");
        }
        assert!(is_name("session-a.b_c") && is_reference("host:5000/a/b@sha256:00"));
    }
}
