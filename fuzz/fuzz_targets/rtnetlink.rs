//! libFuzzer on [`tweed_fuzz::rtnetlink`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tweed_fuzz::rtnetlink::check(data));
