//! Types of elements by the protocol's names, and elements as bytes.

use bytes::Bytes;
use half::{bf16, f16};
use tileforge::DataType;

use crate::failure::{Failure, Result};

/// The elements of a tensor in a request.
#[derive(Clone, Debug)]
pub(crate) enum Elements {
    /// Little-endian bytes, in row-major order.
    Bytes(Bytes),
    /// Integers of a text or a protocol buffer.
    Integers(Vec<i64>),
    /// Floats of a text.
    Doubles(Vec<f64>),
    /// Floats of a protocol buffer.
    Floats(Vec<f32>),
}

/// The protocol's name of a type.
pub(crate) fn name_of(data_type: DataType) -> &'static str {
    match data_type {
        DataType::F32 => "FP32",
        DataType::F16 => "FP16",
        DataType::Bf16 => "BF16",
        DataType::F64 => "FP64",
        DataType::I64 => "INT64",
        DataType::I32 => "INT32",
        DataType::I16 => "INT16",
        DataType::I8 => "INT8",
        DataType::U64 => "UINT64",
        DataType::U32 => "UINT32",
        DataType::U16 => "UINT16",
        DataType::U8 => "UINT8",
        DataType::Bool => "BOOL",
        DataType::F8E4M3 => "FP8_E4M3",
        DataType::F8E5M2 => "FP8_E5M2",
    }
}

/// The type of this name, if tensors may have it.
pub(crate) fn named(name: &str) -> Option<DataType> {
    const KNOWN: [DataType; 13] = [
        DataType::F32,
        DataType::F16,
        DataType::Bf16,
        DataType::F64,
        DataType::I64,
        DataType::I32,
        DataType::I16,
        DataType::I8,
        DataType::U64,
        DataType::U32,
        DataType::U16,
        DataType::U8,
        DataType::Bool,
    ];
    KNOWN.into_iter().find(|known| name_of(*known) == name)
}

/// Whether a network that wants one type accepts another: the same type, or narrower floats.
pub(crate) fn is_taken(given: DataType, wanted: DataType) -> bool {
    given == wanted || (wanted == DataType::F32 && matches!(given, DataType::F16 | DataType::Bf16))
}

/// `count` elements as little-endian bytes of the wanted type.
///
/// # Errors
/// The number of elements differs, or the type cannot represent one of them.
pub(crate) fn to_bytes(elements: Elements, given: DataType, wanted: DataType, count: usize) -> Result<Bytes> {
    match elements {
        Elements::Bytes(bytes) => {
            let expected = count.checked_mul(given.size());
            if expected != Some(bytes.len()) {
                let expected = expected.map_or("more than there can be".into(), |expected| expected.to_string());
                let found = bytes.len();
                return Err(Failure::invalid(format!("expected {expected} bytes for its shape, found {found}")));
            }
            Ok(match given {
                DataType::F16 if wanted == DataType::F32 => widened(&bytes, |two| f16::from_le_bytes(two).to_f32()),
                DataType::Bf16 if wanted == DataType::F32 => widened(&bytes, |two| bf16::from_le_bytes(two).to_f32()),
                _ => bytes,
            })
        }
        _ if matches!(given, DataType::F16 | DataType::Bf16) => {
            Err(Failure::invalid(format!("elements of {} come as bytes alone", name_of(given))))
        }
        Elements::Integers(values) => {
            counted(values.len(), count)?;
            match wanted {
                DataType::F32 => gathered(values, |value| Some((value as f32).to_le_bytes())),
                DataType::I64 => gathered(values, |value| Some(value.to_le_bytes())),
                DataType::I32 => gathered(values, |value| Some(i32::try_from(value).ok()?.to_le_bytes())),
                other => Err(Failure::invalid(format!("elements of {} come as bytes alone", name_of(other)))),
            }
        }
        Elements::Doubles(values) => {
            counted(values.len(), count)?;
            if wanted != DataType::F32 {
                return Err(Failure::invalid(format!("expected whole numbers for {}", name_of(wanted))));
            }
            gathered(values, |value| Some(value as f32).filter(|value| value.is_finite()).map(f32::to_le_bytes))
        }
        Elements::Floats(values) => {
            counted(values.len(), count)?;
            if wanted != DataType::F32 {
                return Err(Failure::invalid(format!("expected whole numbers for {}", name_of(wanted))));
            }
            gathered(values, |value| Some(value.to_le_bytes()))
        }
    }
}

fn counted(found: usize, expected: usize) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Failure::invalid(format!("expected {expected} elements for its shape, found {found}")))
}

fn widened(bytes: &[u8], read: impl Fn([u8; 2]) -> f32) -> Bytes {
    let mut wide = vec![0; bytes.len() * 2];
    for (to, from) in wide.as_chunks_mut::<4>().0.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *to = read(*from).to_le_bytes();
    }
    wide.into()
}

fn gathered<T: Copy, const N: usize>(values: Vec<T>, write: impl Fn(T) -> Option<[u8; N]>) -> Result<Bytes> {
    let mut bytes = Vec::with_capacity(values.len() * N);
    for value in values {
        let element = write(value).ok_or_else(|| Failure::invalid("an element is out of its type's range"))?;
        bytes.extend_from_slice(&element);
    }
    Ok(bytes.into())
}

/// 32-bit floats as 16-bit floats, rounded to the nearest.
pub(crate) fn narrowed(bytes: &[u8]) -> Vec<u8> {
    let mut narrow = vec![0; bytes.len() / 2];
    for (to, from) in narrow.as_chunks_mut::<2>().0.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *to = f16::from_f32(f32::from_le_bytes(*from)).to_le_bytes();
    }
    narrow
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use super::*;

    #[test]
    fn half_floats_become_floats_and_come_back() {
        let halves: Vec<u8> =
            [0.5, -2.0, 65504.0].iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect();
        let wide = to_bytes(Elements::Bytes(halves.clone().into()), DataType::F16, DataType::F32, 3).unwrap();
        let floats: Vec<f32> = wide.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        assert_eq!(floats, [0.5, -2.0, 65504.0]);
        assert_eq!(narrowed(&wide), halves);
    }

    #[test]
    fn elements_that_do_not_fit_are_refused() {
        let refused = |elements, given, wanted, count| to_bytes(elements, given, wanted, count).unwrap_err().message;
        let bytes = |count: usize| Elements::Bytes(vec![0; count].into());
        assert_eq!(refused(bytes(7), DataType::F32, DataType::F32, 2), "expected 8 bytes for its shape, found 7");
        let most = usize::MAX;
        assert!(refused(bytes(8), DataType::F32, DataType::F32, most).starts_with("expected more than there can be"));
        let doubles = |values: &[f64]| Elements::Doubles(values.to_vec());
        assert_eq!(refused(doubles(&[1e39]), DataType::F32, DataType::F32, 1), "an element is out of its type's range");
        assert_eq!(refused(doubles(&[1.0]), DataType::I64, DataType::I64, 1), "expected whole numbers for INT64");
        let whole = Elements::Integers(vec![1 << 40]);
        assert_eq!(refused(whole, DataType::I32, DataType::I32, 1), "an element is out of its type's range");
        assert_eq!(refused(doubles(&[1.0]), DataType::F16, DataType::F32, 1), "elements of FP16 come as bytes alone");
        assert_eq!(named("FP32"), Some(DataType::F32));
        assert_eq!([named("FP8_E4M3"), named("BYTES"), named("")], [None; 3]);
    }
}
