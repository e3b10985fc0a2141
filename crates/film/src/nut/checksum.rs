//! The CRC of NUT: the polynomial of Ethernet, most significant bit first, without inversions.

const POLYNOMIAL: u32 = 0x04c1_1db7;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let (mut value, mut bit) = ((index as u32) << 24, 0);
        while bit < 8 {
            value = if value & 1 << 31 == 0 { value << 1 } else { value << 1 ^ POLYNOMIAL };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
};

pub(super) fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, byte| sum << 8 ^ TABLE[(sum >> 24) as usize ^ usize::from(*byte)])
}
