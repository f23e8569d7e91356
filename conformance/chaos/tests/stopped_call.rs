//! A DEL that is stopped before it does anything, and continues after a DEL and an ADD of
//! the same pod have succeeded, detaches the pod: the driver has to attach it again, and
//! not to report it. Needs root.

use std::process::Command;

use tweed_lab::Programs;

/// With one pod on each node, burst 0 of this seed is that of [`EXPECTED`]; the DEL is
/// stopped at once, and none of the later calls is killed. If the weights of these two
/// kinds of action change, another seed has to be found.
const SEED: &str = "40075";

const EXPECTED: [&str; 2] = [
    "call stopped while it runs on node3 (pod3) DEL",
    "some killed on node3 (no pod)",
];

#[test]
fn a_del_that_continues_after_a_later_add() {
    let output = Command::new(Programs::find().unwrap().own("tweed-chaos").unwrap())
        .args(["--seed", SEED, "--only", "0", "--nodes", "4", "--pods", "4"])
        .args(["--kind", "call stopped", "--kind", "some killed"])
        .args(["--shrink-seconds", "0", "--verbose"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}\n{text}");
    for line in EXPECTED {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}
