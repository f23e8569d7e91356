//! The build script of the programs that say of which commit they are: `TWEED_COMMIT`, for
//! `env!`, in the crates that name this file as `build`.
//!
//! It is the variable of this name, for who builds from a tarball, or else git's short hash
//! of HEAD, or else `unknown`. Builds that are no release are `debug` and do not ask git: else
//! each commit would compile these crates again for the tests.
#![expect(clippy::print_stdout, reason = "cargo reads it")]

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=TWEED_COMMIT");
    println!("cargo:rerun-if-changed=../core/commit.rs");
    let of_variable = || std::env::var("TWEED_COMMIT").ok();
    let commit = if let Some(commit) = of_variable().filter(|commit| !commit.is_empty()) {
        commit
    } else if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        of_git().unwrap_or_else(|| "unknown".to_owned())
    } else {
        "debug".to_owned()
    };
    println!("cargo:rustc-env=TWEED_COMMIT={commit}");
}

fn of_git() -> Option<String> {
    // A commit writes the log of HEAD, a checkout too.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if let Ok(log) = PathBuf::from(log).canonicalize() {
        println!("cargo:rerun-if-changed={}", log.display());
    }
    git(&["rev-parse", "--short", "HEAD"])
}

/// What git prints; none where there is no git, or no repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}
