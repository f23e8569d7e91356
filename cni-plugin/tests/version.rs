//! What a person at a shell asks the program.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

fn tweed(arguments: &[&str]) -> (bool, String) {
    let program = std::env::var_os("CARGO_BIN_EXE_tweed").unwrap();
    let mut command = Command::new(program);
    command.args(arguments).env_remove("CNI_COMMAND");
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.success(), text)
}

#[test]
fn it_says_its_version_and_without_arguments_what_a_runtime_has_forgotten() {
    let (ok, text) = tweed(&["--version"]);
    let version = concat!("tweed ", env!("CARGO_PKG_VERSION"), " (");
    assert!(
        ok && text.starts_with(version) && text.ends_with(")\n"),
        "{text}"
    );
    for arguments in [&[][..], &["--help"], &["--version", "x"]] {
        let (ok, text) = tweed(arguments);
        assert!(!ok && text.contains("CNI_COMMAND is missing"), "{text}");
    }
}
