//! libFuzzer on [`tweed_fuzz::node_list`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tweed_fuzz::node_list::check(data));
