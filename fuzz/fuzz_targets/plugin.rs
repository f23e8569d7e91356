//! libFuzzer on [`tweed_fuzz::plugin`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tweed_fuzz::plugin::check(data));
