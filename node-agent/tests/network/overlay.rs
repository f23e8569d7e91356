//! The overlay of a node: made, kept, and changed with the Nodes.

use std::fs;
use std::path::Path;

use crate::families;
use crate::node::{Node, address, eventually, ip, picture, pod_cidr, run, succeeds};
use crate::script::write_script;

#[test]
fn three_nodes_become_a_device_and_three_objects_for_each_peer() {
    let node = Node::new();
    node.list(1..=3);
    let agent = node.start(&[]);
    agent.ready();

    let link = ip("-d -o link show dev tweed.1");
    for part in [
        "vxlan id 1 local 192.0.2.1",
        "dstport 8472",
        "nolearning",
        "mtu 1450",
    ] {
        assert!(link.contains(part), "{part}: {link}");
    }
    let addresses = ip("-4 -br address show dev tweed.1");
    assert!(addresses.contains("10.0.1.0/32"), "{addresses}");
    let routes = ip("route show proto 116");
    for n in [2, 3] {
        let gateway = format!("10.0.{n}.0");
        let route = format!("{} via {gateway} dev tweed.1 onlink", pod_cidr(n));
        assert!(routes.contains(&route), "{route}: {routes}");
        let neighbour = ip(&format!("neighbour show {gateway} dev tweed.1"));
        let mac = neighbour.split_whitespace().nth(2).unwrap();
        assert!(neighbour.contains("PERMANENT"), "{neighbour}");
        let fdb = run("bridge", "fdb show dev tweed.1");
        let entry = format!("{mac} dst {} self permanent", address(n));
        assert!(fdb.contains(&entry), "{entry}: {fdb}");
    }
    assert!(routes.contains("unreachable 10.0.1.0/24"), "{routes}");
    node.publishes("net.d/10-tweed.conflist", "\"mtu\": 1450");
    node.publishes("run/ready", "n1");
    agent.stop();
    assert!(picture().contains("10.0.2.0"), "stopping leaves everything");
}

#[test]
fn what_is_broken_by_hand_comes_back() {
    let node = Node::new();
    node.list(1..=3);
    ip("link add br0 type bridge");
    let agent = node.start(&[]);
    agent.ready();
    let whole = picture();
    let mac = whole
        .lines()
        .find_map(|line| line.strip_prefix("10.0.2.0 lladdr "))
        .and_then(|rest| rest.split(' ').next())
        .unwrap()
        .to_owned();
    for damage in [
        "ip link delete tweed.1",
        "ip link set tweed.1 down",
        "ip link set tweed.1 mtu 1000",
        "ip link set tweed.1 address 02:00:00:00:00:99",
        "ip link set tweed.1 master br0",
        "ip link set tweed.1 type vxlan learning",
        "ip link set tweed.1 type vxlan ttl 5",
        "ip address delete 10.0.1.0/32 dev tweed.1",
        "ip address add 10.9.9.9/32 dev tweed.1",
        "ip route delete 10.0.2.0/24",
        "ip route delete unreachable 10.0.1.0/24",
        "ip route change 10.0.2.0/24 via 10.0.3.0 dev tweed.1 onlink proto 116",
        "ip route change 10.0.2.0/24 via 10.0.2.0 dev tweed.1 onlink proto 116 mtu 500",
        "ip route replace 10.0.2.0/24 proto 116 nexthop via 192.0.2.8 nexthop via 192.0.2.9",
        "ip route add 10.77.0.0/24 via 192.0.2.9 proto 116",
        "ip neighbour delete 10.0.2.0 dev tweed.1",
        "ip neighbour replace 10.0.2.0 lladdr 02:00:00:00:00:77 dev tweed.1 nud permanent",
        "ip neighbour replace 10.0.2.0 lladdr 02:00:00:00:00:77 dev tweed.1 nud stale",
        "ip neighbour add 10.0.9.0 lladdr 02:00:00:00:00:77 dev tweed.1 nud permanent",
        &format!("bridge fdb delete {mac} dev tweed.1"),
        &format!("bridge fdb replace {mac} dev tweed.1 dst 192.0.2.99"),
        &format!("bridge fdb replace {mac} dev tweed.1 dst 192.0.2.2 port 9999"),
        "bridge fdb append 02:00:00:00:00:55 dev tweed.1 dst 192.0.2.99",
        "ip route flush proto 116",
        "ip neighbour flush dev tweed.1 nud permanent",
    ] {
        let (program, arguments) = damage.split_once(' ').unwrap();
        let repaired = agent.drift_repaired();
        run(program, arguments);
        eventually(|| match agent.drift_repaired() {
            now if now > repaired => Ok(()),
            _ => Err(format!("`{damage}` was not noticed")),
        });
        eventually(|| match picture() {
            now if now == whole => Ok(()),
            now => Err(format!("after `{damage}`:\n{now}\ninstead of\n{whole}")),
        });
        agent.ready();
    }
    for (kind, at_least) in [("link", 7), ("route", 5), ("neighbour", 5), ("fdb", 3)] {
        let metric = format!("tweed_drift_repaired_total{{kind=\"{kind}\"}}");
        assert!(agent.metric(&metric) >= at_least, "{metric}");
    }
}

/// Of both families: an IPv6 address brings a route along, which must not count
/// as a network that this machine has besides.
#[test]
fn a_device_that_somebody_renamed_gets_its_name_back_and_loses_nothing() {
    let node = Node::new();
    ip("address add 2001:db8::1/64 dev eth0 nodad");
    node.write_nodes(&[families::node(1), families::node(2)].concat());
    let agent = node.start(&[]);
    agent.ready();
    let whole = || [picture(), ip("-6 route show")].join("\n");
    let (before, index) = (whole(), index_of("tweed.1"));
    for name in ["mine", "tweed.5"] {
        let changes = agent.metric("tweed_kernel_changes_total");
        ip(&format!("link set tweed.1 name {name}"));
        comes_back();
        agent.ready();
        assert_eq!(whole(), before);
        assert_eq!(index_of("tweed.1"), index, "it was made again");
        assert_eq!(agent.metric("tweed_kernel_changes_total"), changes + 1);
    }
    agent.stop();
    ip("link set tweed.1 name mine");
    let agent = node.start(&[]);
    comes_back();
    agent.ready();
    assert_eq!((whole(), index_of("tweed.1")), (before, index));
    assert_eq!(agent.metric("tweed_kernel_changes_total"), 1);
}

fn comes_back() {
    eventually(|| {
        if succeeds("ip", "link show tweed.1") {
            Ok(())
        } else {
            Err(ip("-d link show type vxlan"))
        }
    });
}

fn index_of(link: &str) -> String {
    let line = ip(&format!("-o link show {link}"));
    line.split(':').next().unwrap_or_default().to_owned()
}

#[test]
fn an_agent_does_not_wait_for_a_program_that_hangs_when_it_is_to_stop() {
    let node = Node::new();
    node.list(1..=2);
    let (nft, number) = (node.path("nft"), node.path("number"));
    let script = format!(
        "#!/bin/sh\necho $$ > {}\nexec sleep 1000\n",
        number.display()
    );
    write_script(&nft, &script);
    let agent = node.start(&["--nft", nft.to_str().unwrap()]);
    let mut hanging = String::new();
    eventually(|| match fs::read_to_string(&number) {
        Ok(text) if text.ends_with('\n') => {
            hanging = text;
            Ok(())
        }
        other => Err(format!("nft has not started: {other:?}")),
    });
    let words = agent.last_words();
    assert!(
        words
            .iter()
            .any(|word| word.contains("stopped with the agent")),
        "{words:?}"
    );
    assert!(!Path::new("/proc").join(hanging.trim()).exists());
}

#[test]
fn sysctls_are_set_kept_and_remembered() {
    let node = Node::new();
    let forward = "/proc/thread-self/net/../sys/net/ipv4/ip_forward";
    let forward = match fs::read_to_string(forward) {
        Ok(_) => forward,
        Err(_) => "/proc/sys/net/ipv4/ip_forward",
    };
    fs::write(forward, "0").unwrap();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    let read = || fs::read_to_string(forward).unwrap();
    assert_eq!(read().trim(), "1");
    fs::write(forward, "0").unwrap();
    eventually(|| match read().trim() {
        "1" => Ok(()),
        other => Err(other.to_owned()),
    });
    let found = fs::read_to_string(node.path("run/sysctls.json")).unwrap();
    assert!(found.contains("\"net/ipv4/ip_forward\": \"0\""), "{found}");
}
