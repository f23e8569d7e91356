//! libFuzzer on [`tweed_fuzz::iptables_legacy`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tweed_fuzz::iptables_legacy::check(data));
