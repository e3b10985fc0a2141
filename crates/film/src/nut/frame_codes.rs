//! The meaning of a frame's first byte.

use std::io;

use super::flags;
use super::number::{Numbers, damaged, put};

/// The meaning of one value of a frame's first byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameCode {
    pub(super) flags: u64,
    pub(super) stream: u64,
    pub(super) size_factor: u64,
    pub(super) size_rest: u64,
    pub(super) time_step: i64,
    pub(super) reserved: u64,
    pub(super) header: u64,
}

const INVALID: FrameCode =
    FrameCode { flags: flags::INVALID, stream: 0, size_factor: 1, size_rest: 0, time_step: 0, reserved: 0, header: 0 };

/// The first byte of packets that are not frames.
pub(super) const PACKET: u8 = b'N';

/// Reads the table of a main header.
pub(super) fn table(numbers: &mut Numbers<'_>) -> io::Result<[FrameCode; 256]> {
    let mut table = [INVALID; 256];
    let mut code = FrameCode { size_factor: 1, ..INVALID };
    let mut index = 0;
    while index < table.len() {
        code.flags = numbers.number()?;
        let fields = numbers.number()?;
        if fields > 0 {
            code.time_step = numbers.signed()?;
        }
        if fields > 1 {
            code.size_factor = numbers.number()?;
        }
        if fields > 2 {
            code.stream = numbers.number()?;
        }
        let rest = if fields > 3 { numbers.number()? } else { 0 };
        code.reserved = if fields > 4 { numbers.number()? } else { 0 };
        let count = if fields > 5 { numbers.number()? } else { code.size_factor.saturating_sub(rest) };
        if fields > 6 {
            numbers.signed()?;
        }
        if fields > 7 {
            code.header = numbers.number()?;
        }
        for _ in 8..fields {
            numbers.number()?;
        }
        if count == 0 || count > 256 {
            return Err(damaged(format!("a frame code that stands for {count} values")));
        }
        let mut set = 0;
        while set < count && index < table.len() {
            if index != usize::from(PACKET) {
                table[index] = FrameCode { size_rest: rest.saturating_add(set), ..code };
                set += 1;
            }
            index += 1;
        }
    }
    Ok(table)
}

/// Appends a table in which every value means that the frame's header holds all fields.
pub(super) fn put_plain_table(bytes: &mut Vec<u8>) {
    put(bytes, flags::CODED);
    // Fields: time step, factor and rest of the size, stream, reserved, and for how many values.
    for number in [6, 0, 1, 0, 0, 0, 255] {
        put(bytes, number);
    }
}
