//! libFuzzer on [`tweed_fuzz::node_file`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tweed_fuzz::node_file::check(data));
