//! libFuzzer on [`tweed_fuzz::agent_socket`].
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tweed_fuzz::agent_socket::check(data));
