//! Tests of the lab itself without tweed: with the reference plugins `ptp` and
//! `host-local`, and with plain routes.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "clippy knows tests by their attribute, not their helpers"
)]

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tweed_lab::{
    CniTool, ContinuousPing, EchoServer, Lab, Node, OUTSIDE, PingOptions, Pod, Snapshot, Transport,
    Underlay, capture, existing_labs, monitor, ping, source_seen, take_down, wait_until,
};

fn lab() -> (Lab, Underlay) {
    let lab = Lab::new().unwrap();
    let underlay = Underlay::new(&lab).unwrap();
    (lab, underlay)
}

fn write_ptp(node: &Node) {
    let config = json!({
        "cniVersion": "1.1.0", "name": "reference",
        "plugins": [{ "type": "ptp", "mtu": 1450,
            "ipam": { "type": "host-local", "dataDir": node.run_dir(),
                      "ranges": [[{ "subnet": node.pod_cidr() }]],
                      "routes": [{ "dst": "0.0.0.0/0" }] } }]
    });
    node.write_cni_config("10-reference.conflist", &config.to_string())
        .unwrap();
}

#[test]
fn nodes_reach_each_other_and_the_host_outside() {
    let (_lab, underlay) = lab();
    let (one, two) = (underlay.node(1).unwrap(), underlay.node(2).unwrap());
    for to in [two.address(), OUTSIDE] {
        let report = ping(one.netns(), to, &PingOptions::default()).unwrap();
        assert_eq!((report.sent, report.lost()), (3, 0), "{to}: {report}");
        assert!(report.average_ms.unwrap() > 0.0);
    }
    assert_eq!(underlay.foreign_frames().unwrap(), 0);
    assert_eq!(one.netns().sysctl("ipv4/conf/eth0/rp_filter").unwrap(), "1");
}

#[test]
fn the_switch_drops_a_foreign_source() {
    let (_lab, underlay) = lab();
    let (one, two) = (underlay.node(1).unwrap(), underlay.node(2).unwrap());
    one.netns().ip(["addr add 10.9.9.9/32 dev lo"]).unwrap();
    two.netns()
        .ip([format!("route add 10.9.9.9 via {}", one.address())])
        .unwrap();
    let foreign = PingOptions {
        count: 1,
        wait: Duration::from_millis(300),
        source: Some(Ipv4Addr::new(10, 9, 9, 9).into()),
        ..PingOptions::default()
    };
    let control = ping(one.netns(), two.address(), &PingOptions::default()).unwrap();
    assert_eq!(control.lost(), 0, "{control}");
    let dropped = ping(one.netns(), two.address(), &foreign).unwrap();
    assert_eq!(dropped.lost(), 1, "{dropped}");
    assert_eq!(underlay.foreign_frames().unwrap(), 1);

    let [a, b, c, d] = [10, 9, 9, 9];
    underlay.allow("node1", Ipv4Addr::new(a, b, c, d)).unwrap();
    let allowed = ping(one.netns(), two.address(), &foreign).unwrap();
    assert_eq!(allowed.lost(), 0, "{allowed}");
}

#[test]
fn a_packet_of_exactly_the_mtu_passes_unfragmented() {
    let (_lab, underlay) = lab();
    let (one, two) = (underlay.node(1).unwrap(), underlay.node(2).unwrap());
    let fits = ping(one.netns(), two.address(), &PingOptions::packet(1500)).unwrap();
    assert_eq!(fits.lost(), 0, "{fits}");
    let too_long = ping(one.netns(), two.address(), &PingOptions::packet(1501)).unwrap();
    assert!(too_long.errors[0].contains("mtu=1500"), "{too_long:?}");
}

#[test]
fn cnitool_attaches_pods_with_the_reference_plugins() {
    let (lab, underlay) = lab();
    let node = underlay.node(1).unwrap();
    write_ptp(&node);
    let tool = CniTool::new(&node, "reference");
    tool.status().unwrap();
    let pods = ["blue", "green"].map(|name| Pod::new(&lab, name).unwrap());
    let before = Snapshot::of(pods[0].netns()).unwrap();
    let [blue, green] = [0, 1].map(|i| tool.add(&pods[i]).unwrap().address().unwrap());
    tool.check(&pods[0]).unwrap();

    let report = ping(pods[0].netns(), green, &PingOptions::default()).unwrap();
    assert_eq!(report.lost(), 0, "{report}");
    let server = EchoServer::start(pods[1].netns(), 7777).unwrap();
    for transport in [Transport::Udp, Transport::Tcp] {
        let to = SocketAddr::new(green, server.port());
        let seen = source_seen(pods[0].netns(), to, transport).unwrap();
        assert_eq!(seen.ip(), blue, "{transport:?}");
    }

    let cached = std::fs::read_dir(node.cni_cache_dir().join("results")).unwrap();
    let names: Vec<_> = cached.map(|e| e.unwrap().file_name()).collect();
    let expected = format!("reference-{}-eth0", pods[0].container_id());
    assert!(names.iter().any(|n| *n == *expected), "{names:?}");

    tool.del(&pods[0]).unwrap();
    let after = Snapshot::of(pods[0].netns()).unwrap();
    assert_eq!(before.changes(&after), [] as [&str; 0]);
    tool.gc().unwrap();
    assert!(
        Snapshot::of(pods[1].netns())
            .unwrap()
            .of_kind("route")
            .all(|route| !route.contains("default")),
        "cnitool's gc calls DEL for its cached results"
    );
}

#[test]
fn a_snapshot_shows_each_kind_of_change() {
    let (_lab, underlay) = lab();
    let node = underlay.node(1).unwrap();
    let netns = node.netns();
    let before = Snapshot::settled(netns).unwrap();
    assert_eq!(before.changes(&Snapshot::of(netns).unwrap()), [""; 0]);
    netns
        .ip([
            "link add dummy1 type bridge",
            "addr add 10.1.1.1/24 dev dummy1",
            "route add unreachable 10.3.0.0/16",
            "rule add from 10.4.4.4 table 100",
            "neigh add 10.1.1.2 lladdr 02:00:00:00:00:01 dev dummy1 nud permanent",
        ])
        .unwrap();
    netns
        .sh("bridge fdb add 02:00:00:00:00:02 dev eth0 self permanent")
        .unwrap();
    netns.nft("table inet mine {\n chain c {\n }\n}").unwrap();
    netns.set_sysctl("ipv4/ip_forward", "1").unwrap();
    let changes = before.changes(&Snapshot::of(netns).unwrap());
    for kind in [
        "link",
        "address",
        "route",
        "rule",
        "neighbour",
        "fdb",
        "nft",
        "sysctl",
    ] {
        let prefix = format!("+ {kind} ");
        assert!(changes.iter().any(|c| c.starts_with(&prefix)), "{kind}");
    }
}

/// The kernel is sure of a new address of IPv6 after a second at the earliest, and makes
/// its routes then.
#[test]
fn a_settled_snapshot_is_of_addresses_that_the_kernel_is_sure_of() {
    let lab = Lab::new().unwrap();
    let netns = lab.netns("alone").unwrap();
    netns
        .ip([
            "link add one type veth peer name two",
            "link set one up",
            "link set two up",
        ])
        .unwrap();
    let settled = Snapshot::settled(&netns).unwrap();
    let own: Vec<_> = settled
        .of_kind("address")
        .filter(|address| address.contains("fe80:"))
        .collect();
    assert_eq!(own.len(), 2, "{settled}");
    assert!(own.iter().all(|one| !one.contains("tentative")), "{own:?}");
}

#[test]
fn packets_and_changes_are_captured() {
    let (_lab, underlay) = lab();
    let (one, two) = (underlay.node(1).unwrap(), underlay.node(2).unwrap());
    let packets = capture(two.netns(), "eth0", "icmp").unwrap();
    let changes = monitor(one.netns()).unwrap();
    ping(one.netns(), two.address(), &PingOptions::default()).unwrap();
    one.netns()
        .ip(["route add unreachable 10.3.0.0/16"])
        .unwrap();
    packets.wait_for("echo reply").unwrap();
    changes.wait_for("10.3.0.0/16").unwrap();
    wait_until("six packets", Duration::from_secs(30), || {
        let lines = packets.lines();
        if lines.len() == 6 {
            Ok(())
        } else {
            Err(lines.join("\n"))
        }
    })
    .unwrap();
    assert_eq!(packets.stop().unwrap().len(), 6);
    let lines = changes.stop().unwrap();
    assert!(
        lines.iter().all(|line| !line.contains("127.")),
        "{lines:#?}"
    );
}

#[test]
fn a_node_moves_to_another_address() {
    let (_lab, underlay) = lab();
    let one = underlay.node(1).unwrap();
    let mut two = underlay.node(2).unwrap();
    let old = two.address();
    two.change_address(Ipv4Addr::new(192, 0, 2, 99)).unwrap();
    for (from, to) in [(one.netns(), two.address()), (two.netns(), OUTSIDE)] {
        let report = ping(from, to, &PingOptions::default()).unwrap();
        assert_eq!(report.lost(), 0, "{to}: {report}");
    }
    let quick = PingOptions {
        count: 1,
        wait: Duration::from_millis(200),
        ..PingOptions::default()
    };
    assert_eq!(ping(one.netns(), old, &quick).unwrap().lost(), 1);
}

#[test]
fn a_node_name_can_be_used_again() {
    let (_lab, underlay) = lab();
    let one = underlay.node(1).unwrap();
    drop(underlay.node(2).unwrap());
    let two = underlay.node(2).unwrap();
    let report = ping(one.netns(), two.address(), &PingOptions::default()).unwrap();
    assert_eq!(report.lost(), 0, "{report}");
}

#[test]
fn a_dropped_lab_leaves_nothing() {
    let (lab, underlay) = lab();
    let node = underlay.node(1).unwrap();
    let pod = Pod::new(&lab, "blue").unwrap();
    let pings = ContinuousPing::start(node.netns(), OUTSIDE).unwrap();
    let (name, folder) = (lab.name().to_owned(), lab.folder().to_owned());
    assert!(!namespaces_of(&name).is_empty());
    drop((lab, underlay, node, pod, pings));
    assert_eq!(namespaces_of(&name), [""; 0]);
    assert!(!folder.exists());
}

#[test]
fn a_panic_removes_the_lab() {
    let outcome = std::thread::spawn(|| {
        let (lab, _underlay) = lab();
        std::panic::panic_any(lab.name().to_owned());
    })
    .join();
    let name = *outcome.unwrap_err().downcast::<String>().unwrap();
    assert_eq!(namespaces_of(&name), [""; 0]);
}

#[test]
fn a_kept_lab_stays_until_it_is_removed() {
    let (lab, underlay) = lab();
    lab.keep().unwrap();
    let name = lab.name().to_owned();
    drop((lab, underlay));
    let found = existing_labs().unwrap();
    assert!(found.iter().any(|old| old.name == name && old.kept));
    assert!(Lab::named(&name).is_err());
    assert_eq!(take_down(&name).unwrap().len(), 3);
    assert_eq!(namespaces_of(&name), [""; 0]);
    assert_eq!(take_down(&name).unwrap(), [""; 0]);
}

/// Set in the process that a test starts from its own program. That process creates
/// a lab, prints its name, and waits for a signal.
const HOLD: &str = "TWEED_LAB_TEST_HOLD";

/// Runs this program again with a lab, sends it `signal`, and returns the lab's name
/// after it has ended.
fn end_holder(test: &str, signal: Signal) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(HOLD, "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut seen = String::new();
    let name = loop {
        let mut byte = [0];
        assert_eq!(stdout.read(&mut byte).unwrap(), 1, "{seen}");
        seen.push(char::from(byte[0]));
        if let Some((_, rest)) = seen.split_once("lab=")
            && let Some((name, _)) = rest.split_once(';')
        {
            break name.to_owned();
        }
    };
    assert_eq!(namespaces_of(&name).len(), 3);
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
    child.wait().unwrap();
    name
}

fn hold_lab_if_child() {
    if std::env::var_os(HOLD).is_some() {
        let (lab, _underlay) = lab();
        println!("lab={};", lab.name());
        std::thread::sleep(Duration::from_secs(60));
    }
}

#[test]
fn a_signal_removes_the_lab() {
    hold_lab_if_child();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let name = end_holder("a_signal_removes_the_lab", signal);
        assert_eq!(namespaces_of(&name), [""; 0], "{signal}");
    }
}

#[test]
fn the_next_lab_removes_what_a_killed_one_has_left() {
    hold_lab_if_child();
    let name = end_holder(
        "the_next_lab_removes_what_a_killed_one_has_left",
        Signal::SIGKILL,
    );
    let _lab = Lab::new().unwrap();
    // The new lab of another test may be removing it at the same time.
    wait_until("the old lab to be removed", Duration::from_secs(30), || {
        let left = namespaces_of(&name);
        if left.is_empty() {
            Ok(())
        } else {
            Err(left.join(" "))
        }
    })
    .unwrap();
}

fn namespaces_of(lab: &str) -> Vec<String> {
    let prefix = format!("{lab}-");
    let mut names: Vec<String> = std::fs::read_dir("/run/netns")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&prefix))
        .collect();
    names.sort();
    names
}

#[test]
fn addresses_of_nodes_are_as_documented() {
    let (_lab, underlay) = lab();
    let node = underlay.node(7).unwrap();
    assert_eq!(IpAddr::V4(node.address()), IpAddr::from([192, 0, 2, 17]));
    assert_eq!(node.pod_cidr(), "10.244.7.0/24");
    assert_eq!(
        node.manifest().to_json()["spec"]["podCIDR"],
        "10.244.7.0/24"
    );
}
