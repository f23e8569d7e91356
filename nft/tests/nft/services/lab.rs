//! The hosts of [`Wires`], servers on them, and ways to ask a Service who answers.
//!
//! A flow that nobody answers was dropped if a counter of the table says so: nothing waits
//! for a packet that does not come.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use tweed_component::drops::{DropReason, Owner};
use tweed_component::schema::Sets as _;
use tweed_core::family::Family;
use tweed_nft::{Outcome, Table as _};
use tweed_planner::overlay::desired::Ruleset;
use tweed_planner::services::desired::Desired;

use super::plan::{Plan, TCP};
use crate::lab::Host;
use crate::wires::{Wires, ruleset};

pub const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// How long a packet may take on a busy machine before the test gives up.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How long a socket waits before it is looked whether a drop was counted.
const SHORT: Duration = Duration::from_millis(50);

/// What became of a new flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// An endpoint of this name has answered, and saw this source.
    From(String, IpAddr),
    /// The client was told that nobody is there.
    Refused,
    /// A counter of the table has counted.
    Dropped,
}

/// An address of each family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    v4: &'static str,
    v6: &'static str,
}

impl Addresses {
    pub fn of(self, family: Family) -> IpAddr {
        let text = match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        };
        text.parse().unwrap()
    }

    pub fn port(self, family: Family, port: u16) -> SocketAddr {
        SocketAddr::new(self.of(family), port)
    }
}

pub const fn both(v4: &'static str, v6: &'static str) -> Addresses {
    Addresses { v4, v6 }
}

/// Pods of this node.
pub const POD: Addresses = both("10.244.1.5", "fd00:0:0:1::5");
pub const NEIGHBOUR: Addresses = both("10.244.1.6", "fd00:0:0:1::6");
/// A pod of another node, and this node's address on the overlay.
pub const REMOTE: Addresses = both("10.244.2.5", "fd00:0:0:2::5");
pub const OVERLAY: Addresses = both("10.244.1.0", "fd00:0:0:1::");
/// A host outside, and this node's address there.
pub const WORLD: Addresses = both("198.51.100.2", "2001:db8:1::2");
pub const NODE: Addresses = both("198.51.100.1", "2001:db8:1::1");
/// This node's address where the other nodes are.
pub const UNDERLAY: Addresses = both("192.0.2.1", "2001:db8::1");
/// Cluster IPs.
pub const SERVICE: Addresses = both("10.96.0.1", "fd00:96::1");
pub const OTHER_SERVICE: Addresses = both("10.96.0.2", "fd00:96::2");
/// An address of a load balancer, which leads to this node.
pub const BALANCER: Addresses = both("203.0.113.1", "2001:db8:2::1");

/// Node 1 with Services in its table.
pub struct Lab(pub Wires);

impl Lab {
    /// Everything is up, and the table has no Services.
    pub fn new() -> Self {
        let wires = Wires::new(&ruleset());
        wires.node.sh("ip route add default via 198.51.100.2
             ip -6 route add default via 2001:db8:1::2");
        Self(wires)
    }

    /// Makes the table as `plan` says.
    pub fn reconcile(&self, plan: &Plan) -> Outcome {
        self.look(plan, false)
    }

    /// The same for a plan that is not known to be the last one.
    pub fn replan(&self, plan: &Plan) -> Outcome {
        self.0.with(|table| table.services.forget());
        self.look(plan, false)
    }

    /// Makes the table as `plan` says, with a forced look if that is said.
    pub fn look(&self, plan: &Plan, force: bool) -> Outcome {
        self.make(&ruleset(), plan, force)
    }

    /// The same in a cluster with these Nodes.
    pub fn make(&self, ruleset: &Ruleset, plan: &Plan, force: bool) -> Outcome {
        let (ruleset, desired) = (ruleset.clone(), plan.0.clone());
        self.0.with(move |table| {
            let overlay = table.reconcile(&ruleset, force).unwrap();
            overlay + table.serve(&desired, force).unwrap()
        })
    }

    /// Makes the sets follow from one desired state to the next.
    pub fn follow(&self, old: &Desired, new: &Desired) -> Outcome {
        let delta = old.change_to(new);
        let followed = self
            .0
            .with(move |table| table.services.follow(&mut table.nft, &delta));
        let outcome = followed.unwrap();
        outcome.expect("the table does not know what it holds")
    }

    /// How many packets the rules of Services have dropped for a reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        let all = self.0.with(|_| tweed_nft::dropped().unwrap());
        let of_reason = all.iter().find(|one| one.reason == reason);
        of_reason.expect("the table has no Services").packets
    }

    /// The same of all for which nobody is told.
    pub fn refused(&self) -> Vec<u64> {
        let silent = DropReason::of(Owner::Services).filter(|one| *one != DropReason::NoEndpoint);
        silent.map(|reason| self.dropped(reason)).collect()
    }

    /// Asks a frontend from a host.
    pub fn ask(&self, from: &Host, protocol: u8, to: SocketAddr) -> Answer {
        let before = self.refused();
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let answer = from.run(move || match protocol {
                TCP => ask_tcp(to),
                _ => ask_udp(to),
            });
            match answer {
                Some(answer) => return answer,
                None if self.refused() != before => return Answer::Dropped,
                None => {}
            }
        }
        panic!("nobody answers at {to}, and nothing was dropped");
    }

    /// Who answers.
    pub fn name(&self, from: &Host, protocol: u8, to: SocketAddr) -> String {
        match self.ask(from, protocol, to) {
            Answer::From(name, _) => name,
            answer => panic!("{answer:?} from {to}"),
        }
    }
}

/// What a client hears within a short time.
pub fn ask_tcp(to: SocketAddr) -> Option<Answer> {
    let stream = match TcpStream::connect_timeout(&to, SHORT * 6) {
        Err(error) if error.kind() == ErrorKind::TimedOut => return None,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Some(Answer::Refused),
        result => result.unwrap(),
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut text = String::new();
    (&stream).read_to_string(&mut text).unwrap();
    Some(parse(&text))
}

/// A socket with a port that no client of this process had before. The kernel draws ports,
/// and a flow from a port drawn twice is the earlier flow to conntrack: its endpoint answers,
/// whatever the rules say by then.
fn client_of_udp(any: IpAddr) -> UdpSocket {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Above the ports of the tests' servers, and below those that the kernel draws.
    const PORTS: Range<u16> = 10_000..30_000;
    loop {
        let place = NEXT.fetch_add(1, Ordering::Relaxed) % (PORTS.end - PORTS.start);
        match UdpSocket::bind((any, PORTS.start + place)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            socket => return socket.unwrap(),
        }
    }
}

fn ask_udp(to: SocketAddr) -> Option<Answer> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = client_of_udp(any);
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(SHORT * 4)).unwrap();
    let answer = socket.send(b"x").and_then(|_| {
        let mut buffer = [0; 200];
        let length = socket.recv(&mut buffer)?;
        Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
    });
    match answer {
        Ok(text) => Some(parse(&text)),
        // The node's own datagram is refused before it is sent.
        Err(error)
            if [ErrorKind::ConnectionRefused, ErrorKind::PermissionDenied]
                .contains(&error.kind()) =>
        {
            Some(Answer::Refused)
        }
        Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => {
            None
        }
        Err(error) => panic!("{error} from {to}"),
    }
}

fn parse(text: &str) -> Answer {
    let (name, seen) = text.split_once(' ').unwrap();
    Answer::From(name.to_owned(), seen.parse().unwrap())
}

/// Servers of TCP and UDP on one port, which say their name and who asked.
pub struct Servers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Servers {
    pub fn new() -> Self {
        Self {
            stop: Arc::default(),
            threads: Vec::new(),
        }
    }

    /// One more on a host; its answers begin with `name`.
    pub fn add(mut self, host: &Host, name: &str, at: SocketAddr) -> Self {
        let listener = host.bind(move || TcpListener::bind(at));
        listener.set_nonblocking(true).unwrap();
        let socket = host.bind(move || UdpSocket::bind(at));
        socket.set_nonblocking(true).unwrap();
        let (stop, name) = (Arc::clone(&self.stop), name.to_owned());
        self.threads.push(spawn(move || {
            let mut buffer = [0; 200];
            while !stop.load(Ordering::Relaxed) {
                let mut idle = true;
                if let Ok((mut stream, from)) = listener.accept() {
                    // The client may be gone.
                    let _ = stream.write_all(format!("{name} {}", from.ip()).as_bytes());
                    idle = false;
                }
                if let Ok((_, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(format!("{name} {}", from.ip()).as_bytes(), from);
                    idle = false;
                }
                if idle {
                    sleep(Duration::from_millis(2));
                }
            }
        }));
        self
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}
