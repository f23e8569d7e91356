//! Packets with wrong sources and other attacks of pods and foreign hosts. Each test
//! also sends a control packet, which must arrive.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use tweed_lab::{Cluster, LabError, Netns, PingOptions, ping, wait_until};

use crate::packets::{
    PORT, Receiver, for_pod, for_pod_from, mac_of, send_ipv4, send_router_advertisement, send_udp,
    udp_packet, v4, vxlan_payload,
};

/// The UDP port of VXLAN.
const VXLAN: u16 = 8472;

/// How many packets an agent says that were dropped for a reason.
fn dropped(cluster: &Cluster, index: u8, reason: &str) -> Result<f64, LabError> {
    let name = format!("tweed_dropped_packets_total{{reason=\"{reason}\"}}");
    let agent = cluster[index].agent.as_ref().expect("it runs");
    Ok(agent.metric(&name)?.unwrap_or_default())
}

/// The kernel's own filter is strict, loose, or off.
#[test]
fn spoofed_sources_are_refused() -> Result<(), LabError> {
    let mut cluster = Cluster::start_with(2, |options| options.arg("--policy-log").arg("on"))?;
    let (spoofer, neighbour) = (cluster.pod(1, "spoofer")?, cluster.pod(1, "neighbour")?);
    let far = cluster.pod(2, "far")?;
    Cluster::wait_for_path(spoofer.netns(), far.address())?;
    let own = spoofer.result().host_link();
    let victims = [&far, &neighbour];
    let cases = ["1", "2", "0"].map(|rp_filter| victims.map(|victim| (rp_filter, victim)));
    for (rp_filter, victim) in cases.into_iter().flatten() {
        let links = ["all", "default", "eth0", "tweed.1"].map(|link| [(1, link), (2, link)]);
        for (index, link) in links.into_iter().flatten().chain([(1, own)]) {
            let key = format!("ipv4/conf/{link}/rp_filter");
            cluster[index].node.netns().set_sysctl(&key, rp_filter)?;
        }
        let receiver = Receiver::open(victim.netns(), PORT)?;
        let to = SocketAddrV4::new(v4(victim.address()), PORT);
        let others = [
            v4(neighbour.address()),
            v4(far.address()),
            cluster[1].node.address(),
            cluster[2].node.address(),
            Ipv4Addr::new(10, 244, 1, 0),
            Ipv4Addr::new(10, 244, 1, 250),
            Ipv4Addr::new(203, 0, 113, 5),
            Ipv4Addr::new(127, 0, 0, 1),
        ];
        for source in others {
            send_ipv4(
                spoofer.netns(),
                &udp_packet(source, to, &format!("from {source}")),
            )?;
        }
        send_ipv4(
            spoofer.netns(),
            &udp_packet(v4(spoofer.address()), to, "control"),
        )?;
        let received = receiver.received_until("control");
        assert_eq!(received, Vec::<String>::new(), "rp_filter {rp_filter}");
    }
    // The neighbour's address alone, by six attempts of which no filter drops any before.
    assert!(dropped(&cluster, 1, "spoofed-source")? >= 6.0);
    assert_eq!(dropped(&cluster, 2, "spoofed-source")?, 0.0);
    // Whatever the source says, the link is the spoofer's.
    let agent = cluster[1].agent.as_ref().unwrap();
    let link = format!("link=\"{own}\"");
    wait_until(
        "the drop log names the spoofer's link",
        Duration::from_secs(60),
        || {
            let log = agent.log();
            let mut lines = log.lines().filter(|line| line.contains("packet dropped"));
            let spoofed = "reason=\"spoofed-source\"";
            let is_told = lines.any(|line| line.contains(spoofed) && line.contains(&link));
            if is_told { Ok(()) } else { Err(log.clone()) }
        },
    )
}

/// VXLAN packets of foreign hosts and pods are dropped; that of node 2 is accepted.
#[test]
fn vxlan_is_taken_from_nodes_only() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let (victim, beside) = (cluster.pod(1, "victim")?, cluster.pod(1, "beside")?);
    let far = cluster.pod(2, "far")?;
    Cluster::wait_for_path(far.netns(), victim.address())?;
    let to = SocketAddrV4::new(cluster[1].node.address(), VXLAN);
    let receiver = Receiver::open(victim.netns(), PORT)?;
    for (who, from) in [
        ("outside", cluster.underlay().outside()),
        ("router", cluster.underlay().router()),
        ("a pod of the same node", beside.netns()),
        ("a pod of another node", far.netns()),
        ("the pod itself", victim.netns()),
    ] {
        send_udp(from, to, &for_pod(&cluster, 1, &victim, who)?)?;
    }
    send_udp(
        cluster[2].node.netns(),
        to,
        &for_pod(&cluster, 1, &victim, "control")?,
    )?;
    assert_eq!(receiver.received_until("control"), Vec::<String>::new());
    assert!(dropped(&cluster, 1, "vxlan-from-stranger")? >= 2.0);
    assert!(dropped(&cluster, 1, "vxlan-from-pod")? >= 2.0);
    assert_eq!(dropped(&cluster, 1, "vxlan-inner-source")?, 0.0);
    Ok(())
}

/// Node 2 sends with the addresses of its own pods, and with no others.
#[test]
fn a_node_cannot_send_as_another_nodes_pod() -> Result<(), LabError> {
    let mut cluster = Cluster::start(3)?;
    let (victim, beside) = (cluster.pod(1, "victim")?, cluster.pod(1, "beside")?);
    let third = cluster.pod(3, "third")?;
    Cluster::wait_for_path(third.netns(), victim.address())?;
    let far = cluster.pod(2, "far")?;
    Cluster::wait_for_path(far.netns(), victim.address())?;
    let to = SocketAddrV4::new(cluster[1].node.address(), VXLAN);
    let receiver = Receiver::open(victim.netns(), PORT)?;
    let send = |source: Ipv4Addr, text: &str| {
        let packet = for_pod_from(source, &cluster, 1, &victim, text)?;
        send_udp(cluster[2].node.netns(), to, &packet)
    };
    for (who, source) in [
        ("a pod of node 3", v4(third.address())),
        ("node 3 on the overlay", Ipv4Addr::new(10, 244, 3, 0)),
        ("another pod of the receiver", v4(beside.address())),
        ("node 3", cluster[3].node.address()),
        ("the world", Ipv4Addr::new(203, 0, 113, 5)),
    ] {
        send(source, who)?;
    }
    send(v4(far.address()), "control")?;
    assert_eq!(receiver.received_until("control"), Vec::<String>::new());
    assert_eq!(dropped(&cluster, 1, "vxlan-inner-source")?, 5.0);
    Ok(())
}

/// A Service rewrites the destination after the raw hook, so a filter in the raw hook
/// alone would be bypassed.
#[test]
fn a_pod_cannot_speak_vxlan_through_a_service() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let (spoofer, near) = (cluster.pod(1, "spoofer")?, cluster.pod(1, "near")?);
    let far = cluster.pod(2, "far")?;
    Cluster::wait_for_path(spoofer.netns(), far.address())?;
    cluster[1].node.netns().nft(
        "table ip services { chain pre { type nat hook prerouting priority -100;
           ip daddr 10.96.0.1 udp dport 53 dnat to 192.0.2.11:8472
           ip daddr 10.96.0.2 udp dport 53 dnat to 192.0.2.12:8472
           ip daddr 10.96.0.3 udp dport 53 dnat to 192.0.2.12:7002
         }
         }",
    )?;
    let service = |last| SocketAddrV4::new(Ipv4Addr::new(10, 96, 0, last), 53);
    for (last, node, victim) in [(1, 1, &near), (2, 2, &far)] {
        let receiver = Receiver::open(victim.netns(), PORT)?;
        send_udp(
            spoofer.netns(),
            service(last),
            &for_pod(&cluster, node, victim, "through a Service")?,
        )?;
        let honest = cluster[3 - node].node.netns();
        let to = SocketAddrV4::new(cluster[node].node.address(), VXLAN);
        send_udp(honest, to, &for_pod(&cluster, node, victim, "control")?)?;
        assert_eq!(
            receiver.received_until("control"),
            Vec::<String>::new(),
            "Service {last}"
        );
    }
    // The control: the rewrite itself works for another port of the same node.
    let receiver = Receiver::open(cluster[2].node.netns(), 7002)?;
    send_udp(spoofer.netns(), service(3), b"control")?;
    assert_eq!(receiver.received_until("control"), Vec::<String>::new());
    Ok(())
}

/// VXLAN of another program on the same port, with another VNI, is not filtered.
#[test]
fn another_vni_on_the_same_port_is_left_alone() -> Result<(), LabError> {
    let cluster = Cluster::start(2)?;
    let node = cluster[1].node.netns();
    node.ip([
        "link add other type vxlan id 77 dstport 8472 local 192.0.2.11 nolearning",
        "addr add 203.0.113.1/24 dev other",
        "link set other up",
    ])?;
    node.set_sysctl("ipv4/conf/other/rp_filter", "0")?;
    node.set_sysctl("ipv4/conf/all/rp_filter", "0")?;
    let receiver = Receiver::open(node, PORT)?;
    let inner = udp_packet(
        Ipv4Addr::new(203, 0, 113, 2),
        SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 1), PORT),
        "control",
    );
    let payload = vxlan_payload(77, mac_of(node, "other")?, &inner);
    let to = SocketAddrV4::new(cluster[1].node.address(), VXLAN);
    send_udp(cluster.underlay().router(), to, &payload)?;
    assert_eq!(receiver.received_until("control"), Vec::<String>::new());
    Ok(())
}

/// The control is the same advertisement on an ordinary link, which adds a default route.
#[test]
fn a_pods_router_advertisement_changes_nothing_on_the_node() -> Result<(), LabError> {
    let mut cluster = Cluster::start(1)?;
    let pod = cluster.pod(1, "pod")?;
    let node = cluster[1].node.netns();
    let lab = cluster.lab();
    let (router, host) = (lab.netns("rogue")?, lab.netns("ordinary")?);
    router.ip([format!(
        "link add eth0 type veth peer name eth0 netns {}",
        host.name()
    )])?;
    host.set_sysctl("ipv6/conf/eth0/accept_ra", "1")?;
    for netns in [&router, &host] {
        netns.ip(["link set eth0 up"])?;
    }
    let index = |netns: &Netns| -> Result<u32, LabError> {
        let link = netns.json("ip -j link show eth0")?;
        Ok(u32::try_from(link[0]["ifindex"].as_u64().unwrap_or_default()).unwrap_or_default())
    };
    let before = node.sh("ip -6 route show table all")?;
    wait_until(
        "the control host to have the route",
        Duration::from_secs(30),
        || {
            send_router_advertisement(&router, index(&router).map_err(|e| e.to_string())?)
                .map_err(|e| e.to_string())?;
            let routes = host
                .sh("ip -6 route show default")
                .map_err(|e| e.to_string())?;
            if routes.contains("fe80::bad") {
                Ok(())
            } else {
                Err(routes)
            }
        },
    )?;
    pod.netns().ip(["addr add fe80::bad/64 dev eth0 nodad"])?;
    for _ in 0..5 {
        send_router_advertisement(pod.netns(), index(pod.netns())?)?;
    }
    // The kernel handles packets in order, so it has handled the advertisements by then.
    Cluster::wait_for_path(pod.netns(), cluster[1].node.address().into())?;
    assert_eq!(node.sh("ip -6 route show table all")?, before);
    let link = pod.result().host_link().to_owned();
    assert_eq!(node.sh(&format!("ip -6 addr show dev {link}"))?, "");
    Ok(())
}

/// ARP requests of a pod with many sources would fill the node's neighbour table.
#[test]
fn a_pods_arp_leaves_the_nodes_neighbour_table_alone() -> Result<(), LabError> {
    let mut cluster = Cluster::start(1)?;
    let pod = cluster.pod(1, "pod")?;
    let node = cluster[1].node.netns();
    let link = pod.result().host_link().to_owned();
    // A strict filter alone would drop them.
    for of in ["all", &link] {
        node.set_sysctl(&format!("ipv4/conf/{of}/rp_filter"), "0")?;
    }
    let entries = || -> Result<usize, LabError> {
        Ok(node
            .sh(&format!("ip neigh show dev {link}"))?
            .lines()
            .count())
    };
    let before = entries()?;
    let flood = || -> Result<(), LabError> {
        let options = PingOptions {
            count: 1,
            wait: Duration::from_millis(100),
            ..PingOptions::default()
        };
        for last in 1..20 {
            let source = IpAddr::from([10, 77, 0, last]);
            ping(
                pod.netns(),
                cluster[1].node.address(),
                &PingOptions {
                    source: Some(source),
                    ..options
                },
            )?;
        }
        Ok(())
    };
    pod.netns()
        .ip(["link set eth0 arp on", "route add 192.0.2.11/32 dev eth0"])?;
    pod.netns()
        .ip((1..20).map(|last| format!("addr add 10.77.0.{last}/32 dev eth0")))?;
    flood()?;
    assert_eq!(entries()?, before);
    // The control: a link with ARP learns them.
    node.ip([format!("link set {link} arp on")])?;
    pod.netns().ip(["neigh flush dev eth0"])?;
    flood()?;
    assert!(
        entries()? > before,
        "the control link has not learnt them either"
    );
    Ok(())
}
