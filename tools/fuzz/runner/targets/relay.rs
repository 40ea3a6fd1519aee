#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| longarm_fuzz::relay(data));
