//! Local pods: what their records say is kept.

use tweed_core::attachment::{Attachment, ContainerId, IfName, NetworkName};
use tweed_ipam::record::{Owner, Process, Record};
use tweed_ipam::store::{Host, Store};

use crate::namespace::Namespace;
use crate::node::{Node, eventually, ip, run};
use crate::pod::{Pod, WAIT, only};

/// What a pod's source is known by where routing rules hide its route.
#[test]
fn the_address_and_the_link_of_a_pod_are_in_the_table_as_long_as_it_lives() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    let pod = Pod::add(&node, "c1", "10.0.1.5");
    let element = format!("10.0.1.5 . \"{}\"", pod.link);
    let holds = |expected: bool| {
        eventually(|| match run("nft", "list set inet tweed pod_links4") {
            set if set.contains(&element) == expected => Ok(()),
            set => Err(set),
        });
    };
    holds(true);
    agent.passes();
    run("nft", "flush set inet tweed pod_links4");
    holds(true);
    agent.stop();
    let agent = node.start(&[]);
    agent.ready();
    holds(true);
    ip(&format!("link delete {}", pod.link));
    holds(false);
    // The sweep may come after the run that took the element out.
    eventually(|| match pod.record() {
        None => Ok(()),
        Some(record) => Err(format!("{record:?}")),
    });
}

#[test]
fn what_is_broken_of_a_pod_comes_back() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    let pod = Pod::add(&node, "c1", "10.0.1.5");
    let (link, address) = (&pod.link, &pod.address);
    pod.whole().unwrap();
    agent.passes();
    ip("link add br0 type bridge");
    for damage in [
        format!("ip route delete {address}"),
        format!("ip route change {address} dev {link} proto 116"),
        format!("ip neighbour delete {address} dev {link}"),
        format!("ip neighbour replace {address} lladdr 02:00:00:00:00:99 dev {link} nud permanent"),
        format!("ip link set {link} mtu 1300"),
        format!("ip link set {link} down"),
        format!("ip link set {link} group default"),
        format!("ip link set {link} group 117"),
        format!("ip link set {link} master br0"),
        format!("ip link set {link} address 02:00:00:00:00:98"),
    ] {
        let repaired = agent.drift_repaired();
        let (program, arguments) = damage.split_once(' ').unwrap();
        run(program, arguments);
        eventually(|| {
            if agent.drift_repaired() > repaired {
                pod.whole()
            } else {
                Err(format!("`{damage}` was not noticed"))
            }
        });
    }
    // Name and group still say whose link it is.
    ip(&format!("link set {link} alias mine"));
    ip(&format!("route delete {address}"));
    eventually(|| pod.whole());
    let setting = |family: &str, key: &str| format!("/proc/sys/net/{family}/conf/{link}/{key}");
    for (family, key, value) in [
        ("ipv4", "send_redirects", "0"),
        ("ipv4", "forwarding", "1"),
        ("ipv6", "accept_ra", "0"),
        ("ipv6", "addr_gen_mode", "1"),
    ] {
        let path = setting(family, key);
        std::fs::write(&path, if value == "0" { "1" } else { "0" }).unwrap();
        eventually(|| match std::fs::read_to_string(&path).unwrap().trim() {
            now if now == value => Ok(()),
            now => Err(format!("{key} is {now}")),
        });
    }
    agent.ready();
}

/// `prepend` puts a route before that of the pod, so that packets take it; `append` puts it
/// behind.
#[test]
fn a_second_route_to_a_pod_of_tweed_s_protocol_is_removed() {
    let node = Node::new();
    node.list(1..=2);
    ip("address add 2001:db8::1/64 dev eth0 nodad");
    let agent = node.start(&[]);
    agent.ready();
    for (id, address, gateway) in [
        ("c1", "10.0.1.5", "192.0.2.9"),
        ("c2", "fd00:1::5", "2001:db8::9"),
    ] {
        let pod = Pod::add(&node, id, address);
        agent.passes();
        pod.whole().unwrap();
        for place in ["prepend", "append"] {
            let repaired = agent.drift_repaired();
            ip(&format!("route {place} {address} via {gateway} proto 116"));
            eventually(|| {
                if agent.drift_repaired() > repaired {
                    pod.whole()
                } else {
                    Err(format!("`{place}` of {address} was not noticed"))
                }
            });
        }
    }
}

/// Its address stays the pod's, which still runs.
#[test]
fn a_renamed_link_of_a_pod_gets_its_name_back() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    let pod = Pod::add(&node, "c1", "10.0.1.5");
    agent.passes();
    let repaired = agent.drift_repaired();
    // Before Linux 6.2 no link that is up can be renamed.
    let link = &pod.link;
    ip(&format!("link set {link} down"));
    ip(&format!("link set {link} name mine"));
    eventually(|| {
        // That it was down may have been noticed before it had another name.
        if agent.drift_repaired() > repaired && ip("link").contains(link.as_str()) {
            pod.whole()
        } else {
            Err("it was not noticed".to_owned())
        }
    });
    assert!(pod.record().is_some());
    agent.ready();
}

#[test]
fn routes_to_pods_follow_the_underlay_s_address() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    let pod = Pod::add(&node, "c1", "10.0.1.5");
    node.moves_to("192.0.2.77");
    eventually(|| match pod.route() {
        route if route.contains("src 192.0.2.77") => Ok(()),
        route => Err(route),
    });
    agent.ready();
}

#[test]
fn pods_outside_the_node_s_own_cidr_are_named() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    let pod = Pod::add(&node, "c1", "10.0.200.5");
    let problem = agent.complains("pods-outside-cidr");
    assert!(problem.contains("c1"), "{problem}");
    pod.whole().unwrap();
    ip(&format!("link delete {}", pod.link));
    agent.ready();
}

/// The plugin on a node that is an LXC container reads another boot ID than an agent
/// in a container there.
#[test]
fn pods_are_kept_by_an_agent_that_reads_another_boot_id() {
    let node = Node::new();
    node.list(1..=2);
    let file = node.path("boot_id");
    std::fs::write(&file, "22222222-2222-4222-8222-222222222222\n").unwrap();
    let agent = node.start(&["--boot-id-file", file.to_str().unwrap()]);
    agent.ready();
    let pod = Pod::add(&node, "c1", "10.0.1.5");
    let problem = agent.complains("boot-id-mismatch");
    assert!(problem.contains("2222-4222"), "{problem}");
    assert!(problem.contains("--boot-id-file"), "{problem}");
    let used = r#"tweed_addresses{family="ipv4",range="10.0.1.0/24",state="used"} 1.0"#;
    eventually(|| match agent.text() {
        text if text.contains(used) => Ok(()),
        text => Err(text),
    });
    // To put it back it takes the store's lock.
    ip(&format!("route delete {}", pod.address));
    eventually(|| pod.whole());
    assert!(pod.record().is_some());
    let second = Pod::add(&node, "c2", "10.0.1.6");
    assert!(pod.record().is_some() && second.record().is_some());
    ip(&format!("link delete {}", second.link));
    eventually(|| match second.record() {
        None => Ok(()),
        Some(record) => Err(format!("{:?}", record.state)),
    });
    assert!(pod.record().is_some());
}

/// No link shows it of a pod of another main plugin.
#[test]
fn a_record_whose_namespace_is_there_is_not_of_another_boot() {
    let node = Node::new();
    let id = node.path("boot_id");
    std::fs::write(&id, "22222222-2222-4222-8222-222222222222\n").unwrap();
    let network = NetworkName::new("tweed").unwrap();
    let other = Store::open_on(Host::with_boot_id(&id), &node.path("run/ipam"), &network);
    let store = Pod::store(&node);
    let namespace = Namespace::new();
    for (netns, is_kept) in [
        (namespace.path(), true),
        ("/proc/thread-self/ns/net".into(), false),
    ] {
        let attachment = Attachment {
            network: network.clone(),
            container_id: ContainerId::new("c1").unwrap(),
            ifname: IfName::new("eth0").unwrap(),
        };
        let mut seed = Record::adding(
            attachment.clone(),
            Owner::Other,
            Process::current().unwrap(),
        );
        seed.netns = Some(netns);
        let mut locked = store.lock(WAIT).unwrap();
        let held = locked.reserve(&seed, &only(&["10.0.1.5"]), &[]).unwrap();
        locked.mark_live(&held).unwrap();
        drop((locked, held));
        drop(other.lock(WAIT).unwrap());
        assert_eq!(store.read(&attachment).unwrap().is_some(), is_kept);
        store.lock(WAIT).unwrap().free(&attachment).unwrap();
    }
}
