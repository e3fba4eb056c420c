//! Results that are encoded already.
//!
//! The registry encodes what a method gives and then reads the text again to be sure of it, which for a list of ten
//! thousand sessions takes longer than everything else, and for one session still a good part of the call. A method
//! whose result is made of texts that were encoded before leaves them here instead, and they are joined once, on their
//! way out.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::value::RawValue;

/// In the extensions of each call that is answered at once: where a method may leave its result.
#[derive(Debug, Clone, Default)]
pub struct Prepared(Arc<Mutex<Option<Left>>>);

/// A result that was left.
#[derive(Debug)]
pub(super) enum Left {
    One(Arc<RawValue>),
    Array(Vec<Arc<RawValue>>),
}

impl Prepared {
    /// Leaves the result. What the method returns besides is not sent.
    pub fn leave(&self, result: Arc<RawValue>) {
        self.set(Left::One(result));
    }

    /// Leaves the elements of the array that is the result. What the method returns besides is not sent.
    pub fn leave_array(&self, elements: Vec<Arc<RawValue>>) {
        self.set(Left::Array(elements));
    }

    fn set(&self, left: Left) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(left);
    }

    pub(super) fn take(&self) -> Option<Left> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The answer with such a result.
pub(super) fn answer(id: &str, result: &Left) -> Vec<u8> {
    match result {
        Left::One(result) => join(id, "", std::slice::from_ref(result), "}"),
        Left::Array(elements) => join(id, "[", elements, "]}"),
    }
}

fn join(id: &str, open: &str, elements: &[Arc<RawValue>], close: &str) -> Vec<u8> {
    const BEFORE: &str = r#"{"jsonrpc":"2.0","id":"#;
    const RESULT: &str = r#","result":"#;
    let length: usize = elements.iter().map(|e| e.get().len() + 1).sum();
    let around = BEFORE.len() + id.len() + RESULT.len() + open.len() + close.len();
    let mut text = Vec::with_capacity(around + length);
    for part in [BEFORE, id, RESULT, open] {
        text.extend_from_slice(part.as_bytes());
    }
    for (n, element) in elements.iter().enumerate() {
        if n > 0 {
            text.push(b',');
        }
        text.extend_from_slice(element.get().as_bytes());
    }
    text.extend_from_slice(close.as_bytes());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(text: &str) -> Arc<RawValue> {
        Arc::from(RawValue::from_string(text.to_owned()).expect("JSON"))
    }

    #[test]
    fn elements_are_joined_into_one_answer_with_the_clients_id() {
        let text = answer("\"x\"", &Left::Array(vec![element("1"), element("{\"a\":2}")]));
        assert_eq!(text, br#"{"jsonrpc":"2.0","id":"x","result":[1,{"a":2}]}"#);
        assert_eq!(answer("7", &Left::Array(Vec::new())), br#"{"jsonrpc":"2.0","id":7,"result":[]}"#);
    }

    #[test]
    fn one_result_is_put_into_its_answer_as_it_is() {
        let text = answer("7", &Left::One(element("{\"a\":2}")));
        assert_eq!(text, br#"{"jsonrpc":"2.0","id":7,"result":{"a":2}}"#);
    }
}
