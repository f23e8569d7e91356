//! The demo: run to its end, interrupted, killed, and kept.
#![expect(
    clippy::unwrap_used,
    reason = "clippy knows tests by their attribute, not their helpers"
)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tweed_lab::{Programs, take_down};

fn tweed_lab(verb: &str, name: &str, more: &[&str]) -> Command {
    let mut command = Command::new(Programs::find().unwrap().own("tweed-lab").unwrap());
    command.args([verb, "--name", name]).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A unique lab name for a test, so that another demo may run at the same time. On
/// drop, what a failed test has left is removed.
struct Name(String);

impl Name {
    fn new(test: &str) -> Self {
        Self(format!("d{}-{test}", std::process::id()))
    }
}

impl std::ops::Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        take_down(self).unwrap();
    }
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|b| String::from_utf8_lossy(b));
    format!("{out}{err}")
}

fn namespaces_of(name: &str) -> usize {
    let names = std::fs::read_dir("/run/netns").into_iter().flatten();
    let prefix = format!("{name}-");
    names
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .count()
}

fn assert_nothing_is_left(name: &str) {
    assert_eq!(namespaces_of(name), 0);
    assert!(!Path::new("/run/tweed-lab").join(name).exists());
}

/// Starts a demo and waits until it prints `words`.
fn started(name: &str, words: &str) -> Child {
    let mut child = tweed_lab("demo", name, &[]).spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let mut lines = stdout.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains(words)), "{words}");
    child
}

#[test]
fn every_path_works_and_nothing_is_left() {
    let name = Name::new("whole");
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("demo.svg");
    let output = tweed_lab("demo", &name, &["--svg", svg.to_str().unwrap()])
        .output()
        .unwrap();
    let printed = text(&output);
    assert!(output.status.success(), "{printed}");
    for words in [
        "✓ 81 paths",
        "✓ 144 paths",
        "no route to 10.244.2.0/24 is left",
        "tweed.1  10.244.4.0",
        "VXLAN, VNI 1, UDP 8472, MTU 1450",
        "Every path works.",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    let drawing = std::fs::read_to_string(svg).unwrap();
    assert!(drawing.starts_with("<svg") && drawing.contains("pod d2"));
    assert_nothing_is_left(&name);
}

#[test]
fn a_broken_path_is_named() {
    let name = Name::new("broken");
    let mut demo = tweed_lab("demo", &name, &[]).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("✓ 81 paths")));
    let cut = Command::new("ip")
        .args(["-n", &format!("{}-c1", name.0)])
        .args(["link", "set", "eth0", "down"])
        .status()
        .unwrap();
    assert!(cut.success());
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    let output = demo.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    for path in ["a1 → c1: ping: 0 of 3 answered", "node4 → c1: ping"] {
        assert!(rest.iter().any(|line| line.contains(path)), "{rest:#?}");
    }
    let last = String::from_utf8_lossy(&output.stderr);
    assert!(last.contains("paths fail, the first: "), "{last}");
    assert_nothing_is_left(&name);
}

#[test]
fn a_signal_removes_the_demo() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let name = Name::new("signal");
        let mut demo = started(&name, "every path");
        kill(Pid::from_raw(demo.id().cast_signed()), signal).unwrap();
        assert_eq!(demo.wait().unwrap().code(), Some(128 + signal as i32));
        assert_nothing_is_left(&name);
    }
}

#[test]
fn a_killed_demo_is_named_and_can_be_removed() {
    let name = Name::new("killed");
    let mut demo = started(&name, "every path");
    demo.kill().unwrap();
    demo.wait().unwrap();
    assert!(namespaces_of(&name) > 0);

    let again = tweed_lab("demo", &name, &[]).output().unwrap();
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again).contains("make demo-down"), "{}", text(&again));

    let down = tweed_lab("down", &name, &[]).output().unwrap();
    assert!(down.status.success(), "{}", text(&down));
    assert_nothing_is_left(&name);
}

#[test]
fn a_kept_demo_stays_until_it_is_removed() {
    let name = Name::new("kept");
    let demo = tweed_lab("demo", &name, &["--keep"]).output().unwrap();
    assert!(demo.status.success(), "{}", text(&demo));
    let ping = Command::new("ip")
        .args(["netns", "exec", &format!("{}-a1", name.0)])
        .args(["ping", "-c1", "-W2", "10.244.3.2"])
        .output()
        .unwrap();
    assert!(ping.status.success(), "{}", text(&ping));

    let down = tweed_lab("down", &name, &[]).output().unwrap();
    assert!(down.status.success(), "{}", text(&down));
    assert_nothing_is_left(&name);
    let nothing = tweed_lab("down", &name, &[]).output().unwrap();
    assert!(nothing.status.success(), "{}", text(&nothing));
}

#[test]
fn policies_decide_who_reaches_whom_and_the_agent_says_why() {
    let name = Name::new("policy");
    let output = tweed_lab("policy", &name, &[]).output().unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    for part in [
        "12 of 12 connections",
        "3 of 12 connections",
        "5 of 12 connections",
        "NetworkPolicy shop/default-deny",
    ] {
        assert!(text.contains(part), "no {part}: {text}");
    }
    assert_nothing_is_left(&name);
}
