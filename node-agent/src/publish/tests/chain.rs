//! What the plugins of the folder, and of the config that is there, do to the chain and to readiness.

use super::*;

/// Writes a plugin that answers VERSION after this command.
fn plugin(path: &Path, command: &str) {
    plugin_of(path, "/bin/sh", command);
}

/// The same, run by this interpreter.
fn plugin_of(path: &Path, interpreter: &str, command: &str) {
    let answer = r#"{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}"#;
    let text = format!("#!{interpreter}\n{command}\ncat >/dev/null\necho '{answer}'\n");
    // By another process: a writer in this one could be inherited by another test's child, and
    // exec would say "text busy".
    let line = r#"printf %s "$2" >"$1.new" && chmod 755 "$1.new" && mv "$1.new" "$1""#;
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", line, "sh"]).arg(path).arg(text);
    assert!(shell.status().unwrap().success());
}

#[test]
fn a_chained_plugin_that_answers_late_stays_in_the_chain_until_it_is_gone() {
    let node = Node::new();
    std::fs::create_dir(node.path("bin")).unwrap();
    let portmap = node.path("bin/portmap");
    let chained = || {
        let config = node.json(CONFIG);
        let is_chained = config["plugins"][1]["type"] == "portmap";
        (is_chained, config["cniVersions"].as_array().unwrap().len())
    };
    let with_limit = |milliseconds| {
        let mut publisher = node.publisher("boot-1");
        publisher.plugins.limit = Duration::from_millis(milliseconds);
        publisher
    };
    const PATIENT: u64 = 60_000;
    const HANGS: &str = "exec sleep 60";
    plugin(&portmap, HANGS);
    let mut first = with_limit(100);
    node.publish(&mut first, Some(&network(1450)));
    assert!(!node.path(CONFIG).exists() && !node.path("run/ready").exists());
    assert_eq!(node.kinds()[0], "starting", "{:?}", node.kinds());
    first.late_limit = Duration::ZERO;
    node.publish(&mut first, Some(&network(1450)));
    assert!(!chained().0, "it has never answered");
    assert!(node.board.status(Instant::now()).ready());
    plugin(&portmap, "");
    node.publish(&mut with_limit(PATIENT), Some(&network(1450)));
    let before = chained();
    assert!(before.0);

    // An agent that knows nothing of it, on a machine that is too busy for an answer.
    plugin(&portmap, HANGS);
    let mut second = with_limit(100);
    node.publish(&mut second, Some(&network(1400)));
    assert_eq!(chained(), before);
    assert!(node.kinds().contains(&"plugin-unusable"));
    std::fs::remove_file(&portmap).unwrap();
    node.publish(&mut second, Some(&network(1400)));
    assert!(!chained().0);

    plugin(&portmap, "");
    node.publish(&mut with_limit(PATIENT), Some(&network(1400)));
    assert!(chained().0);
    plugin(&portmap, "exit 1");
    node.publish(&mut with_limit(PATIENT), Some(&network(1400)));
    assert!(!chained().0, "it is broken");
}

/// Service meshes append their plugin to the config of the network, format it anew, and do it
/// again when it is gone.
#[test]
fn what_others_append_to_the_chain_stays_while_its_program_is_there() {
    let node = Node::new();
    std::fs::create_dir(node.path("bin")).unwrap();
    let mesh = node.path("bin/istio-cni");
    plugin(&mesh, "");
    plugin(&node.path("bin/portmap"), "");
    let mut publisher = node.publisher("boot-1");
    node.publish(&mut publisher, Some(&network(1450)));
    let appended = json!({"type": "istio-cni", "log_level": "info", "kubernetes": {"a": [1]}});
    let mut config = node.json(CONFIG);
    let again = json!({"type": "istio-cni", "log_level": "debug"});
    let both = [appended.clone(), again.clone()];
    config["plugins"].as_array_mut().unwrap().extend(both);
    let text = config.to_string();
    std::fs::write(node.path(CONFIG), &text).unwrap();

    node.publish(&mut publisher, Some(&network(1450)));
    let read = || std::fs::read_to_string(node.path(CONFIG)).unwrap();
    assert_eq!(read(), text, "nothing was to be changed");
    // What is ours is put back, also by the next agent.
    config["plugins"][0]["mtu"] = 9000.into();
    std::fs::write(node.path(CONFIG), config.to_string()).unwrap();
    node.publish(&mut node.publisher("boot-1"), Some(&network(1400)));
    let plugins = || node.json(CONFIG)["plugins"].clone();
    assert_eq!(plugins()[0]["mtu"], 1400);
    assert_eq!(plugins()[1]["type"], "portmap");
    assert_eq!([&plugins()[2], &plugins()[3]], [&appended, &again]);

    std::fs::remove_file(&mesh).unwrap();
    node.publish(&mut publisher, Some(&network(1400)));
    assert_eq!(plugins().as_array().unwrap().len(), 2, "no pod could start");
}

#[test]
fn a_node_whose_plugin_has_been_removed_is_not_ready_until_it_is_back() {
    let node = Node::new();
    std::fs::create_dir(node.path("bin")).unwrap();
    let tweed = node.path("bin/tweed");
    let mut publisher = node.publisher("boot-1");
    let mut is_ready = || {
        node.publish(&mut publisher, Some(&network(1450)));
        node.board.status(Instant::now()).ready()
    };
    assert!(is_ready(), "the runtime may look elsewhere");
    plugin(&tweed, "");
    assert!(is_ready());
    std::fs::remove_file(&tweed).unwrap();
    assert!(!is_ready());
    plugin(&tweed, "");
    assert!(is_ready());
}

/// Only the agent's process is another one.
#[test]
fn a_plugin_that_has_been_removed_is_missed_by_the_next_runs_of_this_boot() {
    let node = Node::new();
    std::fs::create_dir(node.path("bin")).unwrap();
    let tweed = node.path("bin/tweed");
    let is_ready = |mut publisher: Publisher| {
        node.publish(&mut publisher, Some(&network(1450)));
        node.board.status(Instant::now()).ready()
    };
    plugin(&tweed, "");
    assert!(is_ready(node.publisher("boot-1")));
    std::fs::remove_file(&tweed).unwrap();
    for _ in 0..2 {
        assert!(!is_ready(node.publisher("boot-1")));
    }
    node.publish_without_nodes(&mut node.publisher("boot-1"));
    assert!(!node.board.status(Instant::now()).ready());
    plugin(&tweed, "");
    assert!(is_ready(node.publisher("boot-1")));
    // The runtime may look elsewhere than in a folder that has been without it.
    assert!(is_ready(node.publisher_with("other", "boot-1")));
    assert!(is_ready(node.publisher("boot-1")));
    std::fs::remove_file(&tweed).unwrap();
    assert!(is_ready(node.publisher("boot-2")), "nothing is known of it");
}

#[test]
fn a_missing_loopback_plugin_is_a_note() {
    let node = Node::new();
    std::fs::create_dir(node.path("bin")).unwrap();
    let mut publisher = node.publisher("boot-1");
    let mut notes = || {
        node.publish(&mut publisher, Some(&network(1450)));
        let status = node.board.status(Instant::now());
        assert!(status.ready());
        status.notes
    };
    let missing = notes();
    let [note] = missing.as_slice() else {
        panic!("{missing:?}");
    };
    assert!(note.contains("bin/loopback does not exist"), "{note}");
    assert!(note.contains("containerd"), "{note}");
    // What it leads to may be seen by the runtime alone.
    std::os::unix::fs::symlink("/nowhere/loopback", node.path("bin/loopback")).unwrap();
    assert_eq!(notes(), [""; 0]);
}

/// A file system that is unmounted at the end.
struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(folder: PathBuf) -> Self {
        mount(&["-t", "tmpfs", "tmpfs"], &folder);
        Self(folder)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let mut umount = std::process::Command::new("umount");
        let _ = umount.arg("--lazy").arg(&self.0).status();
    }
}

fn mount(options: &[&str], folder: &Path) {
    let mut mount = std::process::Command::new("mount");
    assert!(mount.args(options).arg(folder).status().unwrap().success());
}

#[test]
fn a_node_whose_runtime_can_run_no_plugin_is_not_ready() {
    let node = Node::new();
    std::fs::create_dir(node.path("bin")).unwrap();
    let mounted = Mounted::tmpfs(node.path("bin"));
    plugin(&node.path("bin/tweed"), "");
    let mut publisher = node.publisher("boot-1");
    publisher.plugins.limit = Duration::from_secs(60);
    for (mode, is_ready) in [("exec", true), ("noexec", false), ("exec", true)] {
        mount(&["-o", &format!("remount,{mode}")], &mounted.0);
        node.publish(&mut publisher, Some(&network(1450)));
        let status = node.board.status(Instant::now());
        assert_eq!(status.ready(), is_ready, "{mode}");
        let mut problems = status.problems.iter();
        let is_named = problems.any(|one| one.cure.contains("remount,exec"));
        assert_eq!(is_named, !is_ready, "{mode}");
    }
}

/// As one that was built for another machine, or was cut off when it was copied.
#[test]
fn a_node_whose_plugin_does_not_run_is_not_ready_until_it_does() {
    let node = Node::new();
    std::fs::create_dir(node.path("bin")).unwrap();
    let tweed = node.path("bin/tweed");
    let mut publisher = node.publisher("boot-1");
    publisher.plugins.limit = Duration::from_secs(60);
    let mut is_ready = || {
        node.publish(&mut publisher, Some(&network(1450)));
        node.board.status(Instant::now()).ready()
    };
    let mode = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&tweed, permissions).unwrap();
    };
    plugin(&tweed, "");
    assert!(is_ready());
    plugin(&tweed, "exit 1");
    assert!(!is_ready());
    assert!(node.kinds().contains(&"plugin-unusable"));
    plugin(&tweed, "");
    assert!(is_ready());
    mode(0o644);
    assert!(!is_ready(), "nobody can run it");
    mode(0o755);
    assert!(is_ready());
    // What a security module keeps the agent from, it may let the runtime do.
    plugin_of(&tweed, "/dev/null", "");
    assert!(is_ready());
    assert!(node.kinds().contains(&"plugin-unusable"));
    // The machine lacked memory.
    plugin(&tweed, "kill -KILL $$");
    assert!(is_ready());
    assert!(node.kinds().contains(&"plugin-unusable"));
    // Without portmap pods are served.
    plugin(&tweed, "");
    plugin(&node.path("bin/portmap"), "exit 1");
    assert!(is_ready());
}
