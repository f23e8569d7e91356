//! All ways that flows take: to pods and Services, of both families, by VXLAN and by plain
//! routes. What arrives is what was sent.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use tweed_lab::{Cluster, ClusterPod, LabError, Netns, wait_until};

use super::datagrams::Datagrams;
use super::scene::{LIMIT, Pods, Scene, address, connect, service, wait_for_service};

const PORT: u16 = 7010;
/// Bytes that go each way.
const LENGTH: u32 = 20_000_000;
/// How many pieces that is.
const PIECES: usize = 250;
const PIECE: usize = 80_000;

/// Numbers that look random, the same for each seed.
struct Stream(u64);

impl Stream {
    fn fill(&mut self, buffer: &mut [u8]) {
        for eight in buffer.chunks_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            eight.copy_from_slice(&self.0.to_be_bytes()[..eight.len()]);
        }
    }
}

/// Sends and receives at once, and compares each byte.
fn exchange(socket: &TcpStream, sends: u64, receives: u64) -> io::Result<()> {
    let (mut writer, mut reader) = (socket.try_clone()?, socket.try_clone()?);
    reader.set_read_timeout(Some(Duration::from_secs(20)))?;
    writer.set_write_timeout(Some(Duration::from_secs(20)))?;
    let sender = thread::spawn(move || {
        let mut stream = Stream(sends);
        let mut buffer = vec![0; PIECE];
        for _ in 0..PIECES {
            stream.fill(&mut buffer);
            writer.write_all(&buffer)?;
        }
        io::Result::Ok(())
    });
    let mut stream = Stream(receives);
    let (mut got, mut expected) = (vec![0; PIECE], vec![0; PIECE]);
    for _ in 0..PIECES {
        reader.read_exact(&mut got)?;
        stream.fill(&mut expected);
        if got != expected {
            return Err(io::Error::other("other bytes than were sent"));
        }
    }
    sender.join().unwrap()
}

/// The same at both ends of a connection.
fn exchange_both(one: &TcpStream, two: &TcpStream, between: &str) {
    let results = thread::scope(|scope| {
        let other = scope.spawn(|| exchange(two, 7, 11));
        [exchange(one, 11, 7), other.join().unwrap()]
    });
    assert!(results.iter().all(Result::is_ok), "{between}: {results:?}");
}

/// Exchanges over each connection until packets of it took the way beside it on that node: the
/// agents attach programs to the links of new pods in their own time.
fn exchange_until_taken(
    scene: &Scene,
    connections: &[(TcpStream, TcpStream)],
    ways: &[(u8, &str)],
) -> Result<(), LabError> {
    wait_until("connections to take the fast path", LIMIT, || {
        for (one, two) in connections {
            exchange_both(one, two, "on the fast path");
        }
        for (node, way) in ways {
            let packets = scene.packets(*node, way).map_err(|error| error.chain())?;
            if packets < 100.0 {
                return Err(format!("{packets} packets went {way} on node {node}"));
            }
        }
        Ok(())
    })
}

/// What 20 MB each way arrive by, and datagrams. `ways` are of the server's node 1, and the
/// client's.
fn check(
    scene: &Scene,
    client: (u8, &ClusterPod),
    at: SocketAddr,
    server: &ClusterPod,
    ways: &[(u8, &str)],
) -> Result<(), LabError> {
    let (node, client) = client;
    // The agents attach programs to the links of new pods in their own time.
    let pause = Duration::from_millis(1);
    let datagrams = Datagrams::open(client.netns(), at, server, PORT, pause)?;
    for (index, way) in ways {
        scene.wait_for(*index, way)?;
    }
    let [sent, arrived, answered] = datagrams.end();
    assert_eq!((sent, sent), (arrived, answered), "to {at}");
    let bytes = |scene: &Scene| -> Result<Vec<f64>, LabError> {
        let of = |(index, way): &(u8, &str)| {
            scene.sum(
                *index,
                &format!("tweed_fast_path_bytes_total{{way=\"{way}\"}}"),
            )
        };
        ways.iter().map(of).collect()
    };
    let before = bytes(scene)?;
    let (one, two) = connect(client.netns(), at, server, PORT)?;
    exchange_both(&one, &two, &format!("node {node} and {at}"));
    let after = bytes(scene)?;
    for (way, (before, after)) in ways.iter().zip(before.iter().zip(&after)) {
        let carried = after - before;
        // Nearly all of it, where both directions are counted together; the first packets of
        // a slow start, and those of each life's end, are the kernel's.
        assert!(
            carried > 0.5 * f64::from(LENGTH),
            "{way:?} to {at}: {carried} bytes\n{}",
            scene.all(way.0)
        );
    }
    Ok(())
}

/// Switches segmentation offload of a link.
fn offload(netns: &Netns, link: &str, to: &str) -> Result<(), LabError> {
    let line = format!("ethtool -K {link} tso {to} gso {to} tx-udp_tnl-segmentation {to}");
    netns.sh(&line).map(drop)
}

/// The ways of a cluster: on one node and between two, with segmentation offload and
/// without.
fn check_all(
    scene: &mut Scene,
    families: &[bool],
    out: &str,
    inward: &str,
) -> Result<(), LabError> {
    let server = scene.cluster.pod(1, "server")?;
    let near = scene.cluster.pod(1, "near")?;
    let far = scene.cluster.pod(2, "far")?;
    let between = [(1, out), (1, inward), (2, out), (2, inward)];
    for to in ["on", "off"] {
        if to == "off" {
            for pod in [&server, &near, &far] {
                offload(pod.netns(), "eth0", to)?;
            }
            for index in [1, 2] {
                offload(scene.node(index), "eth0", to)?;
            }
        }
        for is_ipv4 in families {
            let at = SocketAddr::new(address(&server, *is_ipv4), PORT);
            check(scene, (1, &near), at, &server, &[(1, "local")])?;
            check(scene, (2, &far), at, &server, &between)?;
        }
    }
    Ok(())
}

#[test]
fn pods_of_both_families_behind_vxlan() -> Result<(), LabError> {
    let mut scene = Scene::new(&[], Pods::Both)?;
    check_all(&mut scene, &[true, false], "vxlan-out", "vxlan-in")
}

#[test]
fn pods_of_ipv6_alone_behind_vxlan() -> Result<(), LabError> {
    let mut scene = Scene::new(&[], Pods::Ipv6)?;
    check_all(&mut scene, &[false], "vxlan-out", "vxlan-in")
}

#[test]
fn pods_behind_plain_routes() -> Result<(), LabError> {
    for backend in ["direct", "cross-subnet"] {
        let mut scene = Scene::new(&["--backend", backend], Pods::Ipv4)?;
        scene.carry_pods()?;
        check_all(&mut scene, &[true], "direct-out", "direct-in")?;
    }
    Ok(())
}

const SERVICE: [&str; 2] = ["10.96.0.10", "fd00:96::10"];

/// A Service of both families, of TCP and UDP, with an endpoint.
fn objects(scene: &mut Scene, endpoint: &ClusterPod) -> Result<(), LabError> {
    let objects = scene.cluster.objects();
    for (key, manifest) in service(SERVICE, &[endpoint], PORT) {
        objects.set(&key, manifest);
    }
    scene.cluster.publish()
}

/// What is redirected into a pod may go on from there, in other pieces: a router, or a machine
/// in the pod.
#[test]
fn a_pod_has_a_router_inside() -> Result<(), LabError> {
    let mut scene = Scene::new(&[], Pods::Ipv4)?;
    let router = scene.cluster.pod(1, "gateway")?;
    let clients = [scene.cluster.pod(1, "near")?, scene.cluster.pod(2, "far")?];
    let inside = scene.cluster.lab().netns("inside")?;
    let pod = router.netns();
    pod.ip([
        format!(
            "link add in0 type veth peer name eth0 netns {}",
            inside.name()
        )
        .as_str(),
        "addr add 192.168.9.1/24 dev in0",
        "link set in0 up",
    ])?;
    inside.ip([
        "addr add 192.168.9.2/24 dev eth0",
        "link set eth0 up",
        "route add default via 192.168.9.1",
    ])?;
    pod.set_sysctl("ipv4/ip_forward", "1")?;
    pod.nft(&format!(
        "table ip router {{ chain prerouting {{ type nat hook prerouting priority -100; \
         tcp dport {PORT} dnat to 192.168.9.2; }}; }}"
    ))?;
    // What is one packet until there becomes many.
    pod.sh("ethtool -K in0 tso off gso off tx-udp_tnl-segmentation off")?;
    let at = SocketAddr::new(router.address(), PORT);
    let listener = inside.listen(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)))?;
    let mut connections = Vec::new();
    for client in &clients {
        let connected = client.netns().enter(|| TcpStream::connect(at))?;
        let (server, _) = listener.accept().unwrap();
        connections.push((connected.unwrap(), server));
    }
    exchange_until_taken(&scene, &connections, &[(1, "local"), (1, "vxlan-in")])
}

/// Conntrack has not seen most packets of such a connection, and must not judge the next.
#[test]
fn a_connection_goes_on_when_it_is_switched_off_for_good() -> Result<(), LabError> {
    let mut scene = Scene::new(&["--services", "on"], Pods::Ipv4)?;
    let server = scene.cluster.pod(1, "server")?;
    let clients = [scene.cluster.pod(1, "near")?, scene.cluster.pod(2, "far")?];
    objects(&mut scene, &server)?;
    let at = SocketAddr::new(SERVICE[0].parse().unwrap(), 80);
    let mut connections = Vec::new();
    for client in &clients {
        wait_for_service(client.netns(), at, &server, PORT)?;
        connections.push(connect(client.netns(), at, &server, PORT)?);
    }
    exchange_until_taken(&scene, &connections, &[(1, "local"), (2, "vxlan-out")])?;
    scene.start("off")?;
    for (one, two) in &connections {
        exchange_both(one, two, "after");
    }
    Ok(())
}

#[test]
fn a_service_of_both_families() -> Result<(), LabError> {
    let mut scene = Scene::new(&["--services", "on"], Pods::Both)?;
    let server = scene.cluster.pod(1, "server")?;
    let near = scene.cluster.pod(1, "near")?;
    let far = scene.cluster.pod(2, "far")?;
    objects(&mut scene, &server)?;
    for ip in SERVICE {
        let at = SocketAddr::new(ip.parse().unwrap(), 80);
        wait_for_service(near.netns(), at, &server, PORT)?;
        wait_for_service(far.netns(), at, &server, PORT)?;
    }
    let between = ["vxlan-out", "vxlan-in"]
        .map(|way| [(1, way), (2, way)])
        .concat();
    for to in ["on", "off"] {
        if to == "off" {
            for pod in [&server, &near, &far] {
                offload(pod.netns(), "eth0", to)?;
            }
        }
        for ip in SERVICE {
            let at = SocketAddr::new(ip.parse().unwrap(), 80);
            check(&scene, (1, &near), at, &server, &[(1, "local")])?;
            check(&scene, (2, &far), at, &server, &between)?;
        }
    }
    Ok(())
}

/// Gives nodes an address of IPv6 too, which the switch lets pass.
pub fn with_ipv6(cluster: &mut Cluster) -> Result<(), LabError> {
    cluster
        .underlay()
        .switch()
        .nft("flush chain bridge lab ingress")?;
    for index in [1, 2] {
        let address = format!("2001:db8::1{index}");
        let node = cluster[index].node.netns();
        node.ip([format!("addr add {address}/64 dev eth0 nodad")])?;
        let addresses = &mut cluster.entry(index)?.manifest.addresses;
        addresses.push(("InternalIP".to_owned(), address));
    }
    Ok(())
}

/// The outer header over IPv6 needs a checksum over all of the packet.
#[test]
fn vxlan_over_ipv6_stays_on_the_kernels_path() -> Result<(), LabError> {
    let args = ["--underlay-family", "ipv6"];
    let mut scene = Scene::prepared("on", &args, Pods::Both, with_ipv6)?;
    let server = scene.cluster.pod(1, "server")?;
    let near = scene.cluster.pod(1, "near")?;
    let far = scene.cluster.pod(2, "far")?;
    for is_ipv4 in [true, false] {
        let at = SocketAddr::new(address(&server, is_ipv4), PORT);
        Cluster::wait_for_path(far.netns(), at.ip())?;
        check(&scene, (1, &near), at, &server, &[(1, "local")])?;
        check(&scene, (2, &far), at, &server, &[])?;
    }
    for index in [1, 2] {
        for way in ["vxlan-out", "vxlan-in", "direct-out", "direct-in"] {
            assert!(scene.packets(index, way)? < 1.0, "{}", scene.all(index));
        }
        let state = scene.cluster[index].node.run_dir().join("agent.json");
        let state = std::fs::read_to_string(state).unwrap();
        assert!(state.contains("VXLAN over IPv6"), "{state}");
    }
    Ok(())
}

#[test]
fn pods_of_both_families_behind_plain_routes() -> Result<(), LabError> {
    let args = ["--backend", "direct"];
    let mut scene = Scene::prepared("on", &args, Pods::Both, with_ipv6)?;
    check_all(&mut scene, &[true, false], "direct-out", "direct-in")
}
