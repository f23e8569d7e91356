//! Half a minute of chaos with a seed that is always the same, and half a minute with
//! one of the clock. A finding is printed with its seed, the shortest list of actions
//! that failed again, and the command that repeats it. Needs root.

#![expect(
    clippy::unwrap_used,
    reason = "clippy knows tests by their attribute, not their helpers"
)]

use std::process::Command;

use tweed_lab::Programs;

/// Runs the driver and fails with all that it prints if there is a finding.
fn passes(arguments: &[&str]) {
    let output = Command::new(Programs::find().unwrap().own("tweed-chaos").unwrap())
        .args(["--seconds", "25", "--shrink-seconds", "180", "--verbose"])
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}\n{text}");
    assert!(text.contains("no finding: "), "{text}");
}

#[test]
fn a_fixed_seed() {
    passes(&["--seed", "1"]);
}

#[test]
fn a_seed_of_the_clock() {
    passes(&[]);
}
