//! A node with two pods and the world, and ways to ask whether packets pass.
//!
//! A packet has passed if it arrives, and was dropped if a counter of the table says so:
//! nothing waits for a packet that does not come.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tweed_core::family::Family;
use tweed_nft::{Outcome, Table as _};
use tweed_planner::overlay::desired::Ruleset;
use tweed_planner::policy::desired::Desired;

use super::delta::delta;
use crate::lab::Host;
use crate::tables::Tables;
use crate::wires::attach;

pub const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// How long a packet may take on a busy machine before the test gives up.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketOutcome {
    Passed,
    Dropped,
}

/// A host with one address of each family.
pub struct End {
    pub host: Host,
    pub v4: IpAddr,
    pub v6: IpAddr,
}

impl End {
    fn new(v4: &str, v6: &str) -> Self {
        Self {
            host: Host::new(),
            v4: v4.parse().unwrap(),
            v6: v6.parse().unwrap(),
        }
    }

    pub fn address(&self, family: Family) -> IpAddr {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }

    pub fn both(&self) -> [IpAddr; 2] {
        [self.v4, self.v6]
    }
}

/// The node's table, which lives on the node's thread.
type SharedTables = Arc<Mutex<Option<Tables>>>;

/// All hosts, with the table of the node.
pub struct Lab {
    pub node: End,
    pub a: End,
    pub b: End,
    pub world: End,
    table: SharedTables,
    run_dir: TempDir,
    log: bool,
}

pub fn ruleset() -> Ruleset {
    Ruleset {
        local_cidrs: ["10.244.1.0/24", "fd00:0:0:1::/64"]
            .map(|cidr| cidr.parse().unwrap())
            .into(),
        ..Ruleset::default()
    }
}

impl Lab {
    /// Everything is up, and no table yet.
    pub fn new() -> Self {
        let lab = Self {
            node: End::new("198.51.100.1", "2001:db8:1::1"),
            a: End::new("10.244.1.5", "fd00:0:0:1::5"),
            b: End::new("10.244.1.6", "fd00:0:0:1::6"),
            world: End::new("198.51.100.2", "2001:db8:1::2"),
            table: Arc::default(),
            run_dir: tempfile::tempdir().unwrap(),
            log: false,
        };
        let world = lab.world.host.netns();
        lab.node.host.sh(format!(
            "echo 1 > /proc/sys/net/ipv4/ip_forward
             echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
             ip link add world type veth peer name eth0 netns {world}
             ip addr add 198.51.100.1/24 dev world
             ip addr add 2001:db8:1::1/64 dev world nodad
             ip link set world up"
        ));
        lab.world.host.sh("ip addr add 198.51.100.2/24 dev eth0
             ip addr add 2001:db8:1::2/64 dev eth0 nodad
             ip link set eth0 up
             ip route add default via 198.51.100.1
             ip -6 route add default via 2001:db8:1::1");
        for (link, pod) in [("twa", &lab.a), ("twb", &lab.b)] {
            let (v4, v6) = (pod.v4.to_string(), pod.v6.to_string());
            attach(&lab.node.host, &pod.host, link, &v4, &v6);
        }
        lab.restart();
        lab
    }

    /// Another agent starts, which logs what it drops.
    pub fn log_drops(&mut self) {
        self.log = true;
        self.restart();
    }

    /// The agent dies and another one starts.
    pub fn restart(&self) {
        let (table, log) = (Arc::clone(&self.table), self.log);
        let run_dir = self.run_dir.path().to_owned();
        self.node.host.run(move || {
            let opened = Tables::open(&run_dir, Path::new("nft"), log).unwrap();
            *table.lock().unwrap() = Some(opened);
        });
    }

    pub fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tables) -> T + Send + 'static,
    ) -> T {
        let table = Arc::clone(&self.table);
        let work = move || work(table.lock().unwrap().as_mut().unwrap());
        self.node.host.run(work)
    }

    /// Makes the table as `desired` says.
    pub fn reconcile(&self, desired: &Desired) -> Outcome {
        self.look(&ruleset(), desired, false)
    }

    /// The same with other Nodes, or with a forced look.
    pub fn look(&self, ruleset: &Ruleset, desired: &Desired, force: bool) -> Outcome {
        let (desired, ruleset) = (desired.clone(), ruleset.clone());
        self.with(move |table| {
            let overlay = table.reconcile(&ruleset, force).unwrap();
            overlay + table.police(&desired, force).unwrap()
        })
    }

    /// Makes the sets follow from one desired state to the next.
    pub fn follow(&self, old: &Desired, new: &Desired, takes_away: bool) -> Outcome {
        let delta = delta(old, new, takes_away);
        let outcome = self
            .with(move |table| table.policy.follow(&mut table.nft, &delta))
            .unwrap();
        outcome.expect("the table does not know what it holds")
    }

    /// The table as `nft` shows it, without what counters have counted.
    pub fn listing(&self) -> String {
        self.node.host.sh("nft -s list table inet tweed-policy")
    }

    /// The same with the kernel's handles: differs if anything was replaced.
    pub fn handles(&self) -> String {
        self.node.host.sh("nft -s -a list table inet tweed-policy")
    }

    /// The name of the chain in force.
    pub fn generation(&self) -> String {
        let map = self
            .node
            .host
            .sh("nft list map inet tweed-policy policy_entry");
        let (_, rest) = map.split_once("goto ").expect("a generation in force");
        let end = rest.find([' ', ',']).unwrap();
        rest[..end].to_owned()
    }

    /// How many packets policy has dropped.
    pub fn drops(&self) -> u64 {
        let counters = self
            .node
            .host
            .sh("nft list counters table inet tweed-policy");
        let counts = counters.lines().filter_map(|line| {
            let (count, _) = line.trim().strip_prefix("packets ")?.split_once(' ')?;
            count.parse::<u64>().ok()
        });
        counts.sum()
    }

    /// Sends, and repeats `attempt` until it says that the packet has arrived, or a drop
    /// is counted.
    fn outcome(&self, send: impl FnOnce(), mut attempt: impl FnMut() -> bool) -> PacketOutcome {
        let before = self.drops();
        send();
        let start = Instant::now();
        let seen = std::iter::from_fn(|| {
            if attempt() {
                return Some(Some(PacketOutcome::Passed));
            }
            if self.drops() > before {
                return Some(Some(PacketOutcome::Dropped));
            }
            (start.elapsed() < PATIENCE).then_some(None)
        });
        let outcome = seen.flatten().next();
        outcome.expect("the packet neither arrives nor is it dropped by the table")
    }

    /// A datagram to a port.
    pub fn udp(&self, from: &End, to: &End, family: Family, port: u16) -> PacketOutcome {
        self.datagram(from, to, family, port, 1)
    }

    /// A datagram of so many bytes to a port.
    pub fn datagram(
        &self,
        from: &End,
        to: &End,
        family: Family,
        port: u16,
        size: usize,
    ) -> PacketOutcome {
        let (client, server) = udp_pair(from, to, family, port);
        let to = server.local_addr().unwrap();
        let send = || {
            client.send_to(&vec![0; size], to).unwrap();
        };
        self.outcome(send, || arrives(&server))
    }

    /// A datagram to a port of a Service, which leads to port `real` of `to`.
    pub fn through(
        &self,
        from: &End,
        service: &str,
        port: u16,
        to: &End,
        family: Family,
        real: u16,
    ) -> PacketOutcome {
        let (client, server) = udp_pair(from, to, family, real);
        let service = SocketAddr::new(service.parse().unwrap(), port);
        let send = || {
            client.send_to(b"x", service).unwrap();
        };
        self.outcome(send, || arrives(&server))
    }

    /// A connection to a port.
    pub fn tcp(&self, from: &End, to: &End, family: Family, port: u16) -> PacketOutcome {
        let address = SocketAddr::new(to.address(family), port);
        let _listener = to.host.bind(move || TcpListener::bind(address));
        self.outcome(|| (), || connect(from, address).is_some())
    }

    /// An echo request to an address.
    pub fn ping(&self, from: &End, to: IpAddr, size: u16) -> PacketOutcome {
        self.outcome(
            || (),
            || {
                let answer = from.host.sh(format!(
                    "ping -c 1 -W 1 -s {size} {to} >/dev/null && echo answered || true"
                ));
                answer.contains("answered")
            },
        )
    }

    /// A connection to a port that is to be held open.
    pub fn connection(&self, from: &End, to: &End, family: Family, port: u16) -> Connection {
        let address = SocketAddr::new(to.address(family), port);
        let listener = to.host.bind(move || TcpListener::bind(address));
        let client = connect(from, address).expect("the connection is allowed");
        let (server, _) = listener.accept().unwrap();
        for stream in [&client, &server] {
            stream.set_nodelay(true).unwrap();
            let short = Some(Duration::from_millis(20));
            stream.set_read_timeout(short).unwrap();
        }
        Connection { client, server }
    }

    /// What becomes of a byte from the server to the client.
    pub fn answer(&self, connection: &mut Connection) -> PacketOutcome {
        let Connection { client, server } = connection;
        let send = || server.write_all(b"x").unwrap();
        self.outcome(send, || {
            client.read(&mut [0]).is_ok_and(|length| length == 1)
        })
    }

    /// What becomes of a byte from the client to the server.
    pub fn request(&self, connection: &mut Connection) -> PacketOutcome {
        let Connection { client, server } = connection;
        let send = || client.write_all(b"x").unwrap();
        self.outcome(send, || {
            server.read(&mut [0]).is_ok_and(|length| length == 1)
        })
    }
}

/// Both ends of an open connection.
pub struct Connection {
    pub client: TcpStream,
    pub server: TcpStream,
}

/// Sockets on both ends, the second bound to `port`.
pub fn udp_pair(from: &End, to: &End, family: Family, port: u16) -> (UdpSocket, UdpSocket) {
    let bind = |end: &End, port| {
        let address = SocketAddr::new(end.address(family), port);
        let socket = end.host.bind(move || UdpSocket::bind(address));
        let short = Some(Duration::from_millis(20));
        socket.set_read_timeout(short).unwrap();
        socket
    };
    (bind(from, 0), bind(to, port))
}

/// Whether a datagram is there.
pub fn arrives(server: &UdpSocket) -> bool {
    let not_yet = [ErrorKind::WouldBlock, ErrorKind::Interrupted];
    match server.recv_from(&mut [0; 9000]) {
        Err(error) if not_yet.contains(&error.kind()) => false,
        result => result.map(|_| true).unwrap(),
    }
}

fn connect(from: &End, address: SocketAddr) -> Option<TcpStream> {
    let attempt = Duration::from_millis(200);
    from.host.run(move || {
        match TcpStream::connect_timeout(&address, attempt) {
            Err(error) if error.kind() == ErrorKind::TimedOut => None,
            // Another test's child may hold the port for a moment.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                sleep(Duration::from_millis(5));
                None
            }
            result => Some(result.unwrap()),
        }
    })
}
