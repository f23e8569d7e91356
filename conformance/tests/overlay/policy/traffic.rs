//! Datagrams and connections, and whether they arrive.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tweed_lab::{Cluster, ClusterPod, LabError, Netns, receive, wait_until};

use crate::packets::failed;

/// How long a change of the file may take until it is seen in packets: the agent reads
/// the file half a second to a second after a change.
pub const IN_FORCE_LIMIT: Duration = Duration::from_secs(30);

/// The most datagrams that are read at once.
const MANY: usize = 1_000;

/// How long a datagram that is on its way may take after the control packet arrived.
const LATE: Duration = Duration::from_millis(50);

/// A pod that listens on a UDP port. Its own node, which always reaches it, sends
/// control packets: what was sent before one and has not arrived with it was dropped.
pub struct Listener {
    socket: UdpSocket,
    at: SocketAddr,
    node: Netns,
}

impl Listener {
    /// Listens in a pod of node `index`.
    pub fn open(
        cluster: &Cluster,
        index: u8,
        pod: &ClusterPod,
        port: u16,
    ) -> Result<Self, LabError> {
        let at = SocketAddr::new(pod.address(), port);
        Self::open_in(pod.netns(), cluster, index, at)
    }

    /// Listens on node `index` itself, whose control packets take its loopback.
    pub fn on_node(cluster: &Cluster, index: u8, port: u16) -> Result<Self, LabError> {
        let node = &cluster[index].node;
        let at = SocketAddr::new(node.address().into(), port);
        Self::open_in(node.netns(), cluster, index, at)
    }

    fn open_in(
        netns: &Netns,
        cluster: &Cluster,
        index: u8,
        at: SocketAddr,
    ) -> Result<Self, LabError> {
        let socket = netns.listen(|| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, at.port())))?;
        let node = Netns::existing(cluster.lab(), cluster[index].node.name());
        Ok(Self { socket, at, node })
    }

    /// Its address and port.
    pub fn at(&self) -> SocketAddr {
        self.at
    }

    /// The same with another address of the pod.
    pub fn by(mut self, address: IpAddr) -> Self {
        self.at.set_ip(address);
        self
    }

    /// Whether a datagram from this namespace arrives, as a new flow.
    pub fn hears(&self, from: &Netns) -> Result<bool, LabError> {
        self.hears_through(from, self.at)
    }

    /// The same for a datagram to a Service that leads here.
    pub fn hears_through(&self, from: &Netns, to: SocketAddr) -> Result<bool, LabError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let (probe, control) = (format!("probe {number}"), format!("control {number}"));
        send(from, to, &probe)?;
        send(&self.node, self.at, &control)?;
        let (mut heard, mut is_over) = (false, false);
        let mut buffer = [0; 64];
        while !heard {
            let limit = if is_over {
                LATE
            } else {
                Duration::from_secs(10)
            };
            let set = self.socket.set_read_timeout(Some(limit));
            set.map_err(|source| failed("listen", &self.node, source))?;
            match receive(&self.socket, &mut buffer) {
                Ok(length) if buffer[..length] == *probe.as_bytes() => heard = true,
                Ok(length) if buffer[..length] == *control.as_bytes() => is_over = true,
                Ok(_) => {}
                Err(_) if is_over => break,
                Err(error) => panic!("{} does not reach its pod: {error}", self.node.name()),
            }
        }
        Ok(heard)
    }

    /// Waits until datagrams from this namespace arrive, or until they do not.
    pub fn wait(&self, from: &Netns, arrives: bool) -> Result<(), LabError> {
        let what = format!("{} to hear {}: {arrives}", self.at, from.name());
        wait_until(&what, IN_FORCE_LIMIT, || match self.hears(from) {
            Ok(heard) if heard == arrives => Ok(()),
            Ok(heard) => Err(heard.to_string()),
            Err(error) => Err(error.chain()),
        })
    }

    /// What has arrived and was not read yet, at most [`MANY`]: a sender that does not
    /// pause could go on for ever.
    pub fn drain(&self) -> Result<Vec<String>, LabError> {
        let set = self.socket.set_read_timeout(Some(LATE));
        set.map_err(|source| failed("listen", &self.node, source))?;
        let mut all = Vec::new();
        let mut buffer = [0; 64];
        while all.len() < MANY
            && let Ok(length) = receive(&self.socket, &mut buffer)
        {
            all.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        Ok(all)
    }
}

/// Sends one datagram from a new socket in a namespace.
pub fn send(from: &Netns, to: SocketAddr, text: &str) -> Result<(), LabError> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => IpAddr::from([0, 0, 0, 0]),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    from.enter(|| UdpSocket::bind((any, 0))?.send_to(text.as_bytes(), to))?
        .map_err(|source| failed("send", from, source))?;
    Ok(())
}

/// A TCP connection over which a byte goes back and forth all the time, each way its
/// own packet.
pub struct Flow {
    stop: Arc<AtomicBool>,
    exchanges: Arc<AtomicU64>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Flow {
    /// Connects from one namespace to a pod.
    pub fn open(from: &Netns, to: &ClusterPod, port: u16) -> Result<Self, LabError> {
        let server = to.netns();
        let listener = server.listen(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)))?;
        let at = SocketAddr::new(to.address(), port);
        let client = from
            .enter(|| TcpStream::connect_timeout(&at, Duration::from_secs(10)))?
            .map_err(|source| failed("connect", from, source))?;
        let (peer, _) = listener
            .accept()
            .map_err(|source| failed("accept", server, source))?;
        let stop = Arc::new(AtomicBool::new(false));
        let exchanges = Arc::new(AtomicU64::new(0));
        let threads = vec![
            std::thread::spawn(move || answer(peer)),
            std::thread::spawn({
                let (stop, exchanges) = (Arc::clone(&stop), Arc::clone(&exchanges));
                move || ask(client, &stop, &exchanges)
            }),
        ];
        Ok(Self {
            stop,
            exchanges,
            threads,
        })
    }

    /// Waits until one more byte has come back, or fails.
    pub fn moves(&self, limit: Duration) -> bool {
        let before = self.exchanges.load(Ordering::Acquire);
        let start = Instant::now();
        // The exchange that is under way may have begun before the call.
        while self.exchanges.load(Ordering::Acquire) < before + 2 {
            if start.elapsed() >= limit {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Waits until nothing comes back for two seconds, which is longer than the agent
    /// and TCP's first retransmissions take.
    pub fn wait_until_cut(&self) -> Result<(), LabError> {
        wait_until("the flow to be cut", IN_FORCE_LIMIT, || {
            if self.moves(Duration::from_secs(2)) {
                Err("it moves".to_owned())
            } else {
                Ok(())
            }
        })
    }

    /// Ends it; an error if it was reset, and the number of exchanges otherwise.
    pub fn end(mut self) -> io::Result<u64> {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a thread of the flow panicked")))?;
        }
        Ok(self.exchanges.load(Ordering::Acquire))
    }
}

fn answer(mut peer: TcpStream) -> io::Result<()> {
    peer.set_nodelay(true)?;
    let mut byte = [0];
    while peer.read(&mut byte)? == 1 {
        peer.write_all(&byte)?;
    }
    Ok(())
}

fn ask(mut client: TcpStream, stop: &AtomicBool, exchanges: &AtomicU64) -> io::Result<()> {
    client.set_nodelay(true)?;
    while !stop.load(Ordering::Acquire) {
        client.write_all(b"x")?;
        client.read_exact(&mut [0])?;
        exchanges.fetch_add(1, Ordering::Release);
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
