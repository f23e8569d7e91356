//! The program as a person at a shell meets it, as far as it needs no kernel.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Output};
use std::time::Duration;

#[path = "program/refused_values.rs"]
mod refused_values;

/// Maximum time for what takes milliseconds on a machine that is not busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asked at run time: the wrapper around rustc is a shell, which does not pass
/// on variables with a `-` in their name.
fn program() -> Command {
    Command::new(std::env::var_os("CARGO_BIN_EXE_tweed-agent").unwrap())
}

fn agent(line: &str) -> Output {
    agent_with(&[], line)
}

/// With these variables and no other ones of the agent.
fn agent_with(variables: &[(&str, &str)], line: &str) -> Output {
    let mut command = program();
    let inherited = std::env::vars_os().map(|(name, _)| name);
    for name in inherited.filter(|name| name.to_string_lossy().starts_with("TWEED_")) {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    command.args(line.split_whitespace()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn help_has_groups_examples_and_every_default() {
    let output = agent("--help");
    assert!(output.status.success());
    let help = String::from_utf8(output.stdout).unwrap();
    for part in [
        "Nodes:",
        "Overlay:",
        "Masquerading:",
        "Files:",
        "Running:",
        "Examples:",
        "[default: 8472]",
        "[env: TWEED_CLUSTER_CIDR=]",
    ] {
        assert!(help.contains(part), "no {part:?} in:\n{help}");
    }
}

#[test]
fn version_is_the_packages() {
    let output = agent("--version");
    let expected = format!("tweed-agent {}\n", tweed_agent::VERSION);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn a_flag_that_is_not_understood_ends_with_2_and_names_it() {
    let output = agent("--vni 16777216");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--vni"), "{}", stderr(&output));
}

#[test]
fn a_variable_is_checked_like_its_flag() {
    for (lines, words) in refused_values::REFUSED {
        let variables: Vec<_> = lines
            .lines()
            .filter_map(|line| line.split_once('='))
            .collect();
        let output = agent_with(&variables, "");
        assert!(!output.status.success(), "{lines}");
        let error = stderr(&output);
        assert!(error.contains(words), "{lines}: {error}");
    }
}

#[test]
fn a_misspelt_variable_is_a_warning_that_names_the_right_one() {
    let line = "--node-name a --nodes /x --run-dir /dev/null/x";
    let error = stderr(&agent_with(
        &[("TWEED_CLUSTER_CIDER", "10.244.0.0/16")],
        line,
    ));
    let line = error
        .lines()
        .find(|line| line.contains("TWEED_CLUSTER_CIDER"))
        .unwrap_or_default();
    assert!(
        line.contains("WARN") && line.contains("TWEED_CLUSTER_CIDR"),
        "{error}"
    );
}

#[test]
fn flags_that_contradict_each_other_end_with_1_and_one_line() {
    let output = agent("--node-name a --nodes /x --cluster-cidr 10.0.0.0/16,10.1.0.0/16");
    assert_eq!(output.status.code(), Some(1));
    let error = stderr(&output);
    assert_eq!(
        error,
        "tweed-agent: --cluster-cidr 10.0.0.0/16,10.1.0.0/16: both are IPv4; allowed is one per family\n"
    );
}

/// The log is a file on a disk that is full: the agent goes on as far as it can without it.
#[test]
fn a_log_that_cannot_be_written_is_no_reason_to_panic() {
    let mut command = program();
    // It says that it has started, and ends because of the folder.
    let line = "--node-name a --nodes /x --run-dir /dev/null/x";
    command.args(line.split_whitespace());
    let full = File::options().write(true).open("/dev/full").unwrap();
    let status = command.stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(1), "{status}");
}

/// As systemd starts it for a unit with `WatchdogSec`. The agent has a network namespace of
/// its own, and no Nodes.
#[test]
fn systemd_s_watchdog_hears_that_the_loop_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let listener = UnixDatagram::bind(path("notify")).unwrap();
    listener.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = Command::new("unshare");
    command.arg("--net").arg(program().get_program());
    for (flag, value) in [
        ("--node-name", "a".to_owned()),
        ("--nodes", path("nodes.yaml")),
        ("--run-dir", path("run")),
        ("--cni-conf-dir", path("net.d")),
        ("--cni-bin-dir", path("bin")),
    ] {
        command.args([flag, &value]);
    }
    command.env("NOTIFY_SOCKET", path("notify"));
    command.env("WATCHDOG_USEC", "20000");
    let log = File::create(path("log")).unwrap();
    let mut agent = command.stderr(log).spawn().unwrap();
    let heard = [(); 3].map(|()| {
        let mut message = [0; 64];
        let length = listener.recv(&mut message);
        length.map(|length| String::from_utf8_lossy(&message[..length]).into_owned())
    });
    agent.kill().unwrap();
    agent.wait().unwrap();
    let log = std::fs::read_to_string(path("log")).unwrap();
    for message in heard {
        assert_eq!(message.ok().as_deref(), Some("WATCHDOG=1"), "{log}");
    }
}
