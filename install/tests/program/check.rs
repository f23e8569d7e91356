//! `check` on machines with one problem each.

use serde_json::Value;

use crate::node::{Node, program};
use crate::refused_values::REFUSED;

/// A machine where nothing is wrong, as far as a namespace can be one.
const UPLINK: &str = "ip link add eth0 type veth peer name far; ip link set far up
    ip link set eth0 up; ip addr add 192.0.2.11/24 dev eth0; ip route add default via 192.0.2.1";

fn machine() -> Node {
    let node = Node::new();
    for name in ["tweed", "tweed-ipam", "portmap", "loopback"] {
        let path = format!("/opt/cni/bin/{name}");
        node.write(&path, "");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(node.path(&path), mode).unwrap();
    }
    node
}

/// The findings that are not ok, as `level check: message → cure`.
fn complaints(node: &Node, prepare: &str, words: &[&str]) -> (Vec<String>, bool) {
    let prepare = format!("{UPLINK}\n{prepare}");
    let words = [&["--check", "--output", "json"], words].concat();
    let answer = node.run_after(&prepare, &words);
    let document: Value = serde_json::from_str(&answer.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", answer.stdout, answer.stderr));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |f: &Value| {
        let part = |key: &str| text(&f[key]);
        let [level, check, message, cure] = ["level", "check", "message", "cure"].map(part);
        format!("{level} {check}: {message} → {cure}")
    };
    let findings = document["findings"].as_array().unwrap();
    let bad = findings.iter().filter(|finding| finding["level"] != "ok");
    (bad.map(line).collect(), answer.ok)
}

#[track_caller]
fn complains(node: &Node, prepare: &str, words: &[&str], start: &str, parts: &[&str]) {
    let (complaints, ok) = complaints(node, prepare, words);
    let [line] = &complaints[..] else {
        panic!("not one complaint: {complaints:#?}");
    };
    assert!(line.starts_with(start), "{line}");
    for part in parts {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    assert_eq!(ok, !start.starts_with("error"));
}

#[test]
fn nothing_is_in_the_way_of_a_plain_machine() {
    let node = machine();
    assert_eq!(complaints(&node, "", &[]), (vec![], true));
    let said = node.run_after(UPLINK, &["check"]).succeeds();
    for feature in [
        "nf_tables with all that rules of overlay and policies use",
        "nf_tables with all that rules of Services use",
        "conntrack over netlink",
    ] {
        assert!(said.contains(feature), "{said}");
    }
    assert!(said.ends_with("nothing is in tweed's way\n"), "{said}");
}

#[test]
fn flannel_s_device() {
    let prepare = "ip link add flannel.1 type vxlan id 1 dstport 8472 dev eth0 nolearning";
    let parts = [
        "flannel.1 has VNI 1 on UDP port 8472",
        "ip link del flannel.1",
    ];
    complains(&machine(), prepare, &[], "error vxlan", &parts);
    let (complaints, _) = complaints(&machine(), prepare, &["--vxlan-port", "4789"]);
    assert_eq!(complaints, [""; 0]);
}

/// As the agent of this machine, which gets its flags from there.
#[test]
fn what_the_agent_s_environment_file_says() {
    let node = machine();
    let environment = "/etc/tweed/agent.env";
    node.write(environment, "TWEED_VXLAN_PORT=4789\nTWEED_VNI=42\n");
    let device = |vni, port| {
        format!("ip link add foreign type vxlan id {vni} dstport {port} dev eth0 nolearning")
    };
    assert_eq!(complaints(&node, &device(1, 8472), &[]), (vec![], true));
    let parts = ["foreign has VNI 42 on UDP port 4789"];
    complains(&node, &device(42, 4789), &[], "error vxlan", &parts);
    let words = ["--vni", "43"];
    assert_eq!(complaints(&node, &device(42, 4789), &words), (vec![], true));

    node.write(
        environment,
        "TWEED_BACKEND=direct\nTWEED_METRICS_ADDR=198.51.100.1:9116\n",
    );
    let prepare = "ip link set eth0 mtu 1300";
    let parts = ["cannot listen on 198.51.100.1:9116"];
    complains(&node, prepare, &[], "warning port", &parts);

    for (lines, words) in REFUSED {
        node.write(environment, lines);
        let error = node.run_after(UPLINK, &["check"]).fails();
        for part in [environment, words, "does not start"] {
            assert!(error.contains(part), "{lines}: {part} is not in {error}");
        }
    }
}

#[test]
fn a_misspelt_variable_in_the_environment_file() {
    let node = machine();
    node.write(
        "/etc/tweed/agent.env",
        "#TWEED_X=1\nTWEED_CLUSTER_CIDER=10.244.0.0/16\n",
    );
    let parts = ["TWEED_CLUSTER_CIDER", "was TWEED_CLUSTER_CIDR meant?"];
    complains(&node, "", &[], "warning variable", &parts);
}

/// As `tweed-install check | head`.
#[test]
fn a_reader_that_leaves_is_no_failure() {
    let node = machine();
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    let mut command = std::process::Command::new("unshare");
    let script = format!("ip link set lo up; {UPLINK}\nexec \"$@\"");
    command.args([
        "--net",
        "--",
        "sh",
        "-c",
        &script,
        "sh",
        &program(),
        "check",
        "--root",
    ]);
    let output = command.arg(node.root()).stdout(write).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*error), (Some(0), ""));
}

#[test]
fn nobody_but_root_is_told_to_be_root() {
    let mut command = std::process::Command::new("setpriv");
    command.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        &program(),
        "uninstall",
    ]);
    command.args(["--run-dir", "/root/nobody"]);
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.ends_with("as root\n"), "{error}");
}

#[test]
fn tweed_s_own_device_is_no_obstacle_to_tweed() {
    let prepare = "ip link add tweed.1 type vxlan id 1 dstport 8472 local 192.0.2.11 nolearning
        ip link set tweed.1 up";
    assert_eq!(complaints(&machine(), prepare, &[]), (vec![], true));
    let answer = machine().run_after(&format!("{UPLINK}\n{prepare}"), &["check"]);
    let own = "tweed's own device tweed.1 has VNI 1 on UDP port 8472";
    let said = answer.succeeds();
    assert!(said.contains(own), "{said}");
}

#[test]
fn a_small_mtu() {
    let parts = ["eth0 has an MTU of 1300", "ip link set eth0 mtu 1500"];
    complains(
        &machine(),
        "ip link set eth0 mtu 1300",
        &[],
        "warning mtu",
        &parts,
    );
}

#[test]
fn another_table_that_drops() {
    let prepare = "nft add table ip filter
        nft 'add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }'";
    let parts = [
        "chain FORWARD of table ip filter drops",
        "iptables -I FORWARD",
    ];
    complains(&machine(), prepare, &[], "warning firewall", &parts);
}

#[test]
fn a_firewall_that_lets_vxlan_in_only_as_a_new_flow() {
    let rules = [
        "-A INPUT -m state --state RELATED,ESTABLISHED -j ACCEPT",
        "-A INPUT -i lo -j ACCEPT",
        "-A INPUT -m state --state NEW -m udp -p udp --dport 8472 -j ACCEPT",
        "-A INPUT -j REJECT",
    ];
    let parts = [
        "chain INPUT of table ip filter drops the VXLAN packets of other nodes",
        "iptables -I INPUT -p udp --dport 8472 -j ACCEPT",
    ];
    let prepare = rules.map(|rule| format!("iptables-nft {rule}")).join("\n");
    complains(&machine(), &prepare, &[], "warning firewall", &parts);
    let port = ["--vxlan-port", "4789"];
    let (complaints, _) = complaints(
        &machine(),
        &format!("{prepare}\niptables-nft -I INPUT -p udp --dport 4789 -j ACCEPT"),
        &port,
    );
    assert_eq!(complaints, [""; 0]);
    // The underlay of this machine is IPv4.
    let (complaints, _) = self::complaints(&machine(), "ip6tables-nft -P INPUT DROP", &[]);
    assert_eq!(complaints, [""; 0]);
}

#[test]
fn the_old_iptables_that_drops() {
    let parts = [
        "chain FORWARD of the old iptables drops what pods send and the answers",
        "iptables-legacy -I FORWARD -i tw+",
    ];
    let prepare = "iptables-legacy -P FORWARD DROP";
    complains(&machine(), prepare, &[], "warning firewall", &parts);
}

#[test]
fn with_direct_routes_nothing_of_the_overlay_is_looked_at() {
    let node = machine();
    let prepare = "ip link add flannel.1 type vxlan id 1 dstport 8472 dev eth0 nolearning
        ip link set eth0 mtu 1300; iptables-nft -P INPUT DROP";
    let direct = ["--backend", "direct"];
    assert_eq!(complaints(&node, prepare, &direct), (vec![], true));
    // But what pods of other nodes send comes in by the uplink.
    let forward = "iptables-nft -P FORWARD DROP; iptables-nft -A FORWARD -i tw+ -j ACCEPT
        iptables-nft -A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT";
    assert_eq!(complaints(&machine(), forward, &[]), (vec![], true));
    let parts = ["drops what pods of other nodes send", "-o tw+ -j ACCEPT"];
    complains(&machine(), forward, &direct, "warning firewall", &parts);
}

/// What pods have, the agent says once it has run here.
#[test]
fn a_family_that_no_pod_has_may_be_closed() {
    let node = machine();
    let prepare = "ip6tables-nft -P FORWARD DROP";
    let parts = ["chain FORWARD of table ip6 filter drops"];
    complains(&node, prepare, &[], "warning firewall", &parts);
    let state = r#"{"ready": true, "podCIDRs": ["10.244.1.0/24"]}"#;
    node.write("/run/tweed/agent.json", state);
    assert_eq!(complaints(&node, prepare, &[]).0, [""; 0]);
}

/// What a firewall is configured to do and does not do now is no finding.
#[test]
fn a_firewall_s_rules_count_and_not_its_files() {
    let node = machine();
    node.write("/etc/ufw/ufw.conf", "ENABLED=yes\n");
    assert_eq!(complaints(&node, "", &[]).0, [""; 0]);
    let said = node.run_after(UPLINK, &["check"]).stdout;
    assert!(said.contains("no other table drops"), "{said}");
    let running = "iptables-nft -P INPUT DROP; iptables-nft -N ufw-user-input
        iptables-nft -A INPUT -j ufw-user-input";
    let parts = ["chain INPUT of table ip filter", "ufw allow 8472/udp"];
    complains(&node, running, &[], "warning firewall", &parts);
    // As from a line in its before.rules.
    for program in ["iptables-nft", "iptables-legacy"] {
        let open = format!(
            "{program} -P INPUT DROP; {program} -N ufw-before-input; {program} -N ufw-user-input
             {program} -A INPUT -j ufw-before-input
             {program} -A ufw-before-input -p udp --dport 8472 -j ACCEPT
             {program} -A ufw-before-input -j ufw-user-input"
        );
        assert_eq!(complaints(&node, &open, &[]).0, [""; 0], "{program}");
    }
    let running = "nft add table inet firewalld
        nft add chain inet firewalld filter_INPUT '{ type filter hook input priority 10; }'
        nft add rule inet firewalld filter_INPUT ct state '{ established, related }' accept
        nft add rule inet firewalld filter_INPUT iifname lo accept
        nft add rule inet firewalld filter_INPUT reject with icmpx admin-prohibited";
    let parts = [
        "chain filter_INPUT of table inet firewalld",
        "firewall-cmd --permanent --add-port=8472/udp",
    ];
    complains(&node, running, &[], "warning firewall", &parts);
}

#[test]
fn an_address_for_probes_that_the_agent_cannot_have() {
    let words = ["--health-addr", "203.0.113.9:9117"];
    let parts = ["cannot listen on 203.0.113.9:9117", "give --health-addr"];
    complains(&machine(), "", &words, "warning port", &parts);
    // As the agent's pod has it on a node whose address is IPv6.
    let words = ["--metrics-addr", "2001:db8::7:9116"];
    let parts = ["cannot listen on [2001:db8::7]:9116"];
    complains(&machine(), "", &words, "warning port", &parts);
}

#[test]
fn another_network_s_config() {
    let node = machine();
    let flannel = r#"{"cniVersion":"1.0.0","name":"cbr0","plugins":[{"type":"flannel"}]}"#;
    node.write("/etc/cni/net.d/10-flannel.conflist", flannel);
    let parts = [
        "10-flannel.conflist (flannel) comes before",
        "--displace-cni",
    ];
    complains(&node, "", &[], "warning cni-config", &parts);
}

#[test]
fn a_slip_in_a_config_of_tweed() {
    let node = machine();
    let config = r#"{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"tweed","mtu":1450,
        "hostSuorce":["192.0.2.11"],
        "ipam":{"type":"tweed-ipam","ranges":[[{"subnet":"10.244.1.0/24"}]]}}]}"#;
    node.write("/etc/cni/net.d/05-mine.conflist", config);
    let parts = ["the key hostSuorce is not known", "write hostSource"];
    complains(&node, "", &[], "error cni-config", &parts);
}

#[test]
fn a_missing_portmap() {
    let node = machine();
    std::fs::remove_file(node.path("/opt/cni/bin/portmap")).unwrap();
    let parts = ["hostPort does nothing", "containernetworking-plugins"];
    complains(&node, "", &[], "warning plugin", &parts);
}

#[test]
fn network_manager() {
    let node = machine();
    // What it has left in its folder says nothing of whether it runs.
    node.write("/run/NetworkManager/devices/2", "");
    assert_eq!(complaints(&node, "", &[]).0, [""; 0]);
    node.write("/proc/77/comm", "NetworkManager\n");
    let parts = [
        "NetworkManager runs",
        "unmanaged-devices+=interface-name:tw*",
    ];
    complains(&node, "", &[], "warning manager", &parts);
    // What is in this file is read before what is in the folder.
    let others = "[keyfile]\nunmanaged-devices=interface-name:docker0\n";
    node.write("/etc/NetworkManager/NetworkManager.conf", others);
    let told = "[keyfile]\nunmanaged-devices+=interface-name:tw*\n";
    node.write("/usr/lib/NetworkManager/conf.d/tweed.conf", told);
    complains(&node, "", &[], "warning manager", &parts);
    node.write("/etc/NetworkManager/conf.d/tweed.conf", told);
    assert_eq!(complaints(&node, "", &[]).0, [""; 0]);
}

/// Debian has its folders on every machine, and starts it on few.
#[test]
fn systemd_networkd() {
    let node = machine();
    node.write("/run/systemd/netif/leases/2", "");
    let all = "[Match]\nName=*\n[Network]\nDHCP=yes\n";
    node.write("/etc/systemd/network/80-all.network", all);
    let routes = "[Network]\nManageForeignRoutes=no\n";
    node.write("/etc/systemd/networkd.conf", routes);
    assert_eq!(complaints(&node, "", &[]).0, [""; 0]);
    node.write("/proc/77/comm", "systemd-network\n");
    let parts = ["/80-all.network: it asks for addresses", "0-tweed.network"];
    complains(&node, "", &[], "warning manager", &parts);
}

/// Services are off unless somebody turns them on.
#[test]
fn a_kernel_without_what_only_rules_of_services_use() {
    let node = machine();
    let program = node.path("/nft");
    let nft = program.to_str().unwrap();
    let refuses = format!(
        "cat >{nft} <<'END'
#!/bin/sh
text=$(cat)
case $text in *numgen*) echo 'Error: Could not process rule' >&2; exit 1 ;; esac
printf '%s\\n' \"$text\" | exec nft \"$@\"
END
chmod 755 {nft}"
    );
    let parts = [
        "rules of Services use",
        "Could not process rule",
        "nft_numgen",
    ];
    complains(&node, &refuses, &["--nft", nft], "warning kernel", &parts);
}

#[test]
fn dhcpcd() {
    let node = machine();
    node.write("/proc/1/comm", "systemd\n");
    node.write("/proc/77/comm", "dhcpcd\n");
    // One that serves a single interface, and what one of all has left.
    node.write("/run/dhcpcd/eth0-4.pid", "77\n");
    node.write("/run/dhcpcd/pid", "1\n");
    assert_eq!(complaints(&node, "", &[]).0, [""; 0]);
    node.write("/run/dhcpcd/pid", "77\n");
    let parts = ["dhcpcd runs", "denyinterfaces tw*"];
    complains(&node, "", &[], "warning manager", &parts);
    node.write("/etc/dhcpcd.conf", "denyinterfaces tw*\nhostname\n");
    assert_eq!(complaints(&node, "", &[]).0, [""; 0]);
}

#[test]
fn an_nft_that_is_not_there() {
    let parts = [
        "were not tried: /nowhere/nft was not found",
        "→ install nft 1.0.6",
    ];
    complains(
        &machine(),
        "",
        &["--nft", "/nowhere/nft"],
        "error kernel",
        &parts,
    );
}

#[test]
fn check_changes_nothing() {
    let node = machine();
    let before = node.files();
    let look = "{ ip -d addr; ip route show table all; nft list ruleset; }";
    let program = crate::node::program();
    let root = node.root().display();
    // What the kernel does by itself some time after links have come up is over before:
    // with an IPv6 address it adds routes, and looks for duplicates.
    let settled = "for link in lo eth0 far; do sysctl -qw net.ipv6.conf.$link.disable_ipv6=1; done
        until [ $(ip -o link | grep -c 'state UP') = 2 ]; do sleep 0.05; done";
    let script = format!(
        "{settled}
        before=$({look}); {program} check --root {root} >&2; [ \"$before\" = \"$({look})\" ]; exit"
    );
    node.run_after(&format!("{UPLINK}\n{script}"), &["check"])
        .succeeds();
    assert_eq!(node.files(), before);
}

#[test]
fn a_config_without_end_is_named_and_not_waited_for() {
    let node = machine();
    let folder = node.path("/etc/cni/net.d");
    std::fs::create_dir_all(&folder).unwrap();
    let mode = nix::sys::stat::Mode::S_IRWXU;
    nix::unistd::mkfifo(&folder.join("20-fifo.conf"), mode).unwrap();
    std::os::unix::fs::symlink("/dev/zero", folder.join("30-zero.conf")).unwrap();
    // What is asked for its settings.
    for config in [
        "etc/NetworkManager/NetworkManager.conf",
        "run/tweed/agent.json",
    ] {
        let config = node.path(&format!("/{config}"));
        std::fs::create_dir_all(config.parent().unwrap()).unwrap();
        nix::unistd::mkfifo(&config, mode).unwrap();
    }
    node.write("/proc/77/comm", "NetworkManager\n");
    let (complaints, _) = complaints(&node, "", &[]);
    for name in ["20-fifo.conf", "30-zero.conf"] {
        let names = |line: &String| line.contains(name);
        assert!(complaints.iter().any(names), "{complaints:?}");
    }
}
