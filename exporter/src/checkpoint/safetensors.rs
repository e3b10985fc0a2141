//! The header of a safetensors file: <https://github.com/huggingface/safetensors#format>.
//!
//! Eight bytes of length, a JSON object, and the data, which the tensors must cover exactly once. The `safetensors`
//! crate reads the same format; this reader names the tensor in every error, finds duplicates, and gives absolute
//! offsets, which an ONNX graph needs to point into the file. A fuzz target checks that both readers accept the same
//! files.

use serde::Deserialize;
use serde::de::{Error as _, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use tileforge_graph::DataType;

/// The format's own limit, which protects against headers that would exhaust memory.
const LONGEST_HEADER: u64 = 100_000_000;

/// A valid header.
#[derive(Debug, Default, PartialEq)]
pub struct Header {
    /// Free-form notes, `__metadata__`.
    pub metadata: BTreeMap<String, String>,
    /// The tensors by name.
    pub tensors: BTreeMap<String, TensorInfo>,
}

/// One tensor of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorInfo {
    /// The element type.
    pub data_type: DataType,
    /// The sizes, outermost first.
    pub dims: Vec<usize>,
    /// First byte of the data, counted from the beginning of the file.
    pub offset: u64,
    /// Bytes of data.
    pub length: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

#[derive(Default)]
struct Entries {
    metadata: BTreeMap<String, String>,
    tensors: BTreeMap<String, Entry>,
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Entries::default();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        entries.metadata = map.next_value()?;
                    } else {
                        let entry = map.next_value()?;
                        // If the last duplicate won silently, another reader could load other weights.
                        if entries.tensors.contains_key(&name) {
                            return Err(A::Error::custom(format!("the tensor `{name}` is listed twice")));
                        }
                        entries.tensors.insert(name, entry);
                    }
                }
                Ok(entries)
            }
        }

        deserializer.deserialize_map(Reader)
    }
}

/// Reads and checks the header of a whole file.
///
/// # Errors
/// What is wrong with the length, the encoding, the JSON, an element type, a size, an overlap, a hole, a truncated or
/// overlong file.
pub fn parse_header(file: &[u8]) -> Result<Header, String> {
    let size = file.len() as u64;
    let Some(length) = file.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes)) else {
        return Err(format!(
            "not a safetensors file: expected at least 8 bytes, found {size}; download or save it again"
        ));
    };
    let start = length.checked_add(8).filter(|start| *start <= size);
    let start = start.ok_or_else(|| {
        format!(
            "not a safetensors file, or a truncated one: its header should have {length} bytes, the file has {size}; \
             download it again"
        )
    })?;
    if length > LONGEST_HEADER {
        return Err(format!("the header has {length} bytes, more than the {LONGEST_HEADER} that the format allows"));
    }
    // `start <= size`, and `size` is a length in memory.
    let header = &file[8..start as usize];
    let text =
        std::str::from_utf8(header).map_err(|e| format!("not a safetensors file: the header is not UTF-8 ({e})"))?;
    if !text.starts_with('{') {
        return Err("not a safetensors file: the header does not begin with `{`".into());
    }
    let entries: Entries = serde_json::from_str(text).map_err(|e| format!("not a valid safetensors header: {e}"))?;
    let mut tensors = BTreeMap::new();
    for (name, entry) in entries.tensors {
        let info = tensor(&entry, start, size).map_err(|reason| format!("tensor `{name}`: {reason}"))?;
        tensors.insert(name, info);
    }
    check_coverage(&tensors, start, size)?;
    Ok(Header { metadata: entries.metadata, tensors })
}

fn tensor(entry: &Entry, start: u64, size: u64) -> Result<TensorInfo, String> {
    let data_type = match entry.dtype.as_str() {
        "F32" => DataType::F32,
        "F16" => DataType::F16,
        "BF16" => DataType::Bf16,
        "F64" => DataType::F64,
        "F8_E4M3" => DataType::F8E4M3,
        "F8_E5M2" => DataType::F8E5M2,
        "I64" => DataType::I64,
        "I32" => DataType::I32,
        "I16" => DataType::I16,
        "I8" => DataType::I8,
        "U64" => DataType::U64,
        "U32" => DataType::U32,
        "U16" => DataType::U16,
        "U8" => DataType::U8,
        "BOOL" => DataType::Bool,
        other => return Err(format!("the element type `{other}` is not supported")),
    };
    let (begin, end) = entry.data_offsets;
    let length =
        end.checked_sub(begin).ok_or_else(|| format!("its data ends at {end}, before it begins at {begin}"))?;
    let expected = entry.shape.iter().try_fold(data_type.size() as u64, |bytes, dim| bytes.checked_mul(*dim as u64));
    if expected != Some(length) {
        let expected = expected.map_or("more than 2^64".into(), |bytes| bytes.to_string());
        return Err(format!("{data_type}{:?} needs {expected} bytes, its range has {length}", entry.shape));
    }
    let offset = start.checked_add(begin).filter(|offset| offset.checked_add(length).is_some_and(|end| end <= size));
    let offset = offset.ok_or_else(|| {
        format!("its data ends at byte {end} of {}: the file is truncated; download or save it again", size - start)
    })?;
    Ok(TensorInfo { data_type, dims: entry.shape.clone(), offset, length })
}

/// The tensors must cover the data exactly once.
fn check_coverage(tensors: &BTreeMap<String, TensorInfo>, start: u64, size: u64) -> Result<(), String> {
    let mut by_offset: Vec<(&String, &TensorInfo)> = tensors.iter().collect();
    by_offset.sort_by_key(|(_, info)| (info.offset, info.length));
    let mut end = start;
    let mut previous = "the header";
    for (name, info) in by_offset {
        if info.offset < end {
            return Err(format!("the tensors `{previous}` and `{name}` overlap"));
        }
        if info.offset > end {
            return Err(format!("{} bytes between `{previous}` and `{name}` belong to no tensor", info.offset - end));
        }
        end = info.offset + info.length;
        previous = name;
    }
    if end != size {
        return Err(format!("{} bytes after the last tensor belong to none", size - end));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(header: &str, data: usize) -> Vec<u8> {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(header.as_bytes());
        file.resize(file.len() + data, 0);
        file
    }

    fn error(header: &str, data: usize) -> String {
        parse_header(&file(header, data)).unwrap_err()
    }

    #[test]
    fn offsets_are_absolute() {
        let header = r#"{"__metadata__":{"a":"b"},"x":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]}}"#;
        let parsed = parse_header(&file(header, 12)).unwrap();
        assert_eq!(parsed.metadata["a"], "b");
        let x = &parsed.tensors["x"];
        assert_eq!(
            (x.data_type, x.dims.as_slice(), x.offset, x.length),
            (DataType::F16, &[2, 3][..], 8 + header.len() as u64, 12)
        );
    }

    #[test]
    fn every_defect_is_named() {
        assert!(parse_header(b"abc").unwrap_err().contains("at least 8 bytes, found 3"));
        assert!(parse_header(&[255; 16]).unwrap_err().contains("the file has 16"));
        assert!(parse_header(&[2, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe]).unwrap_err().contains("UTF-8"));
        assert!(error("[]", 0).contains("does not begin with `{`"));
        assert!(error("{", 0).contains("not a valid safetensors header"));
        let one = |dtype: &str, shape: &str, offsets: &str| {
            format!(r#"{{"x":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
        };
        assert!(error(&one("F7", "[1]", "[0,4]"), 4).contains("element type `F7`"));
        assert!(error(&one("F32", "[2]", "[0,4]"), 4).contains("needs 8 bytes, its range has 4"));
        assert!(error(&one("F32", "[4294967296,4294967296]", "[0,4]"), 4).contains("more than 2^64"));
        assert!(error(&one("F32", "[1]", "[4,0]"), 4).contains("before it begins"));
        assert!(error(&one("F32", "[2]", "[0,8]"), 4).contains("truncated"));
        assert!(error(&one("F32", "[1]", "[0,4]"), 5).contains("1 bytes after the last tensor"));
        assert!(error(&one("F32", "[1]", "[4,8]"), 8).contains("4 bytes between `the header` and `x`"));
        assert!(error(&one("F32", "[-1]", "[0,4]"), 4).contains("invalid value"));
        let tensor = |name: &str, offsets: &str| {
            let size = if name == "x" && offsets == "[0,1]" { 1 } else { 2 };
            format!(r#""{name}":{{"dtype":"U8","shape":[{size}],"data_offsets":{offsets}}}"#)
        };
        let two = format!("{{{},{}}}", tensor("x", "[0,2]"), tensor("y", "[1,3]"));
        assert!(error(&two, 3).contains("`x` and `y` overlap"));
        let twice = format!("{{{0},{0}}}", tensor("x", "[0,1]"));
        assert!(error(&twice, 1).contains("`x` is listed twice"));
    }

    /// Headers of up to three small tensors, most of them invalid.
    const HEADERS: &str = concat!(
        r#"\{("[a-z]{1,3}":\{"dtype":"(F32|U8|F16)","shape":\[[0-4]?\],"#,
        r#""data_offsets":\[[0-9],[0-9]\]\},?){0,3}\}"#,
    );

    proptest! {
        /// Every text gives a result or an error, and files that the reference reader accepts are read in the same
        /// way.
        #[test]
        fn any_header_has_an_answer(header in HEADERS, data in 0_usize..20) {
            let bytes = file(&header, data);
            let ours = parse_header(&bytes);
            if let Ok(reference) = ::safetensors::SafeTensors::deserialize(&bytes) {
                if let Ok(ours) = &ours {
                    prop_assert_eq!(reference.len(), ours.tensors.len());
                    for (name, info) in &ours.tensors {
                        prop_assert_eq!(reference.tensor(name).unwrap().shape().to_vec(), info.dims.clone());
                    }
                } else {
                    let reason = ours.unwrap_err();
                    prop_assert!(reason.contains("twice"), "{}", reason);
                }
            } else {
                prop_assert!(ours.is_err());
            }
        }

        #[test]
        fn any_bytes_have_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_header(&bytes);
        }
    }
}
