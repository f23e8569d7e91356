//! A node's files below a temporary folder, and the program that runs on them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// What is below the root, as a node has it.
pub struct Node {
    root: TempDir,
}

/// What the program answered.
pub struct Answer {
    pub ok: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Node {
    pub fn new() -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
        }
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Where a path of the node is.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// Every file below the root, by its path there.
    pub fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        collect(self.root.path(), self.root.path(), &mut found);
        found.sort();
        found
    }

    /// Runs the program in a network namespace of its own, after `prepare` has
    /// run there in a shell.
    pub fn run_after(&self, prepare: &str, words: &[&str]) -> Answer {
        let script = format!("set -e; ip link set lo up; {prepare}\nexec \"$@\"");
        let mut command = Command::new("unshare");
        command
            .args(["--net", "--", "sh", "-c", &script, "sh", &program()])
            .args(words)
            .arg("--root")
            .arg(self.root());
        answer(command)
    }

    pub fn run(&self, words: &[&str]) -> Answer {
        self.run_after("", words)
    }
}

/// The program under test.
pub fn program() -> String {
    std::env::var("CARGO_BIN_EXE_tweed-install").unwrap()
}

/// Runs a command to its end, without variables of the caller's.
pub fn answer(mut command: Command) -> Answer {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TWEED_") {
            command.env_remove(name);
        }
    }
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let answer = Answer {
        ok: status.success(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    };
    let refused = answer.stderr.contains("Operation not permitted");
    assert!(!refused, "run this test as root: {}", answer.stderr);
    answer
}

impl Answer {
    #[track_caller]
    pub fn succeeds(self) -> String {
        assert!(self.ok, "{}{}", self.stdout, self.stderr);
        self.stdout
    }

    /// What it said in all.
    #[track_caller]
    pub fn fails(self) -> String {
        assert!(!self.ok, "it succeeded: {}", self.stdout);
        self.stdout + &self.stderr
    }
}

/// Programs to install: shell scripts that print what they are.
pub fn release(folder: &Path, version: &str) {
    fs::create_dir_all(folder).unwrap();
    for name in ["tweed", "tweed-ipam", "tweed-agent", "tweed-install"] {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\necho {name} {version}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            collect(root, &path, found);
        } else {
            let below = path.strip_prefix(root).unwrap();
            found.push(format!("/{}", below.display()));
        }
    }
}
