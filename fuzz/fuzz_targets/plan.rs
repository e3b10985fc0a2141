//! What a plan runs, read from any bytes.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use tileforge_tensorrt::{PlanHeader, Program};

fuzz_target!(|plan: &[u8]| {
    let _ = PlanHeader::read(plan);
    let _ = Program::read(&mut Cursor::new(plan));
    // As the text of a program, which random bytes rarely become.
    let mut framed = b"NLYM\xa1\xda\x1e\x00".to_vec();
    framed.extend((plan.len() as u64 + 8).to_le_bytes());
    framed.extend(b"header {");
    framed.extend(plan);
    let _ = Program::read(&mut Cursor::new(framed));
});
