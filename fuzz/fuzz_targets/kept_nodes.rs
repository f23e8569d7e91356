//! libFuzzer on [`tweed_fuzz::kept_nodes`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tweed_fuzz::kept_nodes::check(data));
