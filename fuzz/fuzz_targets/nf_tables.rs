//! libFuzzer on [`tweed_fuzz::nf_tables`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tweed_fuzz::nf_tables::check(data));
