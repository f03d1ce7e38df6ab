//! YAML of bounded size: references to references make a short text a huge value, so what they unfold to is
//! counted while it is read.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::error::Invalid;

/// Most bytes of texts plus number of values, unfolded.
const MAX_SIZE: usize = 2 * super::MAX_DOCUMENT_BYTES;
/// Most brackets that are open at once. The parser's time grows with the square of their number, before it
/// refuses what is nested too deeply.
const MAX_OPEN_BRACKETS: usize = 512;

/// JSON where the text begins as JSON does, else YAML.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn json_or_yaml(text: &str) -> Result<Value, Invalid> {
    let refused = |what: &str, error: String| Invalid::field("", format!("is not valid {what}: {error}"));
    if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(|error| refused("JSON", error.to_string()))
    } else {
        parse(text).map_err(|error| refused("YAML", error))
    }
}

/// # Errors
/// What is wrong with the text, or that it unfolds to too much.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    check_brackets(text)?;
    let left = Cell::new(MAX_SIZE);
    Bounded { left: &left }
        .deserialize(serde_yaml_ng::Deserializer::from_str(text))
        .map_err(|error| error.to_string())
}

/// Brackets in texts and comments count as well: nobody leaves so many of them open.
fn check_brackets(text: &str) -> Result<(), String> {
    let mut open = 0_usize;
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        if open > MAX_OPEN_BRACKETS {
            return Err(format!("more than {MAX_OPEN_BRACKETS} brackets are open at once"));
        }
    }
    Ok(())
}

/// Reads a value as long as there is room left.
#[derive(Clone, Copy)]
struct Bounded<'a> {
    left: &'a Cell<usize>,
}

impl Bounded<'_> {
    fn take<E: Error>(self, size: usize) -> Result<(), E> {
        let left = self.left.get().checked_sub(size.saturating_add(1));
        self.left.set(left.ok_or_else(|| E::custom("its references unfold to too many values"))?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number, true or false, a list or a map with texts as keys")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.take(0).map(|()| Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.take(0).map(|()| value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.take(0).map(|()| value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.take(0)?;
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom(format!("{value} is no number")))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.take(value.len()).map(|()| value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.take(0).map(|()| Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Value, A::Error> {
        self.take(0)?;
        let mut list = Vec::new();
        while let Some(value) = values.next_element_seed(self)? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        self.take(0)?;
        let mut map = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            self.take(key.len())?;
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("the key {key:?} occurs twice")));
            }
            let value = fields.next_value_seed(self)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
