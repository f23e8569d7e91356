//! libFuzzer on [`tweed_fuzz::store`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tweed_fuzz::store::check(data));
