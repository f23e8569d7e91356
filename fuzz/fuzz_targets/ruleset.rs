//! libFuzzer on [`tweed_fuzz::ruleset`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tweed_fuzz::ruleset::check(data));
