//! Two nodes on an underlay, a pod on each, and a host of the world: all by
//! hand, so that only the table under test stands between them.
//!
//! ```text
//! pod 10.244.1.5 ─┐                                      ┌─ pod 10.244.2.5
//! pod 10.244.1.6 ─ node 1 ── 192.0.2.0/24 (underlay) ── node 2
//!                    └──── 198.51.100.0/24 ──── world
//! ```

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ipnetwork::IpNetwork;
use tweed_planner::config::Masquerade;
use tweed_planner::overlay::desired::{Ruleset, VxlanMatch};

use crate::lab::Host;
use crate::tables::Tables;

pub struct Wires {
    pub node: Host,
    pub peer: Host,
    pub pod: Host,
    pub neighbour: Host,
    pub remote_pod: Host,
    pub world: Host,
    table: Arc<Mutex<Option<Tables>>>,
    pub run_dir: tempfile::TempDir,
}

/// The link of `pod` on its node: group 116 and a host route, as ADD makes it.
pub fn attach(node: &Host, pod: &Host, link: &str, v4: &str, v6: &str) {
    let netns = pod.netns();
    node.sh(format!(
        "ip link add {link} address 02:00:00:00:00:01 group 116 type veth peer name eth0 address 02:00:00:00:00:02 netns {netns}
         echo 0 > /proc/sys/net/ipv6/conf/{link}/accept_ra
         ip link set {link} up
         ip neigh add {v4} lladdr 02:00:00:00:00:02 dev {link} nud permanent
         ip neigh add {v6} lladdr 02:00:00:00:00:02 dev {link} nud permanent
         ip route add {v4} dev {link} proto 116 scope link
         ip route add {v6} dev {link} proto 116"
    ));
    pod.sh(format!(
        "ip link set eth0 up
         ip addr add {v4}/32 dev eth0
         ip addr add {v6}/128 dev eth0 nodad
         ip neigh add 169.254.1.1 lladdr 02:00:00:00:00:01 dev eth0 nud permanent
         ip neigh add fe80::1 lladdr 02:00:00:00:00:01 dev eth0 nud permanent
         ip route add default via 169.254.1.1 dev eth0 onlink
         ip -6 route add default via fe80::1 dev eth0"
    ));
}

fn overlay(node: &Host, number: u8, peer: u8) {
    let mac = |number: u8| format!("02:00:00:00:01:{number:02x}");
    node.sh(format!(
        "echo 1 > /proc/sys/net/ipv4/ip_forward
         echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
         ip link add tweed.1 address {own_mac} type vxlan id 1 dstport 8472 local 192.0.2.{number} nolearning
         ip link set tweed.1 up
         ip addr add 10.244.{number}.0/32 dev tweed.1
         ip addr add fd00:0:0:{number}::/128 dev tweed.1 nodad
         bridge fdb append {peer_mac} dev tweed.1 dst 192.0.2.{peer}
         ip neigh add 10.244.{peer}.0 lladdr {peer_mac} dev tweed.1 nud permanent
         ip neigh add fd00:0:0:{peer}:: lladdr {peer_mac} dev tweed.1 nud permanent
         ip route add 10.244.{peer}.0/24 via 10.244.{peer}.0 dev tweed.1 onlink
         ip route add fd00:0:0:{peer}::/64 via fd00:0:0:{peer}:: dev tweed.1 onlink",
        own_mac = mac(number),
        peer_mac = mac(peer),
    ));
}

/// What VXLAN packets from `outer` may have as their source inside.
pub fn sources(outer: &str, inner: &[&str]) -> BTreeSet<(IpAddr, IpNetwork)> {
    let pair = |inner: &&str| (outer.parse().unwrap(), inner.parse().unwrap());
    inner.iter().map(pair).collect()
}

/// What node 1's table is made from.
pub fn ruleset() -> Ruleset {
    let cidr = |text: &str| text.parse::<IpNetwork>().unwrap();
    Ruleset {
        masquerade: Some(Masquerade::RandomFully),
        masquerade_ipv6: true,
        masquerade_nodes: true,
        vxlan: Some(VxlanMatch {
            device: "tweed.1".to_owned(),
            vni: 1,
            port: 8472,
        }),
        local_cidrs: ["10.244.1.0/24", "fd00:0:0:1::/64"].map(cidr).into(),
        cluster_cidrs: [
            "10.244.1.0/24",
            "10.244.2.0/24",
            "fd00:0:0:1::/64",
            "fd00:0:0:2::/64",
        ]
        .map(cidr)
        .into(),
        node_addresses: ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"]
            .map(|ip| ip.parse().unwrap())
            .into(),
        underlay_addresses: Default::default(),
        vxlan_sources: sources("192.0.2.2", &["10.244.2.0/24", "fd00:0:0:2::/64"]),
        pod_links: Default::default(),
    }
}

impl Wires {
    /// Everything up, the table in place.
    pub fn new(ruleset: &Ruleset) -> Self {
        let wires = Self {
            node: Host::new(),
            peer: Host::new(),
            pod: Host::new(),
            neighbour: Host::new(),
            remote_pod: Host::new(),
            world: Host::new(),
            table: Arc::default(),
            run_dir: tempfile::tempdir().unwrap(),
        };
        let (peer, world) = (wires.peer.netns(), wires.world.netns());
        wires.node.sh(format!(
            "ip link add eth0 type veth peer name eth0 netns {peer}
             ip link add world type veth peer name eth0 netns {world}
             ip addr add 192.0.2.1/24 dev eth0
             ip addr add 2001:db8::1/64 dev eth0 nodad
             ip addr add 198.51.100.1/24 dev world
             ip addr add 2001:db8:1::1/64 dev world nodad
             ip link set eth0 up
             ip link set world up"
        ));
        wires.peer.sh("ip addr add 192.0.2.2/24 dev eth0
             ip addr add 2001:db8::2/64 dev eth0 nodad
             ip link set eth0 up");
        wires.world.sh("ip addr add 198.51.100.2/24 dev eth0
             ip addr add 2001:db8:1::2/64 dev eth0 nodad
             ip link set eth0 up
             ip route add default via 198.51.100.1
             ip -6 route add default via 2001:db8:1::1");
        overlay(&wires.node, 1, 2);
        overlay(&wires.peer, 2, 1);
        attach(
            &wires.node,
            &wires.pod,
            "twa",
            "10.244.1.5",
            "fd00:0:0:1::5",
        );
        attach(
            &wires.node,
            &wires.neighbour,
            "twb",
            "10.244.1.6",
            "fd00:0:0:1::6",
        );
        attach(
            &wires.peer,
            &wires.remote_pod,
            "twc",
            "10.244.2.5",
            "fd00:0:0:2::5",
        );
        // The way back of packets that nobody masquerades.
        wires.peer.sh("ip route add 198.51.100.0/24 via 192.0.2.1");
        wires.reconcile(ruleset);
        wires
    }

    /// Makes node 1's table as `ruleset` says.
    pub fn reconcile(&self, ruleset: &Ruleset) {
        let ruleset = ruleset.clone();
        self.with(move |table| table.reconcile(&ruleset, false).unwrap());
    }

    /// Works with node 1's tables, on the thread that they live on.
    pub fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tables) -> T + Send + 'static,
    ) -> T {
        let table = Arc::clone(&self.table);
        let run_dir = self.run_dir.path().to_owned();
        self.node.run(move || {
            let mut table = table.lock().unwrap();
            work(
                table.get_or_insert_with(|| {
                    Tables::open(&run_dir, Path::new("nft"), false).unwrap()
                }),
            )
        })
    }

    /// The agent of node 1 ends; the next call begins with another one.
    pub fn restart(&self) {
        *self.table.lock().unwrap() = None;
    }

    /// The same, with this program in place of `nft`.
    pub fn restart_with(&self, nft: &Path) {
        let (run_dir, nft) = (self.run_dir.path().to_owned(), nft.to_owned());
        let table = Arc::clone(&self.table);
        self.node.run(move || {
            *table.lock().unwrap() = Some(Tables::open(&run_dir, &nft, false).unwrap());
        });
    }

    /// How many packets were dropped on node 1 for a reason, as `nft` shows it.
    pub fn dropped(&self, reason: impl std::fmt::Display) -> u64 {
        let counter = format!("nft list counter inet tweed {reason}");
        let counter = self.node.sh(counter);
        let (_, rest) = counter.split_once("packets ").unwrap();
        rest.split_once(' ').unwrap().0.parse().unwrap()
    }
}

/// The next packet. What stops and continues this process, such as a debugger or a
/// freezer, ends a receive with a time limit (signal(7)): it is begun again.
pub fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> (usize, SocketAddr) {
    loop {
        match socket.recv_from(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result.expect("the packet does not come"),
        }
    }
}

/// A server that says who spoke to it.
pub struct Server(UdpSocket);

impl From<UdpSocket> for Server {
    fn from(socket: UdpSocket) -> Self {
        Self(socket)
    }
}

impl Server {
    /// Listens on `host`.
    pub fn new(host: &Host, address: &str) -> Self {
        let address: SocketAddr = address.parse().unwrap();
        let socket = host.bind(move || UdpSocket::bind(address));
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        Self(socket)
    }

    /// The next packet: its text and where it came from.
    pub fn next(&self) -> (String, SocketAddr) {
        let mut buffer = [0; 2048];
        let (length, from) = receive(&self.0, &mut buffer);
        (
            String::from_utf8_lossy(&buffer[..length]).into_owned(),
            from,
        )
    }

    /// Answers the sender of the last packet.
    pub fn answer(&self, text: &str, to: SocketAddr) {
        self.0.send_to(text.as_bytes(), to).unwrap();
    }
}

/// A socket on `host`, bound to `source`.
pub fn socket(host: &Host, source: &str) -> UdpSocket {
    let source: SocketAddr = source.parse().unwrap();
    let socket = host.bind(move || UdpSocket::bind(source));
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    socket
}

/// Sends `text` from `host` with `source`; whether it arrives is not known
/// here.
pub fn send(host: &Host, source: &str, to: &str, text: impl AsRef<[u8]>) {
    let socket = socket(host, source);
    socket.set_broadcast(true).unwrap();
    socket.send_to(text.as_ref(), to).unwrap();
}
