//! libFuzzer on [`tweed_fuzz::services`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tweed_fuzz::services::check(data));
