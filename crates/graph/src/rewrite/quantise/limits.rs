//! The largest quantised values.

/// The largest number of E4M3.
pub(super) const F8_MAXIMUM: f64 = 448.0;
/// The largest quantised value of signed 8 bits. -128 is not used, so that the numbers are symmetric around 0.
pub(super) const I8_MAXIMUM: f64 = 127.0;
