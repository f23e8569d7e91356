//! What `install/release.sh` refuses. `--check` there makes a release twice.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::files::{outcome, read, root};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A repository in which nothing is missing but the programs.
fn repository(folder: &Path) {
    for file in ["Cargo.toml", "install/release.sh", ".cargo/target-folder"] {
        let copy = folder.join(file);
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(root().join(file), copy).unwrap();
    }
    fs::write(folder.join("CHANGELOG.md"), format!("## [{VERSION}]\n")).unwrap();
    git(folder, &["init", "--quiet"]);
    git(folder, &["add", "."]);
    let names = [
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.test",
        "-c",
        "commit.gpgsign=false",
    ];
    git(
        folder,
        &[&names[..], &["commit", "--quiet", "--message=all"]].concat(),
    );
}

fn git(folder: &Path, arguments: &[&str]) {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder).args(arguments);
    assert!(git.status().unwrap().success(), "{arguments:?}");
}

/// What the script says of a release of this version, written to `out`; `Err` where it refuses.
fn preflight(folder: &Path, version: &str, out: &Path) -> Result<String, String> {
    let mut script = Command::new(folder.join("install/release.sh"));
    script
        .args(["--preflight", version])
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env("OUT", out)
        .env_remove("IMAGE")
        .env_remove("SIGN_KEY");
    outcome(&mut script)
}

#[test]
#[ignore = "needs buildah and jq: conformance/setup.sh release"]
fn a_release_of_this_version_and_of_a_commit_only() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let out = tempfile::tempdir().unwrap();
    let out = out.path();
    repository(folder);

    let refused = preflight(folder, "99.0.0", out).unwrap_err();
    let line = read("Cargo.toml")
        .lines()
        .position(|line| line.starts_with("version = "))
        .unwrap();
    let change = format!("version = \"99.0.0\" in line {} of Cargo.toml", line + 1);
    assert!(refused.contains(&change), "{refused}");

    preflight(folder, VERSION, out).unwrap();
    fs::write(out.join("SHA256SUMS"), "0  tweed.yaml\n").unwrap();
    fs::write(out.join("tweed.yaml"), "").unwrap();
    preflight(folder, VERSION, out).unwrap();
    fs::write(out.join("mine"), "").unwrap();
    let refused = preflight(folder, VERSION, out).unwrap_err();
    assert!(refused.contains("such as mine"), "{refused}");
    fs::remove_file(out.join("mine")).unwrap();
    // A mirror of something else lists all of its files, too.
    fs::rename(out.join("tweed.yaml"), out.join("other.iso")).unwrap();
    fs::write(out.join("SHA256SUMS"), "0  other.iso\n").unwrap();
    let refused = preflight(folder, VERSION, out).unwrap_err();
    assert!(refused.contains("such as SHA256SUMS"), "{refused}");

    fs::write(folder.join("new"), "").unwrap();
    let refused = preflight(folder, VERSION, out).unwrap_err();
    assert!(refused.contains("?? new"), "{refused}");
}
