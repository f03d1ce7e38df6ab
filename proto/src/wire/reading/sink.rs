//! What becomes of a document that is read: a value, or nothing.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::meter::Meter;

/// Where values go.
pub(super) trait Sink: Sized {
    /// Fields of a map.
    type Fields: Default;

    /// A value without others in it.
    fn scalar(value: Scalar<'_>) -> Self;
    /// A list.
    fn list(values: Vec<Self>) -> Self;
    /// A map.
    fn map(fields: Self::Fields) -> Self;
    /// Adds a field; false where it is there already.
    fn insert(fields: &mut Self::Fields, key: String, value: Self) -> bool;
}

/// A value without others in it.
pub(super) enum Scalar<'a> {
    Null,
    Flag(bool),
    Number(Number),
    Text(&'a str),
}

impl Sink for Value {
    type Fields = Map<String, Value>;

    fn scalar(value: Scalar<'_>) -> Self {
        match value {
            Scalar::Null => Self::Null,
            Scalar::Flag(flag) => Self::Bool(flag),
            Scalar::Number(number) => Self::Number(number),
            Scalar::Text(text) => Self::String(text.to_owned()),
        }
    }

    fn list(values: Vec<Self>) -> Self {
        Self::Array(values)
    }

    fn map(fields: Self::Fields) -> Self {
        Self::Object(fields)
    }

    fn insert(fields: &mut Self::Fields, key: String, value: Self) -> bool {
        fields.insert(key, value).is_none()
    }
}

/// A list of nothing takes no memory, however long it is.
impl Sink for () {
    type Fields = ();

    fn scalar(_value: Scalar<'_>) -> Self {}

    fn list(_values: Vec<Self>) -> Self {}

    fn map(_fields: Self::Fields) -> Self {}

    /// Accepts duplicate keys: they are found when the document is read into its types.
    fn insert(_fields: &mut Self::Fields, _key: String, _value: Self) -> bool {
        true
    }
}

/// Reads a value as long as the meter lets it.
pub(super) struct Reader<'a, 'm, S> {
    meter: &'a Meter<'m>,
    depth: usize,
    sink: PhantomData<S>,
}

impl<'a, 'm, S: Sink> Reader<'a, 'm, S> {
    pub(super) fn new(meter: &'a Meter<'m>) -> Self {
        Self { meter, depth: 0, sink: PhantomData }
    }

    fn inside(&self) -> Self {
        Self { meter: self.meter, depth: self.depth + 1, sink: PhantomData }
    }

    fn one<E: Error>(&self, value: Scalar<'_>) -> Result<S, E> {
        self.meter.value(self.depth).map_err(E::custom)?;
        if let Scalar::Text(text) = value {
            self.meter.text(text).map_err(E::custom)?;
        }
        Ok(S::scalar(value))
    }
}

impl<'de, S: Sink> DeserializeSeed<'de> for Reader<'_, '_, S> {
    type Value = S;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for Reader<'_, '_, S> {
    type Value = S;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a number, true, false, a list, or a map with string keys")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<S, E> {
        self.one(Scalar::Flag(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<S, E> {
        self.one(Scalar::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<S, E> {
        self.one(Scalar::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<S, E> {
        match Number::from_f64(value) {
            Some(number) => self.one(Scalar::Number(number)),
            None => {
                let why = format!("{value} is not a finite number");
                Err(E::custom(self.meter.refuse(why)))
            }
        }
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<S, E> {
        self.one(Scalar::Text(value))
    }

    fn visit_unit<E: Error>(self) -> Result<S, E> {
        self.one(Scalar::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<S, A::Error> {
        self.meter.value(self.depth).map_err(A::Error::custom)?;
        let mut list = Vec::new();
        while let Some(value) = values.next_element_seed(self.inside())? {
            list.push(value);
        }
        Ok(S::list(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<S, A::Error> {
        self.meter.value(self.depth).map_err(A::Error::custom)?;
        self.meter.map().map_err(A::Error::custom)?;
        let (mut map, mut count) = (S::Fields::default(), 0);
        while let Some(key) = fields.next_key::<String>()? {
            count += 1;
            self.meter.keys(count).map_err(A::Error::custom)?;
            self.meter.key(&key).map_err(A::Error::custom)?;
            let value = fields.next_value_seed(self.inside())?;
            let named = key.clone();
            if !S::insert(&mut map, key, value) {
                return Err(A::Error::custom(format!("the key {named:?} occurs twice. Keep one")));
            }
        }
        Ok(S::map(map))
    }
}
