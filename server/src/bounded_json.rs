//! JSON that stays small in memory, whatever a client sends.
//!
//! Elements of an array, and the buffers of untagged enums, take many times as much memory as their text: 64 MiB of
//! `"",` would become gigabytes.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserialize, DeserializeOwned, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::failure::{Failure, Result};

/// The value of a body, which must be a JSON object. An array of the values in their order is refused.
pub(crate) fn object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(Failure::invalid("the body: expected a JSON object"));
    }
    serde_json::from_slice(bytes).map_err(|error| Failure::invalid(format!("the body: {error}")))
}

/// As [`object`], for a body that may be empty.
pub(crate) fn object_or_nothing<T: DeserializeOwned + Default>(bytes: &[u8]) -> Result<T> {
    if bytes.is_empty() { Ok(T::default()) } else { object(bytes) }
}

/// As [`object`], for a part of a body: derived code would also accept an array of the values in their order.
#[derive(Debug, Default)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct OfObject<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OfObject<T> {
            type Value = Object<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<Object<T>, A::Error> {
                T::deserialize(de::value::MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(OfObject(PhantomData))
    }
}

/// The largest number of elements of an array.
const MOST: usize = 16;

/// An array of at most 16 elements, or one element in place of an array.
#[derive(Debug)]
pub(crate) struct Few<T>(pub(crate) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct OfFew<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OfFew<T> {
            type Value = Few<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "an array of at most {MOST} elements")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> std::result::Result<Few<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(element) = array.next_element()? {
                    if all.len() == MOST {
                        return Err(de::Error::custom(format!("expected at most {MOST} elements")));
                    }
                    all.push(element);
                }
                Ok(Few(all))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<Few<T>, E> {
                T::deserialize(de::value::StrDeserializer::new(text)).map(|one| Few(vec![one]))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<Few<T>, A::Error> {
                T::deserialize(de::value::MapAccessDeserializer::new(map)).map(|one| Few(vec![one]))
            }
        }
        deserializer.deserialize_any(OfFew(PhantomData))
    }
}

/// A whole number, which some clients send as a text, or as `true` and `false`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole(pub(crate) i64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct OfWhole;
        impl Visitor<'_> for OfWhole {
            type Value = Whole;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a whole number")
            }

            fn visit_i64<E>(self, number: i64) -> std::result::Result<Whole, E> {
                Ok(Whole(number))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> std::result::Result<Whole, E> {
                i64::try_from(number).map(Whole).map_err(|_| E::custom("the number is too large"))
            }

            fn visit_bool<E>(self, value: bool) -> std::result::Result<Whole, E> {
                Ok(Whole(value.into()))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<Whole, E> {
                text.trim().parse().map(Whole).map_err(|_| E::custom("expected a whole number"))
            }
        }
        deserializer.deserialize_any(OfWhole)
    }
}

/// Whether an object or an array has an entry. The entries are not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HasEntries(pub(crate) bool);

impl<'de> Deserialize<'de> for HasEntries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct OfEntries;
        impl<'de> Visitor<'de> for OfEntries {
            type Value = HasEntries;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object or an array")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<HasEntries, A::Error> {
                let mut found = false;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    found = true;
                }
                Ok(HasEntries(found))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> std::result::Result<HasEntries, A::Error> {
                let mut found = false;
                while array.next_element::<IgnoredAny>()?.is_some() {
                    found = true;
                }
                Ok(HasEntries(found))
            }

            fn visit_unit<E>(self) -> std::result::Result<HasEntries, E> {
                Ok(HasEntries(false))
            }
        }
        deserializer.deserialize_any(OfEntries)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use super::*;

    #[test]
    fn what_is_many_is_refused_before_it_is_kept() {
        let few = |text: &str| serde_json::from_str::<Few<String>>(text).map(|few| few.0.len()).ok();
        assert_eq!([few(r#"["a", "b"]"#), few("[]"), few(r#""a""#)], [Some(2), Some(0), Some(1)]);
        assert_eq!(few(&format!("[{}\"\"]", "\"\",".repeat(16))), None);
        assert!([few("1"), few("[1]"), few("null")].iter().all(Option::is_none));
        let whole = |text: &str| serde_json::from_str::<Whole>(text).map(|whole| whole.0).ok();
        assert_eq!([whole("-1"), whole(r#""-1""#), whole("true")], [Some(-1), Some(-1), Some(1)]);
        for text in ["[1, 1]", "{}", "1.5", "1e300", "18446744073709551615", "\"x\"", "null"] {
            assert_eq!(whole(text), None, "{text}");
        }
        let has = |text: &str| serde_json::from_str::<HasEntries>(text).map(|has| has.0).ok();
        assert_eq!(
            [has("{}"), has("[]"), has("null"), has(r#"{"a": [[1]]}"#), has("[0]")].map(Option::unwrap),
            [false, false, false, true, true]
        );
    }

    #[test]
    fn an_array_of_the_values_is_no_object() {
        #[derive(Debug, Default, serde::Deserialize, PartialEq)]
        struct Content {
            number: u8,
        }
        assert_eq!(object::<Content>(br#" {"number": 1}"#).unwrap(), Content { number: 1 });
        assert_eq!(object_or_nothing::<Content>(b"").unwrap(), Content { number: 0 });
        for text in ["", "[1]", "[]", "1", "null", "\"x\"", r#"{"number": 1} x"#, r#"{"number": 1, "number": 1}"#] {
            let refused = object::<Content>(text.as_bytes()).unwrap_err();
            assert!(refused.message.starts_with("the body: "), "{text}: {}", refused.message);
        }
        let message = object_or_nothing::<Content>(b"[1]").unwrap_err().message;
        assert_eq!(message, "the body: expected a JSON object");
        let part = |text: &str| serde_json::from_str::<Object<Content>>(text).map(|Object(part)| part.number);
        assert_eq!(part(r#"{"number": 1}"#).unwrap(), 1);
        let message = part("[1]").unwrap_err().to_string();
        assert!(message.contains("invalid type: sequence, expected a JSON object"), "{message}");
    }
}
