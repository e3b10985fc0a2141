//! Each fuzz target on its seeds, and on inputs that are made of them or by chance: always the same ones. The targets
//! use the libraries that all tests use. `make fuzz` compiles everything again, and looks for inputs that reach further.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail
#![allow(unexpected_cfgs)] // `cargo fuzz` sets `fuzzing`

use end_to_end::{names_in, repository};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Inputs of each target.
const INPUTS: usize = 10_000;
/// Bytes of an input at most, as libFuzzer's default is.
const LONGEST: usize = 4096;
/// What all targets may have of memory at the same time.
#[cfg(unix)]
const MEMORY_BYTES: u64 = 4 << 30;
/// Numbers that are limits of something.
const NUMBERS: [u64; 10] =
    [0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, 0xffff_ffff_ffff_ffff];
/// What texts and JSON are made of.
const WORDS: [&str; 16] = [
    "0",
    "-1",
    "1e300",
    "1e-300",
    "99999999999999999999",
    "null",
    "true",
    "[]",
    "{}",
    "[[[[",
    "\"\"",
    "\\u0000",
    "../",
    "/",
    "%s",
    "\u{fffd}",
];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn of<'a, T>(&mut self, values: &'a [T]) -> &'a T {
        &values[self.below(values.len())]
    }

    /// Of all lengths, short ones more often. Of some, most bytes are small numbers.
    fn bytes(&mut self) -> Vec<u8> {
        let (longest, small) = (1 << self.below(LONGEST.ilog2() as usize + 1), self.below(4));
        let byte = |random: &mut Self| random.next() as u8 >> (random.below(8) * small / 3);
        (0..=self.below(longest)).map(|_| byte(self)).collect()
    }

    /// A place of at most so many bytes.
    fn range(&mut self, length: usize, longest: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        start..(start + self.below(longest + 1)).min(length)
    }

    /// One change: of bits, bytes, numbers and words, within it or with a part of another input.
    fn change(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        let place = self.range(input.len(), 64);
        match self.below(9) {
            0 if place.start < input.len() => input[place.start] ^= 1 << self.below(8),
            1 if place.start < input.len() => input[place.start] = self.next() as u8,
            2 => input.truncate(place.start),
            3 => drop(input.drain(place)),
            4 => {
                let copied = input[place.clone()].to_vec();
                input.splice(place.start..place.start, copied);
            }
            5 => {
                let of_other = self.range(other.len(), 64);
                input.splice(place, other[of_other].iter().copied());
            }
            6 => {
                let number = self.of(&NUMBERS).wrapping_add(self.next() % 3).wrapping_sub(1).to_le_bytes();
                let mut number = number[..*self.of(&[1, 2, 4, 8])].to_vec();
                if self.below(2) == 0 {
                    number.reverse();
                }
                let end = (place.start + number.len()).min(input.len());
                input.splice(place.start..end, number);
            }
            // A word in the place of another: of letters and digits up to what divides them.
            7 => {
                let divides = |byte: &u8| !byte.is_ascii_alphanumeric();
                let end = input[place.start..].iter().position(divides).map_or(input.len(), |end| place.start + end);
                let word = *self.of(&WORDS);
                input.splice(place.start..end, word.bytes());
            }
            _ => {
                let word = *self.of(&WORDS);
                input.splice(place.start..place.start, word.bytes());
            }
        }
        input.truncate(LONGEST);
    }
}

/// The seeds of a target, in the order of their names.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = repository("fuzz/seeds").join(target);
    // A target whose inputs have a structure needs none.
    let names = if folder.exists() { names_in(&folder) } else { Vec::new() };
    names.iter().map(|name| fs::read(folder.join(name)).unwrap()).collect()
}

/// Runs a target, and keeps the first input that makes it panic.
fn replay(target: &str, run: fn(&[u8])) {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, setrlimit};
        setrlimit(Resource::As, Rlimit { current: Some(MEMORY_BYTES), maximum: None }).unwrap();
    }
    let mut random = Random(1);
    let seeds = seeds(target);
    let made: Vec<_> = (0..256).map(|_| random.bytes()).collect();
    let run_kept = |input: &[u8]| {
        // What it panics with is printed when it does.
        if catch_unwind(AssertUnwindSafe(|| run(input))).is_err() {
            let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{target}.input"));
            fs::write(&kept, input).unwrap();
            panic!("the input is {0}; `cargo fuzz run {target} {0}` repeats it", kept.display());
        }
    };
    [Vec::new()].iter().chain(&seeds).chain(&made).for_each(|input| run_kept(input));
    for number in 0..INPUTS {
        // Most come from seeds where there are some.
        let known = if seeds.is_empty() || number % 8 == 0 { &made } else { &seeds };
        let mut input = random.of(known).clone();
        for _ in 0..=random.below(8) {
            let other = random.of(known);
            random.change(&mut input, other);
        }
        run_kept(&input);
    }
}

/// In the place of libFuzzer's, which the files of the targets take where they are fuzzed: the test of a target.
macro_rules! fuzz_target {
    (|$bytes:ident: &[u8]| $body:block) => {
        fn run($bytes: &[u8]) $body

        test_of!();
    };
    (|$input:ident: $kind:ty| $body:block) => {
        fn run(bytes: &[u8]) {
            let made = <$kind as arbitrary::Arbitrary>::arbitrary_take_rest(arbitrary::Unstructured::new(bytes));
            let Ok($input) = made else { return };
            $body
        }

        test_of!();
    };
}

macro_rules! test_of {
    () => {
        #[test]
        fn stands_every_input() {
            let target = module_path!().rsplit("::").next().unwrap();
            crate::replay(target, run);
        }
    };
}

#[path = "../../fuzz/fuzz_targets/archive.rs"]
mod archive;
#[path = "../../fuzz/fuzz_targets/film.rs"]
mod film;
#[path = "../../fuzz/fuzz_targets/frames.rs"]
mod frames;
#[path = "../../fuzz/fuzz_targets/lora.rs"]
mod lora;
#[path = "../../fuzz/fuzz_targets/manifest.rs"]
mod manifest;
#[path = "../../fuzz/fuzz_targets/metadata.rs"]
mod metadata;
#[path = "../../fuzz/fuzz_targets/model_index.rs"]
mod model_index;
#[path = "../../fuzz/fuzz_targets/onnx.rs"]
mod onnx;
#[path = "../../fuzz/fuzz_targets/plan.rs"]
mod plan;
#[path = "../../fuzz/fuzz_targets/png_chunks.rs"]
mod png_chunks;
#[path = "../../fuzz/fuzz_targets/registry.rs"]
mod registry;
#[path = "../../fuzz/fuzz_targets/safetensors_header.rs"]
mod safetensors_header;
#[path = "../../fuzz/fuzz_targets/scheduler.rs"]
mod scheduler;
#[path = "../../fuzz/fuzz_targets/tensor_file.rs"]
mod tensor_file;
#[path = "../../fuzz/fuzz_targets/tiff.rs"]
mod tiff;
#[path = "../../fuzz/fuzz_targets/tile_plan.rs"]
mod tile_plan;
#[path = "../../fuzz/fuzz_targets/tokenizer.rs"]
mod tokenizer;
#[path = "../../fuzz/fuzz_targets/torch_file.rs"]
mod torch_file;

/// Every file of the folder has its line here, and its entry in `fuzz/Cargo.toml`.
#[test]
fn every_target_is_listed() {
    let files = names_in(&repository("fuzz/fuzz_targets"));
    let here = include_str!("fuzz.rs").lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(";"));
    assert_eq!(here.map(|name| format!("{name}.rs")).collect::<Vec<_>>(), files);
    let manifest = fs::read_to_string(repository("fuzz/Cargo.toml")).unwrap();
    let path = |line: &str| Some(line.strip_prefix("path = \"fuzz_targets/")?.strip_suffix('"')?.to_owned());
    let mut programs: Vec<_> = manifest.lines().filter_map(path).collect();
    programs.sort();
    assert_eq!(programs, files);
}
