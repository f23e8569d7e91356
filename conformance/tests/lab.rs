//! Tests of the lab itself without tweed. What the other suites show anyway has no test here.
#![expect(
    clippy::unwrap_used,
    reason = "clippy knows tests by their attribute, not their helpers"
)]

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::Duration;

use tweed_lab::{Lab, PingOptions, Snapshot, Underlay, capture, monitor, ping, wait_until};

fn lab() -> (Lab, Underlay) {
    let lab = Lab::new().unwrap();
    let underlay = Underlay::new(&lab).unwrap();
    (lab, underlay)
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
fn a_panic_removes_the_lab() {
    let outcome = std::thread::spawn(|| {
        let (lab, _underlay) = lab();
        std::panic::panic_any(lab.name().to_owned());
    })
    .join();
    let name = *outcome.unwrap_err().downcast::<String>().unwrap();
    assert_eq!(namespaces_of(&name), [""; 0]);
}

/// Set in the process that the test starts from its own program. That process creates
/// a lab, prints its name, and waits for its end.
const HOLD: &str = "TWEED_LAB_TEST_HOLD";

#[test]
fn the_next_lab_removes_what_a_killed_one_has_left() {
    if std::env::var_os(HOLD).is_some() {
        let (lab, _underlay) = lab();
        println!("\nlab={}", lab.name());
        std::thread::sleep(Duration::from_secs(60));
    }
    let test = "the_next_lab_removes_what_a_killed_one_has_left";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(HOLD, "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let name = lines.find_map(|line| line.unwrap().strip_prefix("lab=").map(str::to_owned));
    let name = name.unwrap();
    assert_eq!(namespaces_of(&name).len(), 3);
    child.kill().unwrap();
    child.wait().unwrap();
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
