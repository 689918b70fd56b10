//! Bytes as calls, faults and accesses on all kinds of memory; see `softfault_testkit::fuzz::memory`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(found) = softfault_testkit::fuzz::memory::run(bytes) {
        panic!("{found}");
    }
});
