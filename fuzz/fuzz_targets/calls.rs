//! Bytes as calls and accesses on a hosted machine, judged by the model; see
//! `softfault_testkit::fuzz`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(difference) = softfault_testkit::fuzz::run(bytes) {
        panic!("{difference}");
    }
});
