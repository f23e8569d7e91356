//! Local pods: what their records say is kept, what nobody owns is taken back.
//! The plugin's part is played here: a record, and a link as it makes them.

use std::path::PathBuf;
use std::time::Duration;

use ipnetwork::IpNetwork;
use tweed_core::attachment::{Attachment, ContainerId, IfName, NetworkName};
use tweed_core::mac::Mac;
use tweed_ipam::ranges::{Range, RangeSet, RangeSets};
use tweed_ipam::record::{Owner, Process, Record};
use tweed_ipam::store::{Held, Host, Seed, Store};

use crate::namespace::Namespace;
use crate::node::{Node, eventually, ip, run, succeeds};

const WAIT: Duration = Duration::from_secs(30);

struct Pod {
    attachment: Attachment,
    store: Store,
    link: String,
    address: String,
    /// Shows that its ADD is at work.
    adding: Option<Held>,
}

impl Pod {
    fn store(node: &Node) -> Store {
        let data: PathBuf = node.path("run/ipam");
        Store::open(&data, &NetworkName::new("tweed").unwrap())
    }

    /// A pod as ADD leaves it.
    fn add(node: &Node, id: &str, address: &str) -> Self {
        let mut pod = Self::begin(node, id, address);
        let held = pod.adding.take().unwrap();
        pod.store.lock(WAIT).unwrap().mark_live(&held).unwrap();
        pod
    }

    /// A pod whose ADD has got as far as the link.
    fn begin(node: &Node, id: &str, address: &str) -> Self {
        let attachment = Attachment {
            network: NetworkName::new("tweed").unwrap(),
            container_id: ContainerId::new(id).unwrap(),
            ifname: IfName::new("eth0").unwrap(),
        };
        let mut pod = Self {
            store: Self::store(node),
            link: attachment.link_name(),
            attachment: attachment.clone(),
            address: address.to_owned(),
            adding: None,
        };
        let by = Process::current().unwrap();
        let mut seed = Seed::new(attachment.clone(), Owner::Tweed, by);
        seed.link = Some(pod.link.clone());
        seed.pod_mac = Some(Mac([2, 0, 0, 0, 0, 5]));
        seed.mtu = Some(1450);
        let store = pod.store.clone();
        let mut locked = store.lock(WAIT).unwrap();
        pod.adding = Some(locked.reserve(&seed, &only(address), &[]).unwrap());
        // Held to the end: an agent would take a dead ADD away half made.
        let link = &pod.link;
        ip(&format!(
            "link add {link} mtu 1450 group 116 type veth peer name p{id}"
        ));
        ip(&format!("link set {link} alias tweed:{attachment}"));
        ip(&format!("link set p{id} up"));
        ip(&format!("link set {link} up"));
        ip(&format!(
            "neighbour add {address} lladdr 02:00:00:00:00:05 dev {link} nud permanent"
        ));
        ip(&format!(
            "route add {address}/32 dev {link} scope link src 192.0.2.1 proto 116"
        ));
        drop(locked);
        pod
    }

    fn route(&self) -> String {
        ip(&format!("route show {}", self.address))
    }

    fn record(&self) -> Option<Record> {
        self.store.read(&self.attachment).unwrap()
    }

    fn whole(&self) -> Result<(), String> {
        let state = [
            self.route(),
            ip(&format!(
                "neighbour show {} dev {}",
                self.address, self.link
            )),
            ip(&format!("link show {}", self.link)),
        ]
        .join("\n");
        let parts = [
            &format!(
                "{} dev {} proto 116 scope link src 192.0.2.1",
                self.address, self.link
            ),
            "lladdr 02:00:00:00:00:05 PERMANENT",
            "mtu 1450",
            "group 116",
            ",UP",
        ];
        match parts.iter().find(|part| !state.contains(**part)) {
            None => Ok(()),
            Some(part) => Err(format!("no `{part}` in {state}")),
        }
    }
}

/// A range that holds no other address.
fn only(address: &str) -> RangeSets {
    let ip = address.parse().unwrap();
    let subnet: IpNetwork = format!("{address}/24").parse().unwrap();
    let subnet = IpNetwork::new(subnet.network(), subnet.prefix()).unwrap();
    let range = Range::new(subnet, Some(ip), Some(ip), None).unwrap();
    RangeSets::new(vec![RangeSet::new(vec![range]).unwrap()]).unwrap()
}

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
    for damage in [
        format!("ip route delete {address}"),
        format!("ip route change {address} dev {link} proto 116"),
        format!("ip neighbour delete {address} dev {link}"),
        format!("ip neighbour replace {address} lladdr 02:00:00:00:00:99 dev {link} nud permanent"),
        format!("ip link set {link} mtu 1300"),
        format!("ip link set {link} down"),
        format!("ip link set {link} group default"),
        format!("ip link set {link} group 117"),
    ] {
        let repaired = agent.drift_repaired();
        let (program, arguments) = damage.split_once(' ').unwrap();
        run(program, arguments);
        eventually(|| match agent.drift_repaired() > repaired {
            true => pod.whole(),
            false => Err(format!("`{damage}` was not noticed")),
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

#[test]
fn a_pod_that_is_being_deleted_is_not_mended() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    let pod = Pod::add(&node, "c1", "10.0.1.5");
    agent.passes();
    let mut locked = pod.store.lock(WAIT).unwrap();
    locked.mark_deleting(&pod.attachment).unwrap();
    drop(locked);
    ip(&format!("route delete {}", pod.address));
    agent.passes();
    assert_eq!(pod.route(), "");
    let repaired = agent.metric("tweed_drift_repaired_total{kind=\"route\"}");
    assert_eq!(repaired, 0);
}

#[test]
fn a_del_that_was_cut_off_is_ended_by_the_agent() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    let pod = Pod::add(&node, "c1", "10.0.1.5");
    agent.passes();
    let mut locked = pod.store.lock(WAIT).unwrap();
    locked.mark_deleting(&pod.attachment).unwrap();
    drop(locked);
    eventually(|| match pod.record() {
        None => Ok(()),
        Some(record) => Err(format!("{:?}", record.state)),
    });
    assert!(!ip("link show").contains(&pod.link));
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
fn a_pod_whose_link_is_gone_is_swept_and_its_address_free() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    let gone = Pod::add(&node, "c1", "10.0.1.5");
    let stays = Pod::add(&node, "c2", "10.0.1.6");
    agent.passes();
    ip(&format!("link delete {}", gone.link));
    eventually(|| match gone.record() {
        None => Ok(()),
        Some(record) => Err(format!("{:?}", record.state)),
    });
    eventually(|| match agent.metric("tweed_swept_total") {
        1 => Ok(()),
        other => Err(format!("{other} addresses swept")),
    });
    assert!(stays.record().is_some());
    stays.whole().unwrap();
}

#[test]
fn what_an_add_that_died_has_left_is_taken_away() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    let mut pod = Pod::begin(&node, "c1", "10.0.1.5");
    drop(pod.adding.take());
    eventually(|| match pod.record() {
        None => Ok(()),
        Some(record) => Err(format!("{:?}", record.state)),
    });
    assert!(!succeeds("ip", &format!("link show {}", pod.link)));
    let alive = Pod::begin(&node, "c2", "10.0.1.6");
    agent.passes();
    assert!(alive.record().is_some());
}

#[test]
fn links_on_their_way_out_are_finished_and_others_in_the_group_are_not() {
    let node = Node::new();
    node.list(1..=2);
    ip("link add twx000000000000 group 117 type veth peer name end");
    ip("link set twx000000000000 alias tweed:tweed/c1/eth0");
    ip("link add foreign group 117 type veth peer name other");
    let agent = node.start(&[]);
    agent.ready();
    eventually(|| match succeeds("ip", "link show twx000000000000") {
        false => Ok(()),
        true => Err("it is still there".to_owned()),
    });
    assert!(succeeds("ip", "link show foreign"));
}

#[test]
fn links_that_a_killed_finisher_left_go_at_once() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    agent.stop();
    ip("link add foreign group 117 type veth peer name other");
    // The second was killed while it deleted: the group is 0x74123456.
    for (n, group) in [(1, "117"), (2, "1947350102"), (3, "117")] {
        let link = format!("twx00000000000{n}");
        ip(&format!(
            "link add {link} group {group} type veth peer name end{n}"
        ));
        ip(&format!("link set {link} alias tweed:tweed/c{n}/eth0"));
    }
    let agent = node.start(&[]);
    agent.ready();
    eventually(
        || match ip("link show type veth").matches(": twx").count() {
            0 => Ok(()),
            left => Err(format!("{left} are left")),
        },
    );
    agent.passes();
    assert!(succeeds("ip", "link show foreign"));
    // Each is moved, and their group is deleted; a restart alone changes nothing.
    assert_eq!(agent.metric("tweed_kernel_changes_total"), 4);
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
        let mut seed = Seed::new(
            attachment.clone(),
            Owner::Other,
            Process::current().unwrap(),
        );
        seed.netns = Some(netns);
        let mut locked = store.lock(WAIT).unwrap();
        let held = locked.reserve(&seed, &only("10.0.1.5"), &[]).unwrap();
        locked.mark_live(&held).unwrap();
        drop((locked, held));
        drop(other.lock(WAIT).unwrap());
        assert_eq!(store.read(&attachment).unwrap().is_some(), is_kept);
        store.lock(WAIT).unwrap().free(&attachment).unwrap();
    }
}
