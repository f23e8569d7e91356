//! The container image.

use std::process::Command;

use crate::files::{read, root};

#[test]
fn its_containerfile_starts_from_nothing() {
    let text = read("install/image/Containerfile");
    let from: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("FROM "))
        .collect();
    assert_eq!(from, ["FROM scratch"]);
}

#[test]
#[ignore = "needs root, buildah and release programs: make image"]
fn built_twice_it_is_the_same() {
    let script = root().join("install/image/build.sh");
    let output = Command::new(script).arg("--check").output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
