//! What `install/release.sh` refuses. `--check` there makes a release twice.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::files::{outcome, read, root};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A repository in which nothing is missing but the programs.
fn repository(folder: &Path) {
    for file in [
        "Cargo.toml",
        "install/release.sh",
        ".cargo/target-folder",
        ".cargo/cargo-for",
    ] {
        let copy = folder.join(file);
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(root().join(file), copy).unwrap();
    }
    fs::write(folder.join("source.rs"), "").unwrap();
    fs::write(folder.join(".gitignore"), "/target\n").unwrap();
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

fn git(folder: &Path, arguments: &[&str]) -> String {
    let mut git = Command::new("git");
    let output = git.arg("-C").arg(folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What the script says of a release of this version, written to `out`; `Err` where it refuses.
fn preflight(folder: &Path, version: &str, out: &Path) -> Result<String, String> {
    release(folder, &["--preflight", version], out)
}

fn release(folder: &Path, arguments: &[&str], out: &Path) -> Result<String, String> {
    let mut script = Command::new(folder.join("install/release.sh"));
    script
        .args(arguments)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env("OUT", out)
        .env_remove("IMAGE")
        .env_remove("TWEED_COMMIT")
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

/// The release before is not in a commit, and no change of the source either.
#[test]
#[ignore = "needs buildah and jq: conformance/setup.sh release"]
fn an_earlier_release_may_be_within_the_repository() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    repository(folder);
    let out = folder.join("out [of] me");
    preflight(folder, VERSION, &out).unwrap();
    fs::create_dir(&out).unwrap();
    fs::write(out.join("SHA256SUMS"), "0  tweed.yaml\n").unwrap();
    fs::write(out.join("tweed.yaml"), "").unwrap();
    preflight(folder, VERSION, &out).unwrap();
    let elsewhere = folder.join("elsewhere");
    let refused = preflight(folder, VERSION, &elsewhere).unwrap_err();
    assert!(refused.contains("?? \"out [of] me/\""), "{refused}");
}

/// Their commit is right, but the tree had changes, which were put away since.
#[test]
#[ignore = "needs buildah and jq: conformance/setup.sh release"]
fn programs_that_are_older_than_their_sources_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    repository(folder);
    let builds = folder.join("target/release");
    fs::create_dir_all(&builds).unwrap();
    let head = git(folder, &["rev-parse", "--short", "HEAD"]);
    for program in [
        "tweed",
        "tweed-ipam",
        "tweed-agent",
        "tweed-install",
        "tweedctl",
    ] {
        let path = builds.join(program);
        fs::write(&path, format!("{VERSION} ({})", head.trim())).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }
    let source = folder.join("source.rs").display().to_string();
    let listed = format!(
        "{}: {}\n",
        builds.join("tweed").display(),
        source.replace(' ', "\\ ")
    );
    fs::write(builds.join("tweed.d"), listed).unwrap();
    let own = Command::new("dpkg")
        .arg("--print-architecture")
        .output()
        .unwrap();
    let own = String::from_utf8(own.stdout).unwrap();
    let refused = |written: SystemTime| {
        let file = fs::File::options().append(true).open(&source).unwrap();
        file.set_modified(written).unwrap();
        release(folder, &[VERSION, own.trim()], &folder.join("out")).unwrap_err()
    };
    let now = SystemTime::now();
    let message = refused(now + Duration::from_secs(60));
    assert!(message.contains("source.rs: run make build"), "{message}");
    // It gets as far as the source of the commit, which this repository has not.
    let message = refused(now - Duration::from_secs(60));
    assert!(!message.contains("run make build"), "{message}");
}
