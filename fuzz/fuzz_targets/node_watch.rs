//! libFuzzer on [`tweed_fuzz::node_watch`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tweed_fuzz::node_watch::check(data));
