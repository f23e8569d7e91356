//! `plugins`: what the init container does.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::node::{Answer, Node, answer, program, release};

const BIN: &str = "/opt/cni/bin";

fn install(node: &Node, source: &str, more: &[&str]) -> Answer {
    let source = node.path(source);
    let words = ["plugins", "--source", source.to_str().unwrap()];
    let mut command = Command::new(program());
    command
        .args(words)
        .args(more)
        .arg("--root")
        .arg(node.root());
    answer(command)
}

fn node_with_release() -> Node {
    let node = Node::new();
    release(&node.path("image"), "1");
    node
}

#[test]
fn both_plugins_come_as_programs_and_stay_when_they_are_the_same() {
    let node = node_with_release();
    let said = install(&node, "image", &[]).succeeds();
    for name in ["tweed", "tweed-ipam"] {
        let path = node.path(BIN).join(name);
        let line = format!("installed {} (SHA-256 ", path.display());
        assert!(said.contains(&line), "{said}");
        let output = Command::new(&path).output().unwrap();
        let expected = format!("{name} 1\n");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    }
    let before = fs::metadata(node.path(BIN).join("tweed")).unwrap().ino();
    let said = install(&node, "image", &[]).succeeds();
    assert_eq!(
        said.matches("it is this version already").count(),
        2,
        "{said}"
    );
    let after = fs::metadata(node.path(BIN).join("tweed")).unwrap();
    assert_eq!(after.ino(), before);
    assert_eq!(after.permissions().mode() & 0o7777, 0o755);
}

#[test]
fn a_mode_that_nobody_can_run_is_mended() {
    let node = node_with_release();
    install(&node, "image", &[]).succeeds();
    let path = node.path(BIN).join("tweed");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    install(&node, "image", &[]).succeeds();
    assert!(Command::new(&path).status().unwrap().success());
}

/// A running program cannot be written to; and a program that is started during
/// an upgrade is either the old or the new version, never a part of it.
#[test]
fn plugins_are_replaced_while_they_run() {
    let node = Node::new();
    for (folder, copied) in [("old", "/bin/sleep"), ("new", "/bin/sh")] {
        release(&node.path(folder), "1");
        fs::copy(copied, node.path(folder).join("tweed")).unwrap();
    }
    install(&node, "old", &[]).succeeds();
    let path = node.path(BIN).join("tweed");
    let mut running = Command::new(&path).arg("1000").spawn().unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let runner = scope.spawn(|| {
            let mut runs = 0;
            while !done.load(Ordering::Relaxed) {
                Command::new(&path).arg("--version").output().unwrap();
                runs += 1;
            }
            runs
        });
        for source in ["new", "old"].repeat(10) {
            install(&node, source, &[]).succeeds();
        }
        done.store(true, Ordering::Relaxed);
        assert!(runner.join().unwrap() > 0);
    });
    assert_eq!(running.try_wait().unwrap(), None);
    running.kill().unwrap();
    running.wait().unwrap();
}

#[test]
fn a_damaged_image_changes_nothing() {
    let node = node_with_release();
    install(&node, "image", &[]).succeeds();
    release(&node.path("broken"), "2");
    let sums = Command::new("sha256sum")
        .args(["tweed", "tweed-ipam"])
        .current_dir(node.path("broken"))
        .output()
        .unwrap();
    let list = node.path("broken/SHA256SUMS");
    fs::write(&list, &sums.stdout).unwrap();
    fs::write(node.path("broken/tweed-ipam"), "#!/bin/sh\n").unwrap();
    let said = install(&node, "broken", &[]).fails();
    assert!(said.contains("tweed-ipam is damaged"), "{said}");
    assert!(node.read("/opt/cni/bin/tweed").contains("tweed 1"));
    release(&node.path("broken"), "2");
    install(&node, "broken", &[]).succeeds();
    assert!(node.read("/opt/cni/bin/tweed").contains("tweed 2"));
    fs::write(&list, "nonsense").unwrap();
    let said = install(&node, "broken", &[]).fails();
    assert!(
        said.contains("SHA256SUMS has an unexpected format"),
        "{said}"
    );
}

#[test]
fn a_program_that_is_missing_is_named() {
    let node = node_with_release();
    fs::remove_file(node.path("image/tweed-ipam")).unwrap();
    let said = install(&node, "image", &[]).fails();
    assert!(said.contains("image/tweed-ipam does not exist: "), "{said}");
    assert!(!node.path(BIN).exists());
}

#[test]
fn what_a_killed_one_left_goes() {
    let node = node_with_release();
    node.write("/opt/cni/bin/.tweed-install-k1ll3d", "half");
    node.write("/opt/cni/bin/bridge", "");
    install(&node, "image", &[]).succeeds();
    let files = node.files();
    let left: Vec<&String> = files.iter().filter(|f| f.starts_with(BIN)).collect();
    let expected = ["bridge", "tweed", "tweed-ipam"].map(|name| format!("{BIN}/{name}"));
    assert_eq!(left, expected.iter().collect::<Vec<_>>());
}

/// Installs onto a file system of its own, and prints what is there afterwards.
fn install_onto(node: &Node, mount: &str) -> Answer {
    let bin = node.path(BIN);
    fs::create_dir_all(&bin).unwrap();
    let script = format!(
        "mount -t tmpfs {mount} tweed-test {bin} && {{ {program} plugins --source {image} --root {root}; \
         code=$?; ls -A {bin}; exit $code; }}",
        bin = bin.display(),
        program = program(),
        image = node.path("image").display(),
        root = node.root().display(),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--", "sh", "-c", &script]);
    answer(command)
}

#[test]
fn a_read_only_folder_is_told_with_the_cure() {
    let node = node_with_release();
    let said = install_onto(&node, "-o ro").fails();
    assert!(said.contains("mount it writable"), "{said}");
    assert!(said.contains("2 operations failed"), "{said}");
}

#[test]
fn a_full_disk_is_told_and_keeps_no_draft() {
    let node = node_with_release();
    fs::write(node.path("image/tweed"), vec![b'x'; 1 << 20]).unwrap();
    let said = install_onto(&node, "-o size=64k").fails();
    assert!(said.contains("free some space"), "{said}");
    assert!(!said.contains("\n.tweed-install"), "{said}");
    // The other one fits.
    assert!(said.contains("\ntweed-ipam\n"), "{said}");
}

/// As in the pod: root, and no capability at all.
#[test]
fn no_capability_is_needed_in_a_folder_of_root() {
    let node = node_with_release();
    fs::create_dir_all(node.path(BIN)).unwrap();
    let mut command = Command::new("setpriv");
    command
        .args([
            "--bounding-set=-all",
            "--inh-caps=-all",
            "--no-new-privs",
            &program(),
        ])
        .args(["plugins", "--source"])
        .arg(node.path("image"))
        .arg("--root")
        .arg(node.root());
    let said = answer(command).succeeds();
    assert_eq!(said.matches("installed ").count(), 2, "{said}");
}
