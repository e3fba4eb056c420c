//! Results that are encoded already.
//!
//! The registry encodes what a method gives and then reads the text again to be sure of it, which for a list of ten
//! thousand sessions takes longer than everything else. A method whose result is made of texts that were encoded before
//! leaves them here instead, and they are joined once, on their way out.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::value::RawValue;

/// In the extensions of each call that is answered at once: where a method may leave an array.
#[derive(Debug, Clone, Default)]
pub struct Prepared(Arc<Mutex<Option<Vec<Arc<RawValue>>>>>);

impl Prepared {
    /// Leaves the elements of the array that is the result. What the method returns besides is not sent.
    pub fn leave(&self, elements: Vec<Arc<RawValue>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(elements);
    }

    pub(super) fn take(&self) -> Option<Vec<Arc<RawValue>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The answer with such a result.
pub(super) fn answer(id: &str, elements: &[Arc<RawValue>]) -> Vec<u8> {
    const BEFORE: &str = r#"{"jsonrpc":"2.0","id":"#;
    const RESULT: &str = r#","result":["#;
    let length: usize = elements.iter().map(|e| e.get().len() + 1).sum();
    let mut text = Vec::with_capacity(BEFORE.len() + id.len() + RESULT.len() + length + 2);
    for part in [BEFORE, id, RESULT] {
        text.extend_from_slice(part.as_bytes());
    }
    for (n, element) in elements.iter().enumerate() {
        if n > 0 {
            text.push(b',');
        }
        text.extend_from_slice(element.get().as_bytes());
    }
    text.extend_from_slice(b"]}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_joined_into_one_answer_with_the_clients_id() {
        let element = |text: &str| Arc::from(RawValue::from_string(text.to_owned()).expect("JSON"));
        let text = answer("\"x\"", &[element("1"), element("{\"a\":2}")]);
        assert_eq!(text, br#"{"jsonrpc":"2.0","id":"x","result":[1,{"a":2}]}"#);
        assert_eq!(answer("7", &[]), br#"{"jsonrpc":"2.0","id":7,"result":[]}"#);
    }
}
