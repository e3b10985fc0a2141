//! When freed blocks of memory go back to the system.
//!
//! Unsafe code: the signature is that of glibc's `malloc.h`.
#![allow(unsafe_code)]

use std::ffi::c_int;

/// Sets the size from which glibc maps blocks separately. Also makes glibc return the end of its heap when twice this
/// size is free there. No effect with other C libraries.
pub(crate) fn set_large_blocks(bytes: i32) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// From malloc.h.
        const M_TRIM_THRESHOLD: c_int = -1;
        const M_MMAP_THRESHOLD: c_int = -3;
        unsafe extern "C" {
            fn mallopt(parameter: c_int, value: c_int) -> c_int;
        }
        for (parameter, value) in [(M_MMAP_THRESHOLD, bytes), (M_TRIM_THRESHOLD, 2 * bytes)] {
            // SAFETY: the signature is that of malloc.h. The values are numbers that glibc changes itself, without a
            // lock, while other threads take memory. Where it refuses one, the sizes stay as they are.
            unsafe { mallopt(parameter, value) };
        }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _: c_int = bytes;
}
