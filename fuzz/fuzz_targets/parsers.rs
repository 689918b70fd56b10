//! Bytes as what the reference kernel parses; see `softfault_parsers`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(found) = softfault_parsers::run(bytes) {
        panic!("{found}");
    }
});
