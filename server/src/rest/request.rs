//! A request for tensors as text.
//!
//! Nothing is stored as generic JSON values: a text of some megabytes would take hundreds of megabytes.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, SeqAccess, Visitor};

use crate::bounded_json::Object;
use crate::datatype::Elements;

/// How deep arrays of elements may be nested: as deep as a tensor may have axes.
const DEPTH_MAXIMUM: usize = 8;

/// A request for tensors.
#[derive(Deserialize)]
pub(super) struct Request {
    #[serde(default)]
    pub(super) id: String,
    #[serde(default)]
    pub(super) parameters: Parameters,
    pub(super) inputs: Vec<Object<Input>>,
    #[serde(default)]
    pub(super) outputs: Vec<Object<Output>>,
}

/// An input, whose elements are here or behind the JSON.
#[derive(Deserialize)]
pub(super) struct Input {
    pub(super) name: String,
    pub(super) datatype: String,
    pub(super) shape: Vec<i64>,
    #[serde(default)]
    pub(super) parameters: Parameters,
    #[serde(default)]
    pub(super) data: Option<Numbers>,
}

/// An output that is wanted.
#[derive(Deserialize)]
pub(super) struct Output {
    pub(super) name: String,
    #[serde(default)]
    pub(super) parameters: Parameters,
}

/// Parameters by name.
pub(super) type Parameters = BTreeMap<String, Parameter>;

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Parameter {
    Bool(bool),
    Integer(i64),
    Double(f64),
    Text(String),
}

impl<'de> Deserialize<'de> for Parameter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfParameter;
        impl Visitor<'_> for OfParameter {
            type Value = Parameter;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("true, false, a number or a text")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Parameter, E> {
                Ok(Parameter::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Parameter, E> {
                Ok(Parameter::Integer(value))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Parameter, E> {
                i64::try_from(value).map(Parameter::Integer).map_err(|_| E::custom("the number is too large"))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Parameter, E> {
                Ok(Parameter::Double(value))
            }

            fn visit_str<E>(self, value: &str) -> Result<Parameter, E> {
                Ok(Parameter::Text(value.to_owned()))
            }
        }
        deserializer.deserialize_any(OfParameter)
    }
}

/// Numbers in row-major order, in one array or in one for each axis.
pub(super) struct Numbers(pub(super) Elements);

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut elements = Elements::Integers(Vec::new());
        Gather { elements: &mut elements, depth: 0 }.deserialize(deserializer)?;
        Ok(Self(elements))
    }
}

/// Adds a number, or all numbers of an array.
struct Gather<'e> {
    elements: &'e mut Elements,
    depth: usize,
}

impl Gather<'_> {
    fn add_integer(self, value: i64) {
        match self.elements {
            Elements::Integers(values) => values.push(value),
            Elements::Doubles(values) => values.push(value as f64),
            _ => {}
        }
    }

    fn add_double(self, value: f64) {
        if let Elements::Integers(values) = self.elements {
            let values = std::mem::take(values);
            *self.elements = Elements::Doubles(values.into_iter().map(|value| value as f64).collect());
        }
        if let Elements::Doubles(values) = self.elements {
            values.push(value);
        }
    }
}

impl<'de> DeserializeSeed<'de> for Gather<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        // At the top level, the protocol does not allow a number in place of an array.
        if self.depth == 0 { deserializer.deserialize_seq(self) } else { deserializer.deserialize_any(self) }
    }
}

impl<'de> Visitor<'de> for Gather<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.depth == 0 { "an array of numbers" } else { "a number or an array of numbers" })
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.add_integer(value);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.add_integer(value),
            Err(_) => self.add_double(value as f64),
        }
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.add_double(value);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        if self.depth == DEPTH_MAXIMUM {
            return Err(de::Error::custom(format!("expected at most {DEPTH_MAXIMUM} arrays in each other")));
        }
        while array.next_element_seed(Gather { elements: self.elements, depth: self.depth + 1 })?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

    use super::*;

    fn numbers(text: &str) -> Result<Elements, String> {
        serde_json::from_str(text).map(|Numbers(elements)| elements).map_err(|error| error.to_string())
    }

    #[test]
    fn numbers_are_gathered_from_arrays_of_arrays() {
        let Elements::Integers(values) = numbers("[[1, 2], [[3], []], -9223372036854775808]").unwrap() else {
            panic!()
        };
        assert_eq!(values, [1, 2, 3, i64::MIN]);
        let Elements::Doubles(values) = numbers("[1, 2.5, [-3e2], 18446744073709551615]").unwrap() else { panic!() };
        assert_eq!(values, [1.0, 2.5, -300.0, 18_446_744_073_709_551_615.0]);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in
            ["1", "{}", r#"["1"]"#, "[null]", "[true]", "[NaN]", "[Infinity]", "[[[[[[[[[1]]]]]]]]]", "[1", "[1e999]"]
        {
            assert!(numbers(text).is_err(), "{text}");
        }
        assert!(numbers(&"[".repeat(100_000)).unwrap_err().contains("at most 8 arrays"));
        let deep = format!(r#"{{"inputs": [], "other": {}}}"#, "[".repeat(100_000));
        // What has no meaning here is skipped without a stack, to its end.
        let error = serde_json::from_str::<Request>(&deep).err().unwrap().to_string();
        assert!(error.contains("column 100025"), "{error}");
        let twice = r#"{"inputs": [], "inputs": []}"#;
        assert!(serde_json::from_str::<Request>(twice).err().unwrap().to_string().contains("duplicate"));
        let nested = r#"{"inputs": [], "parameters": {"x": [1]}}"#;
        assert!(serde_json::from_str::<Request>(nested).is_err());
    }
}
