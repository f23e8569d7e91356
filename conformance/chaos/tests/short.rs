//! A minute of chaos with a seed that is always the same; `make chaos` takes another
//! one each time. A finding is printed with its seed, the shortest list of actions that
//! failed again, and the command that repeats it. Needs root.

use std::process::Command;

use tweed_lab::Programs;

#[test]
fn a_fixed_seed() {
    let output = Command::new(Programs::find().unwrap().own("tweed-chaos").unwrap())
        .args(["--seed", "1", "--seconds", "60", "--shrink-seconds", "180"])
        .arg("--verbose")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}\n{text}");
    assert!(text.contains("no finding: "), "{text}");
    assert!(!text.contains("no finding: 0 bursts"), "{text}");
}
