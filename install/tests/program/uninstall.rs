//! `uninstall` where there is little to do; a node with agent and pods is tested in
//! the lab (`conformance/tests/install`).

use crate::node::Node;

#[test]
fn nothing_to_do_is_said() {
    let node = Node::new();
    for words in [&["uninstall"][..], &["uninstall", "--dry-run"]] {
        let said = node.run(words).succeeds();
        assert_eq!(said, "nothing of tweed is on this machine\n");
    }
}

#[test]
fn something_that_is_kept_is_not_nothing() {
    let node = Node::new();
    node.write("/etc/cni/net.d/05-other.conf.tweed-displaced", "{}");
    let said = node.run(&["uninstall"]).succeeds();
    assert!(
        said.starts_with("kept ") && !said.contains("nothing"),
        "{said}"
    );
}

#[test]
fn files_of_others_in_folders_of_tweed_stay() {
    let node = Node::new();
    let others = ["/etc/cni/net.d/20-other.conflist", "/run/tweed/mine"];
    let own = [
        "/etc/cni/net.d/10-tweed.conflist",
        "/run/tweed/agent.json",
        "/run/tweed/nft-skeleton",
        "/run/tweed/nft-skeleton-policy",
        "/run/tweed/nft-skeleton-services",
    ];
    for path in others.iter().chain(&own) {
        node.write(path, "{}");
    }
    let said = node.run(&["uninstall"]).succeeds();
    assert!(said.contains("it still contains mine"), "{said}");
    assert_eq!(node.files(), others);
}

/// The next uninstall needs the values of before.
#[test]
fn the_file_of_sysctls_stays_until_all_are_restored() {
    let node = Node::new();
    node.write("/run/tweed/sysctls.json", r#"{"net/ipv4/ip_forward": "0"}"#);
    let sysctls = node.path("/sysctls");
    let forwarding = sysctls.join("ipv4/ip_forward");
    let words = ["uninstall", "--sysctl-dir", sysctls.to_str().unwrap()];
    // It is there and cannot be read.
    std::fs::create_dir_all(&forwarding).unwrap();
    let said = node.run(&words).fails();
    assert!(
        said.contains("a sysctl has not been restored yet"),
        "{said}"
    );
    assert_eq!(node.files(), ["/run/tweed/sysctls.json"]);
    std::fs::remove_dir(&forwarding).unwrap();
    std::fs::write(&forwarding, "1").unwrap();
    node.run(&words).succeeds();
    assert_eq!(node.files(), ["/sysctls/ipv4/ip_forward"]);
    assert_eq!(node.read("/sysctls/ipv4/ip_forward").trim(), "0");
}

/// Nobody else relies on it here: it is what the machine had before tweed.
#[test]
fn forwarding_of_a_machine_that_forwarded_before_stays() {
    let node = Node::new();
    let found = r#"{"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1"}"#;
    node.write("/run/tweed/sysctls.json", found);
    let (v4, v6) = (
        "/sysctls/ipv4/ip_forward",
        "/sysctls/ipv6/conf/all/forwarding",
    );
    node.write(v4, "1");
    // Somebody has switched it off since the agent was stopped.
    node.write(v6, "0");
    let folder = node.path("/sysctls");
    let folder = ["--sysctl-dir", folder.to_str().unwrap()];
    let checked = node.run(&[&["check"], &folder[..]].concat()).stdout;
    assert!(!checked.contains("uninstall` restores"), "{checked}");
    node.run(&[&["uninstall"], &folder[..]].concat()).succeeds();
    assert_eq!([node.read(v4), node.read(v6)], ["1", "0"]);
    assert!(!node.path("/run/tweed").exists());
}

/// In a run folder that a reboot does not empty: the machine may forward of its own by now.
#[test]
fn what_an_earlier_boot_has_stored_is_not_restored() {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let other = "11111111-1111-4111-8111-111111111111";
    for (id, restored) in [(other, false), (boot_id.trim(), true)] {
        let node = Node::new();
        let found = format!(r#"{{"bootId": "{id}", "net/ipv4/ip_forward": "0"}}"#);
        node.write("/run/tweed/sysctls.json", &found);
        let forwarding = "/sysctls/ipv4/ip_forward";
        node.write(forwarding, "1");
        let folder = node.path("/sysctls");
        let folder = ["--sysctl-dir", folder.to_str().unwrap()];
        let checked = node.run(&[&["check"], &folder[..]].concat()).stdout;
        assert_eq!(
            checked.contains("uninstall` restores"),
            restored,
            "{checked}"
        );
        let said = node.run(&[&["uninstall"], &folder[..]].concat()).succeeds();
        assert_eq!(node.read(forwarding) == "0", restored, "{said}");
        assert!(!node.path("/run/tweed").exists());
    }
}

/// A container engine that came after tweed found forwarding on, and does not switch it on
/// again.
#[test]
fn forwarding_that_others_rely_on_stays() {
    let v6 = "ipv6/conf/all/forwarding";
    let sysctls = [
        ("ipv4/ip_forward", "1"),
        (v6, "1"),
        ("ipv6/conf/eth0/accept_ra", "2"),
        ("ipv4/conf/all/accept_redirects", "0"),
    ];
    let found = r#"{"net/ipv4/ip_forward": "0", "net/ipv6/conf/all/forwarding": "0",
        "net/ipv6/conf/eth0/accept_ra": "1", "net/ipv4/conf/all/accept_redirects": "0"}"#;
    let docker = "ip link add docker0 type bridge; ip link set docker0 up";
    let uplink = "ip link add eth0 type veth peer name far; ip link set eth0 up; ip addr add 192.0.2.11/24 dev eth0
        ip route add default via 192.0.2.1";
    for (prepare, config, relied_on) in [
        (docker, "notes.txt", Some("(docker0)")),
        ("true", "87-podman.conflist", Some("(87-podman.conflist)")),
        ("ip link add docker0 type bridge", "notes.txt", None),
        ("true", "200-loopback.conflist", None),
        (uplink, "notes.txt", None),
    ] {
        let node = Node::new();
        node.write("/run/tweed/sysctls.json", found);
        let loopback = config.contains("loopback").then_some("loopback");
        let kind = loopback.unwrap_or("bridge");
        let content = format!(r#"{{"plugins": [{{"type": "{kind}"}}]}}"#);
        node.write(&format!("/etc/cni/net.d/{config}"), &content);
        for (path, value) in sysctls {
            node.write(&format!("/sysctls/{path}"), value);
        }
        let folder = node.path("/sysctls");
        let words = ["uninstall", "--sysctl-dir", folder.to_str().unwrap()];
        let rehearsed = [&words[..], &["--dry-run"]].concat();
        let said = node.run_after(prepare, &rehearsed).succeeds();
        assert_eq!(said.contains("others may rely on it"), relied_on.is_some());
        let said = node.run_after(prepare, &words).succeeds();
        let now = |path: &str| node.read(&format!("/sysctls/{path}"));
        if let Some(names) = relied_on {
            for (path, value) in sysctls {
                assert_eq!(now(path), value, "{path}: {said}");
            }
            let line = format!("kept sysctl net/{v6} at 1: others may rely on it {names}");
            assert!(said.contains(&line), "{said}");
            assert!(
                said.contains("sysctl -w net.ipv6.conf.all.forwarding=0"),
                "{said}"
            );
            let belongs = "kept sysctl net/ipv6/conf/eth0/accept_ra at 2: it belongs to \
                           forwarding, which stays on; before tweed it was 1";
            assert!(said.contains(belongs), "{said}");
            // The values from before are there for when nobody relies on it.
            assert!(
                said.contains("it has the values from before tweed"),
                "{said}"
            );
            assert_eq!(node.read("/run/tweed/sysctls.json"), found);
            let checked = node.run(&["check", words[1], words[2]]).stdout;
            assert!(
                checked.contains("net.ipv4.ip_forward was 0 and is 1"),
                "{checked}"
            );
            std::fs::remove_file(node.path(&format!("/etc/cni/net.d/{config}"))).unwrap();
            node.run(&words).succeeds();
        }
        let values = [
            now("ipv4/ip_forward"),
            now(v6),
            now("ipv6/conf/eth0/accept_ra"),
        ];
        assert_eq!(values, ["0", "0", "1"], "{said}");
        assert!(!node.path("/run/tweed").exists(), "{said}");
    }
}

/// In a pod: the folder is a mount there, in a root that may be read-only.
#[test]
fn a_run_folder_that_is_mounted_is_emptied() {
    for read_only in ["", "mount -o remount,bind,ro $root;"] {
        let node = Node::new();
        node.write("/run/tweed/agent.json", "{}");
        node.write("/run/tweed/nodes.jsonl", "{}");
        let root = node.root().display();
        let mounts = format!(
            "root={root}; mount --bind $root $root;
            mount --bind $root/run/tweed $root/run/tweed; {read_only}"
        );
        let mount = format!("exec unshare --mount sh -c '{mounts} exec \"$@\"' sh \"$@\"");
        let said = node.run_after(&mount, &["uninstall"]).succeeds();
        assert!(said.contains("it is empty, and mounted"), "{said}");
        let run = node.path("/run/tweed");
        assert_eq!(std::fs::read_dir(run).unwrap().count(), 0);
        let said = node.run(&["uninstall"]).succeeds();
        let removed = said.starts_with("removed ") && said.ends_with("/run/tweed\n");
        assert!(removed, "{said}");
    }
}

/// In a real bpffs. Its links stand for pins: unlinked they are in the same way.
#[test]
fn programs_of_the_fast_path_are_unpinned_and_others_stay() {
    let node = Node::new();
    let bpf = node.path("/sys/fs/bpf");
    std::fs::create_dir_all(&bpf).unwrap();
    let pins = "tweed/links/pod_in_7 tweed/links/nic_in_2 tweed/maps/cfg other/progs/theirs";
    let script = format!(
        "cd {bpf}; mount -t bpf bpf . && cd . && cd {bpf}
        for pin in {pins}; do mkdir -p $(dirname $pin); ln -s pin $pin; done
        \"$@\" --dry-run; \"$@\" || exit 1
        find . -type l",
        bpf = bpf.display()
    );
    let mount = format!("exec unshare --mount sh -c '{script}' sh \"$@\"");
    let said = node.run_after(&mount, &["uninstall"]).succeeds();
    for line in [
        "removed {}/tweed/links: 2 hooks of the fast path\n",
        "removed {}/tweed/maps: 1 map of the fast path\n",
        "removed {}/tweed\n",
    ] {
        let expected = line.replace("{}", &bpf.display().to_string());
        assert!(said.contains(&expected), "{said}");
    }
    assert!(
        said.contains("would remove ") && said.ends_with("\n./other/progs/theirs\n"),
        "{said}"
    );
}

/// The kernel has its folder, and nobody has mounted anything there, or nobody has used it.
#[test]
fn without_a_fast_path_there_is_nothing_to_unpin() {
    let node = Node::new();
    let bpf = node.path("/sys/fs/bpf");
    std::fs::create_dir_all(&bpf).unwrap();
    let mount = format!("mount -t bpf bpf {}", bpf.display());
    for prepare in ["", &mount] {
        let prepare = format!("exec unshare --mount sh -c '{prepare}\nexec \"$@\"' sh \"$@\"");
        let said = node.run_after(&prepare, &["uninstall"]).succeeds();
        assert_eq!(said, "nothing of tweed is on this machine\n");
    }
}

/// A folder that an agent on a machine had, and what else is in there.
#[test]
fn the_fast_path_is_where_the_agent_had_it() {
    let node = Node::new();
    node.write("/etc/tweed/agent.env", "TWEED_BPF_DIR=/bpf/mine\n");
    for path in ["/bpf/mine/links/a", "/bpf/mine/maps/b", "/bpf/mine/notes"] {
        node.write(path, "");
    }
    let said = node.run(&["uninstall"]).succeeds();
    assert!(said.contains("it still contains notes"), "{said}");
    assert_eq!(node.files()[0], "/bpf/mine/notes");
}

/// The agent has set them for the fast path.
#[test]
fn conntrack_is_as_strict_as_before() {
    let node = Node::new();
    let strict = "netfilter/nf_conntrack_tcp_be_liberal";
    let resets = "netfilter/nf_conntrack_tcp_ignore_invalid_rst";
    let found = format!(r#"{{"net/{strict}": "0", "net/{resets}": "1"}}"#);
    node.write("/run/tweed/sysctls.json", &found);
    for path in [strict, resets] {
        node.write(&format!("/sysctls/{path}"), "1");
    }
    let folder = node.path("/sysctls");
    let folder = ["--sysctl-dir", folder.to_str().unwrap()];
    let said = node.run(&[&["uninstall"], &folder[..]].concat()).succeeds();
    let now = [strict, resets].map(|path| node.read(&format!("/sysctls/{path}")));
    assert_eq!(now, ["0", "1"], "{said}");
    assert!(!node.path("/run/tweed").exists(), "{said}");
}
