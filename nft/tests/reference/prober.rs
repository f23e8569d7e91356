//! Sends first packets of flows at a node, and says what became of each.
//!
//! All ends of the flows are this program. A link with the pods of all nodes and one with
//! everything else have this program as their other end ([`Tun`]); what is delivered to the
//! node itself is seen by raw sockets. Nobody answers, so no flow goes beyond its first
//! packet, and none takes longer than the kernel needs for it.
//!
//! The kernel handles a packet before the call that sends it returns, or hands it to a queue
//! of the processor, which keeps the order. So when packets that nothing can stop have
//! arrived, those before them have or never will.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, recvfrom, sendto,
    socket,
};
use nix::unistd::Pid;

use super::netns::Netns;
use super::packet::{Content, Ends, ICMP, ICMPV6, TCP, UDP, body_content, first, parse};
use super::tun::Tun;

/// How long a packet may take on a busy machine before the test gives up.
const PATIENCE: Duration = Duration::from_secs(20);
/// How many packets are sent before those that have come are taken out of their queues.
const BURST: usize = 64;
/// Source ports are taken in turn from here on, until conntrack is emptied. They are those of
/// clients: a lower one may also be a node port.
const FIRST_PORT: u16 = 32_768;
const PORTS: usize = 28_000;

/// Who sends a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sender {
    /// A pod of this node.
    Pod,
    /// A host outside of the cluster, or another node.
    World,
    /// The node.
    Node,
}

/// Where a packet came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exit {
    /// To a pod.
    Pods,
    /// By the default route.
    World,
    /// It was delivered to the node.
    Node,
}

/// A first packet of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    pub sender: Sender,
    pub source: IpAddr,
    pub protocol: u8,
    pub destination: SocketAddr,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// It came out.
    Out {
        exit: Exit,
        /// At the node, an IPv6 packet does not tell its destination: this is unspecified.
        destination: SocketAddr,
        source: IpAddr,
        /// Whether its source address or port is another one.
        masqueraded: bool,
    },
    /// The sender was told that nobody is there.
    Rejected,
    /// Neither.
    Dropped,
}

pub const PODS_LINK: &str = "pods";
pub const WORLD_LINK: &str = "world";

/// The other end of everything that a node is connected to.
pub struct Prober {
    netns: Netns,
    pods: Tun,
    world: Tun,
    own: [OwnedFd; 2],
    delivered: [Delivered; 6],
    next: usize,
    number: u32,
}

impl Prober {
    /// In a new namespace, which forwards packets, with both links and no addresses.
    fn new() -> Self {
        let netns = Netns::new();
        netns.sh("ip link set lo up");
        let raw = |family, protocol| {
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            socket(family, SockType::Raw, flags, protocol).unwrap()
        };
        let (v4, v6) = (AddressFamily::Inet, AddressFamily::Inet6);
        let (pods, world) = netns.enter(|| (Tun::new(PODS_LINK), Tun::new(WORLD_LINK)));
        // With this protocol a raw socket takes whole packets.
        let own = netns.enter(|| [v4, v6].map(|family| raw(family, SockProtocol::Raw)));
        let delivered = [
            (v4, SockProtocol::Tcp, TCP),
            (v4, SockProtocol::Udp, UDP),
            (v4, SockProtocol::Icmp, ICMP),
            (v6, SockProtocol::Tcp, TCP),
            (v6, SockProtocol::Udp, UDP),
            (v6, SockProtocol::IcmpV6, ICMPV6),
        ]
        .map(|(family, protocol, number)| Delivered {
            socket: netns.enter(|| raw(family, protocol)),
            protocol: number,
            has_header: family == v4,
        });
        // Every refusal is to be seen, not so many in a second.
        netns.sh("
            echo 1 > /proc/sys/net/ipv4/ip_forward
            echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
            echo 0 > /proc/sys/net/ipv4/icmp_ratemask
            echo 1000000 > /proc/sys/net/ipv4/icmp_msgs_per_sec
            echo 1000000 > /proc/sys/net/ipv4/icmp_msgs_burst
            echo 0 > /proc/sys/net/ipv6/icmp/ratelimit
            echo 127 > /proc/sys/net/ipv6/icmp/ratemask
            for link in all default pods world; do
                echo 0 > /proc/sys/net/ipv4/conf/$link/rp_filter
            done
            ip link set pods txqueuelen 5000 up
            ip link set world txqueuelen 5000 up
            ip route add default dev world
            ip -6 route add default dev world");
        Self {
            netns,
            pods,
            world,
            own,
            delivered,
            next: 0,
            number: 0,
        }
    }

    /// The same as a node with these addresses. It has another one towards the pods, so that
    /// it shows which of its own packets are masqueraded.
    pub fn of_node(node_ips: &[IpAddr]) -> Self {
        let prober = Self::new();
        prober.netns.sh("
            ip addr add 10.255.0.1/32 dev pods
            ip addr add fd00:10:255::1/128 dev pods nodad
            ip route add 10.0.0.0/8 dev pods
            ip -6 route add fd00:10::/32 dev pods");
        for ip in node_ips {
            prober.add_address(*ip);
        }
        prober
    }

    /// The node gets one more address.
    pub fn add_address(&self, ip: IpAddr) {
        self.netns.sh(&match ip {
            IpAddr::V4(ip) => format!("ip addr add {ip}/32 dev world"),
            IpAddr::V6(ip) => format!("ip addr add {ip}/128 dev world nodad"),
        });
    }

    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// What becomes of each of these packets.
    pub fn send(&mut self, probes: &[Probe]) -> Vec<ProbeOutcome> {
        probes
            .chunks(PORTS / 2)
            .flat_map(|some| self.send_some(some))
            .collect()
    }

    fn send_some(&mut self, probes: &[Probe]) -> Vec<ProbeOutcome> {
        if self.next + probes.len() > PORTS {
            self.netns.sh("conntrack -F 2>/dev/null");
            self.next = 0;
        }
        let _one = OneProcessor::new();
        let base = self.number;
        let mut watched: Vec<Watched> = Vec::with_capacity(probes.len());
        for probe in probes {
            let port = FIRST_PORT + self.next as u16;
            self.next += 1;
            watched.push(Watched::new(SocketAddr::new(probe.source, port)));
            self.put(probe, port);
            if watched.len().is_multiple_of(BURST) {
                self.drain(base, &mut watched);
            }
        }
        self.settle(base, &mut watched);
        watched.truncate(probes.len());
        watched.iter().map(Watched::outcome).collect()
    }

    fn put(&mut self, probe: &Probe, port: u16) {
        let ends = Ends {
            protocol: probe.protocol,
            source: SocketAddr::new(probe.source, port),
            destination: probe.destination,
        };
        let packet = first(&ends, self.number);
        self.number += 1;
        match probe.sender {
            Sender::Pod => self.pods.send(&packet),
            Sender::World => self.world.send(&packet),
            Sender::Node => {
                let [v4, v6] = &self.own;
                let socket = if probe.source.is_ipv4() { v4 } else { v6 };
                let to: SockaddrStorage = SocketAddr::new(probe.destination.ip(), 0).into();
                match sendto(socket.as_raw_fd(), &packet, &to, MsgFlags::empty()) {
                    // What is dropped on its way out is refused to its sender.
                    Ok(_) | Err(Errno::EPERM) => {}
                    Err(error) => panic!("{error} for {probe:?}"),
                }
            }
        }
    }

    /// Waits until everything that was sent has come out, or never will.
    fn settle(&mut self, base: u32, watched: &mut Vec<Watched>) {
        let from = watched.len();
        for sender in [Sender::Pod, Sender::World, Sender::Node] {
            for [pod, node] in [["10.254.0.1", "127.0.0.1"], ["fd00:10:254::1", "::1"]] {
                let [pod, node]: [IpAddr; 2] = [pod, node].map(|ip| ip.parse().unwrap());
                // What a host sends to a loopback address is not taken.
                let to = [Some(pod), (sender == Sender::Node).then_some(node)];
                for destination in to.into_iter().flatten() {
                    let source = if destination == pod { world(pod) } else { node };
                    watched.push(Watched::new(SocketAddr::new(source, 9)));
                    let probe = Probe {
                        sender,
                        source,
                        protocol: UDP,
                        destination: SocketAddr::new(destination, 9),
                    };
                    self.put(&probe, 9);
                }
            }
        }
        let start = Instant::now();
        while !watched[from..].iter().all(|one| one.out.is_some()) {
            self.drain(base, watched);
            assert!(
                start.elapsed() < PATIENCE,
                "a packet does not come: {:?}",
                &watched[from..]
            );
        }
        self.drain(base, watched);
    }

    fn drain(&self, base: u32, watched: &mut [Watched]) {
        let mut buffer = [0; 2048];
        let mut note = |says, exit| {
            let number = match says {
                Some(Content::First(number, _) | Content::Refused(number)) => number,
                None => return,
            };
            let Some(one) = watched.get_mut(number.wrapping_sub(base) as usize) else {
                return;
            };
            match says {
                Some(Content::First(_, ends)) => one.out = Some((exit, ends)),
                _ => one.refused = true,
            }
        };
        for (tun, exit) in [(&self.pods, Exit::Pods), (&self.world, Exit::World)] {
            while let Some(packet) = tun.receive(&mut buffer) {
                note(parse(packet), exit);
            }
        }
        for Delivered {
            socket,
            protocol,
            has_header,
        } in &self.delivered
        {
            loop {
                let received = recvfrom::<SockaddrStorage>(socket.as_raw_fd(), &mut buffer);
                let (length, from) = match received {
                    Ok(received) => received,
                    Err(Errno::EAGAIN) => break,
                    Err(error) => panic!("{error}"),
                };
                let packet = &buffer[..length];
                let says = if *has_header {
                    parse(packet)
                } else {
                    let sender = from.and_then(|from| from.as_sockaddr_in6().map(|six| six.ip()));
                    let unknown = IpAddr::from([0; 16]);
                    body_content(*protocol, sender.unwrap().into(), unknown, packet)
                };
                note(says, Exit::Node);
            }
        }
    }
}

/// A raw socket, which gets what is delivered to the node.
struct Delivered {
    socket: OwnedFd,
    protocol: u8,
    /// Whether packets have their IP header: those of IPv4 have.
    has_header: bool,
}

/// Keeps the thread on the processor where it is, so that all packets are in one queue.
struct OneProcessor(CpuSet);

impl OneProcessor {
    fn new() -> Self {
        let this = Pid::from_raw(0);
        let before = sched_getaffinity(this).unwrap();
        let mut one = CpuSet::new();
        one.set(sched_getcpu().unwrap()).unwrap();
        sched_setaffinity(this, &one).unwrap();
        Self(before)
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        sched_setaffinity(Pid::from_raw(0), &self.0).unwrap();
    }
}

/// A source outside of the cluster.
fn world(family: IpAddr) -> IpAddr {
    match family {
        IpAddr::V4(_) => [198, 18, 0, 1].into(),
        IpAddr::V6(_) => [0x2001, 2, 0, 0, 0, 0, 0, 1].into(),
    }
}

/// A packet that is on its way.
#[derive(Debug, Clone, Copy)]
struct Watched {
    source: SocketAddr,
    out: Option<(Exit, Ends)>,
    refused: bool,
}

impl Watched {
    fn new(source: SocketAddr) -> Self {
        Self {
            source,
            out: None,
            refused: false,
        }
    }

    /// The kernel refuses by itself what was delivered to a port without a socket.
    fn outcome(&self) -> ProbeOutcome {
        match self.out {
            Some((exit, ends)) => ProbeOutcome::Out {
                exit,
                destination: ends.destination,
                source: ends.source.ip(),
                masqueraded: ends.source != self.source,
            },
            None if self.refused => ProbeOutcome::Rejected,
            None => ProbeOutcome::Dropped,
        }
    }
}
