//! libFuzzer on [`tweed_fuzz::flags`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tweed_fuzz::flags::check(data));
