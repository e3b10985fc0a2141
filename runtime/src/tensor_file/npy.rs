//! NumPy's `.npy` files.
//!
//! Source: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.

use std::io::Read;

use tileforge_contract::DataType;

use super::stored::{Description, Stored};

const MAGIC: &[u8] = b"\x93NUMPY";
/// The data begins at a multiple of this.
const ALIGNMENT: usize = 64;
/// The most axes of a tensor; NumPy allows 64.
const AXES_MAXIMUM: usize = 64;
/// Bytes of a header. NumPy's own reader refuses more than 10,000.
const HEADER_MAXIMUM_BYTES: usize = 64 << 10;

/// The names of NumPy's types, without the order of bytes.
const TYPES: [(DataType, &str); 12] = [
    (DataType::F16, "f2"),
    (DataType::F32, "f4"),
    (DataType::F64, "f8"),
    (DataType::I8, "i1"),
    (DataType::I16, "i2"),
    (DataType::I32, "i4"),
    (DataType::I64, "i8"),
    (DataType::U8, "u1"),
    (DataType::U16, "u2"),
    (DataType::U32, "u4"),
    (DataType::U64, "u8"),
    (DataType::Bool, "b1"),
];

/// The contents of the header.
#[derive(Debug)]
pub(super) struct Header {
    data_type: DataType,
    big_endian: bool,
    /// The first axis varies fastest.
    fortran_order: bool,
    shape: Vec<usize>,
}

impl Header {
    /// Reads the header at the beginning of a `.npy` file. Returns it with the number of its bytes.
    pub(super) fn read(file: &mut impl Read) -> Result<(Self, u64), String> {
        let damaged = || "a truncated or damaged .npy file".to_owned();
        let mut taken = |length: usize| {
            let mut bytes = Vec::with_capacity(length);
            file.take(length as u64).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
            Ok::<_, String>(bytes)
        };
        let start = taken(MAGIC.len() + 2)?;
        let version = start.strip_prefix(MAGIC).ok_or("expected a .npy file, found something else")?;
        let (width, length) = match version {
            [1, _] => (2, taken(2)?),
            [2 | 3, _] => (4, taken(4)?),
            [other, _] => return Err(format!("expected version 1 to 3 of the .npy format, found {other}")),
            _ => return Err(damaged()),
        };
        let length = match *length.as_slice() {
            [a, b] => usize::from(u16::from_le_bytes([a, b])),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]) as usize,
            _ => return Err(damaged()),
        };
        if length > HEADER_MAXIMUM_BYTES {
            return Err(format!("expected a header of at most {HEADER_MAXIMUM_BYTES} bytes, found {length}"));
        }
        let header = taken(length)?;
        let text = std::str::from_utf8(&header).ok().filter(|_| header.len() == length).ok_or_else(damaged)?;
        Ok((Words(text).header()?, (start.len() + width + length) as u64))
    }

    /// Bytes of all elements.
    ///
    /// # Errors
    /// The elements do not take `found` bytes.
    pub(super) fn bytes(&self, found: u64) -> Result<usize, String> {
        let size = self.data_type.size();
        let count = self.shape.iter().try_fold(size, |count, length| count.checked_mul(*length));
        match count {
            Some(count) if count as u64 == found => Ok(count),
            _ => {
                let expected = count.map_or("more than there can be".into(), |count| count.to_string());
                Err(format!("expected {expected} bytes of elements, found {found}"))
            }
        }
    }

    pub(super) fn description(&self) -> Description {
        Description { data_type: self.data_type, shape: self.shape.clone() }
    }

    /// The tensor of the bytes that follow the header.
    pub(super) fn tensor(self, data: Vec<u8>) -> Result<Stored, String> {
        self.bytes(data.len() as u64)?;
        let size = self.data_type.size();
        let mut data = if self.fortran_order { row_major(&data, &self.shape, size) } else { data };
        if self.big_endian {
            data.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        Ok(Stored { data_type: self.data_type, shape: self.shape, bytes: data })
    }
}

/// The tensor of a `.npy` file's bytes.
///
/// # Errors
/// What was expected and what was found, for a file that is truncated, damaged, or does not hold numbers.
pub fn from_npy(mut bytes: &[u8]) -> Result<Stored, String> {
    let (header, _) = Header::read(&mut bytes)?;
    header.tensor(bytes.to_vec())
}

/// The bytes of a `.npy` file that holds a tensor.
///
/// # Errors
/// NumPy has no such type.
pub fn to_npy(tensor: &Stored) -> Result<Vec<u8>, String> {
    let name = TYPES.iter().find(|(data_type, _)| *data_type == tensor.data_type).map(|(_, name)| *name);
    let name = name.ok_or_else(|| format!("NumPy has no elements of {}; write .safetensors", tensor.data_type))?;
    let order = if tensor.data_type.size() == 1 { '|' } else { '<' };
    // In Python, a tuple of one number has a trailing comma.
    let lengths: String = tensor.shape.iter().map(|length| format!("{length}, ")).collect();
    let lengths = if tensor.shape.len() > 1 { lengths.trim_end_matches(", ") } else { lengths.trim_end() };
    let mut header = format!("{{'descr': '{order}{name}', 'fortran_order': False, 'shape': ({lengths}), }}");
    let start = MAGIC.len() + 2 + 2;
    let end = (start + header.len() + 1).next_multiple_of(ALIGNMENT);
    header.extend(std::iter::repeat_n(' ', end - start - header.len() - 1));
    header.push('\n');
    let length = u16::try_from(header.len()).map_err(|_| "too many axes for a .npy file".to_owned())?;
    Ok([MAGIC, &[1, 0], &length.to_le_bytes(), header.as_bytes(), &tensor.bytes].concat())
}

/// Elements with the first axis varying fastest, in the order with the last axis varying fastest.
fn row_major(data: &[u8], shape: &[usize], size: usize) -> Vec<u8> {
    let mut ordered = Vec::with_capacity(data.len());
    let mut place = vec![0; shape.len()];
    for _ in 0..data.len() / size {
        let at = place.iter().zip(shape).rev().fold(0, |at, (index, length)| at * length + index);
        ordered.extend_from_slice(&data[at * size..][..size]);
        for (index, length) in place.iter_mut().zip(shape).rev() {
            *index += 1;
            if *index < *length {
                break;
            }
            *index = 0;
        }
    }
    ordered
}

/// The rest of the header: the literal of a Python dictionary.
struct Words<'t>(&'t str);

impl<'t> Words<'t> {
    fn header(mut self) -> Result<Header, String> {
        let damaged = || "its header is damaged".to_owned();
        let (mut description, mut fortran_order, mut shape) = (None, None, None);
        self.take("{").ok_or_else(damaged)?;
        while self.take("}").is_none() {
            let key = self.text().ok_or_else(damaged)?;
            self.take(":").ok_or_else(damaged)?;
            match key {
                "descr" => {
                    let no_numbers = "expected elements that are numbers of one kind, found records";
                    description = Some(self.text().ok_or(no_numbers)?);
                }
                "fortran_order" => fortran_order = Some(self.boolean().ok_or_else(damaged)?),
                "shape" => shape = Some(self.tuple().ok_or_else(damaged)?),
                _ => return Err(damaged()),
            }
            let _ = self.take(",");
        }
        let (Some(description), Some(fortran_order), Some(shape)) = (description, fortran_order, shape) else {
            return Err(damaged());
        };
        let unknown = || {
            let shown: String = description.chars().take(40).collect();
            format!("no engine takes elements of NumPy's type `{}`", shown.escape_debug())
        };
        let (order, name) = description.split_at_checked(1).ok_or_else(unknown)?;
        let (data_type, _) = TYPES.iter().find(|(_, known)| *known == name).ok_or_else(unknown)?;
        let big_endian = match order {
            "<" | "|" | "=" => false,
            ">" => true,
            _ => return Err(unknown()),
        };
        Ok(Header { data_type: *data_type, big_endian, fortran_order, shape })
    }

    fn take(&mut self, word: &str) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(word)?;
        Some(())
    }

    fn text(&mut self) -> Option<&'t str> {
        self.take("'")?;
        let (text, rest) = self.0.split_once('\'')?;
        self.0 = rest;
        Some(text)
    }

    fn boolean(&mut self) -> Option<bool> {
        if self.take("True").is_some() {
            return Some(true);
        }
        self.take("False").map(|()| false)
    }

    fn tuple(&mut self) -> Option<Vec<usize>> {
        self.take("(")?;
        let (lengths, rest) = self.0.split_once(')')?;
        self.0 = rest;
        let lengths = lengths.trim().trim_end_matches(',');
        if lengths.is_empty() {
            return Some(Vec::new());
        }
        let lengths: Option<Vec<usize>> = lengths.split(',').map(|length| length.trim().parse().ok()).collect();
        lengths.filter(|lengths| lengths.len() <= AXES_MAXIMUM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
    }

    #[test]
    fn the_header_is_as_numpy_writes_it() {
        let tensor = |shape: &[usize]| Stored {
            data_type: DataType::U16,
            shape: shape.to_vec(),
            bytes: vec![0; 2 * shape.iter().product::<usize>()],
        };
        for (shape, written) in [(&[][..], "()"), (&[3], "(3,)"), (&[2, 3], "(2, 3)")] {
            let bytes = to_npy(&tensor(shape)).unwrap();
            let expected = format!("{{'descr': '<u2', 'fortran_order': False, 'shape': {written}, }} ");
            assert!(bytes[10..].starts_with(expected.as_bytes()), "{}", String::from_utf8_lossy(&bytes));
            assert_eq!((bytes[127], bytes.len()), (b'\n', 128 + tensor(shape).bytes.len()));
            assert_eq!(from_npy(&bytes).unwrap(), tensor(shape));
        }
    }

    #[test]
    fn orders_of_bytes_and_axes_are_undone() {
        let big = file("{'shape': (2, ), 'fortran_order': False, 'descr': '>u2'}", &[1, 2, 3, 4]);
        assert_eq!(from_npy(&big).unwrap().bytes, [2, 1, 4, 3]);
        let columns = file("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", &[1, 4, 2, 5, 3, 6]);
        assert_eq!(from_npy(&columns).unwrap().bytes, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn other_files_are_refused() {
        for (header, data, expected) in [
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 7, "expected 8 bytes of elements, found 7"),
            ("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", 8, "NumPy's type `<c8`"),
            ("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,), }", 4, "found records"),
            ("{'descr': '<f4', 'shape': (1,), }", 4, "its header is damaged"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", 4, "its header is damaged"),
            (
                "{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551615, 9), }",
                4,
                "more than there can be",
            ),
        ] {
            let error = from_npy(&file(header, &vec![0; data])).unwrap_err();
            assert!(error.contains(expected), "{header}: {error}");
        }
        assert!(from_npy(b"PK").unwrap_err().contains("something else"));
    }
}
