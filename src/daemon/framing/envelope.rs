//! What stands around a call: version, id, method and params, read without touching what the params mean.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::answer::{INVALID_REQUEST, PARSE_ERROR};

/// Most entries of one batch. A longer one is answered with one error; clients split it.
pub(crate) const MAX_BATCH: usize = 1_000;

/// The id of answers to what had no id that could be read.
pub(super) const NO_ID: &str = "null";

/// One message of a client.
pub(super) enum Message<'a> {
    One(Entry<'a>),
    Batch(Vec<Entry<'a>>),
    /// Answered as a whole, with id null.
    Bad {
        code: i32,
        why: String,
    },
}

/// One entry of a message.
pub(super) enum Entry<'a> {
    Call(Call<'a>),
    Invalid { id: &'a str, why: &'static str },
}

/// A request, or a notification if it has no id.
pub(super) struct Call<'a> {
    /// As it was written, so that big numbers and fractions come back as they are.
    pub(super) id: Option<&'a str>,
    pub(super) method: Cow<'a, str>,
    pub(super) params: Option<&'a str>,
}

/// Reads one JSON text.
pub(super) fn parse(text: &[u8]) -> Message<'_> {
    let text = match std::str::from_utf8(text) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(error) => return bad(PARSE_ERROR, format!("Parse error: not UTF-8: {error}")),
    };
    if !text.trim_start().starts_with('[') {
        return match serde_json::from_str::<Envelope<'_>>(text) {
            Ok(envelope) => Message::One(envelope.check()),
            Err(error) => bad(PARSE_ERROR, format!("Parse error: {error}")),
        };
    }
    match serde_json::from_str::<Batch<'_>>(text) {
        Err(error) => bad(PARSE_ERROR, format!("Parse error: {error}")),
        Ok(batch) if batch.total == 0 => bad(INVALID_REQUEST, "Invalid Request: an empty batch".to_owned()),
        Ok(batch) if batch.total > MAX_BATCH => {
            let why = format!(
                "Invalid Request: a batch of {} entries is over the limit of {MAX_BATCH}",
                batch.total
            );
            bad(INVALID_REQUEST, why)
        }
        Ok(batch) => Message::Batch(batch.entries.into_iter().map(entry).collect()),
    }
}

/// The params as one object. Clients that can only send positions wrap theirs in one or two arrays.
pub(super) fn by_name(params: Option<&str>) -> Result<&str, &'static str> {
    const WHY: &str = "Invalid params: params are by name, give one object";
    let mut raw = params.unwrap_or("{}").trim_ascii();
    for _ in 0..=2 {
        match raw.as_bytes().first() {
            Some(b'{') => return Ok(raw),
            Some(b'n') => return Ok("{}"),
            Some(b'[') => {}
            _ => return Err(WHY),
        }
        let list: Batch<'_> = serde_json::from_str(raw).map_err(|_| WHY)?;
        raw = match (list.total, list.entries.first()) {
            (0, _) => return Ok("{}"),
            (1, Some(inner)) => inner.get(),
            _ => return Err(WHY),
        };
    }
    Err(WHY)
}

fn bad(code: i32, why: String) -> Message<'static> {
    Message::Bad { code, why }
}

fn entry(raw: &RawValue) -> Entry<'_> {
    match serde_json::from_str::<Envelope<'_>>(raw.get()) {
        Ok(envelope) => envelope.check(),
        // The text as a whole was valid, so this is about its contents, such as half a surrogate in a name.
        Err(_) => Entry::Invalid { id: NO_ID, why: "Invalid Request: not a request object" },
    }
}

/// The array's first entries, as far as a batch may be long, and how many there are.
struct Batch<'a> {
    entries: Vec<&'a RawValue>,
    total: usize,
}

impl<'de: 'a, 'a> Deserialize<'de> for Batch<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Batch<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Batch<'de>, A::Error> {
                let mut entries = Vec::new();
                let mut total = 0;
                while total < MAX_BATCH {
                    let Some(entry) = seq.next_element::<&RawValue>()? else { break };
                    entries.push(entry);
                    total += 1;
                }
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    total += 1;
                }
                Ok(Batch { entries, total })
            }
        }
        deserializer.deserialize_seq(Entries)
    }
}

#[derive(Default)]
struct Envelope<'a> {
    object: bool,
    repeated: bool,
    jsonrpc: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    id_repeated: bool,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    fn check(self) -> Entry<'a> {
        let id = self.id.map(RawValue::get);
        let usable = id.is_none_or(|id| matches!(id.as_bytes()[0], b'"' | b'-' | b'0'..=b'9' | b'n'));
        let echoed = if usable && !self.id_repeated { id.unwrap_or(NO_ID) } else { NO_ID };
        let invalid = |why| Entry::Invalid { id: echoed, why };
        if !self.object {
            return invalid("Invalid Request: not an object");
        }
        if self.repeated || self.id_repeated {
            return invalid("Invalid Request: a member stands there twice");
        }
        if !usable {
            return invalid("Invalid Request: an id is a string, a number or null");
        }
        if self.jsonrpc.is_none_or(|version| version.get() != "\"2.0\"") {
            return invalid("Invalid Request: \"jsonrpc\" must be \"2.0\"");
        }
        match self.method.map(|raw| serde_json::from_str::<Name<'_>>(raw.get())) {
            Some(Ok(Name(method))) => {
                Entry::Call(Call { id, method, params: self.params.map(RawValue::get) })
            }
            _ => invalid("Invalid Request: \"method\" must be a string"),
        }
    }
}

/// A string that is borrowed where it has no escapes.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Envelope<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Envelope<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON text")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Envelope<'de>, A::Error> {
        let mut envelope = Envelope { object: true, ..Envelope::default() };
        while let Some(Name(key)) = map.next_key::<Name<'de>>()? {
            let (slot, repeated) = match &*key {
                "jsonrpc" => (&mut envelope.jsonrpc, &mut envelope.repeated),
                "id" => (&mut envelope.id, &mut envelope.id_repeated),
                "method" => (&mut envelope.method, &mut envelope.repeated),
                "params" => (&mut envelope.params, &mut envelope.repeated),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *repeated |= slot.replace(map.next_value()?).is_some();
        }
        Ok(envelope)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Envelope<'de>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Envelope::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Envelope<'de>, E> {
        Ok(Envelope::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Envelope<'de>, E> {
        Ok(Envelope::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Envelope<'de>, E> {
        Ok(Envelope::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Envelope<'de>, E> {
        Ok(Envelope::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Envelope<'de>, E> {
        Ok(Envelope::default())
    }

    fn visit_unit<E>(self) -> Result<Envelope<'de>, E> {
        Ok(Envelope::default())
    }
}
