//! Datagrams that are counted at both ends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;
use tweed_lab::{ClusterPod, LabError, Netns, wait_until};

use super::scene::{LIMIT, Scene};
use crate::packets::failed;

const PORT: u16 = 7010;
/// When nothing has come for so long on a busy machine, nothing is on its way any more.
const QUIET: Duration = Duration::from_millis(300);
/// Room for what arrives while a thread waits for a processor, in bytes.
const ROOM: usize = 16 << 20;

/// A datagram that has arrived: when, and its number.
pub type Arrival = (Instant, u64);

/// Numbered datagrams from one pod to another, which answers each.
pub struct Datagrams {
    /// Nothing is sent any more.
    stop: Arc<AtomicBool>,
    /// Nor waited for, when nothing comes.
    done: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    /// When each was about to be sent, by its number.
    times: Arc<Mutex<Vec<Instant>>>,
    /// How many numbers the sender's own kernel did not send.
    refused: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    sender: Option<JoinHandle<()>>,
    receivers: Vec<JoinHandle<()>>,
    /// The client's own end.
    pub source: SocketAddr,
}

impl Datagrams {
    /// Sends one in each `pause` to `at`, which leads to this port of a pod.
    pub fn open(
        from: &Netns,
        at: SocketAddr,
        to: &ClusterPod,
        port: u16,
        pause: Duration,
    ) -> Result<Self, LabError> {
        let bind = || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port));
        let server = to.netns().listen(bind)?;
        Self::between(from, at, server, pause)
    }

    /// The same with a server's socket.
    pub fn between(
        from: &Netns,
        at: SocketAddr,
        server: UdpSocket,
        pause: Duration,
    ) -> Result<Self, LabError> {
        let any: IpAddr = match at {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let client = from.listen(|| {
            let socket = UdpSocket::bind((any, 0))?;
            socket.connect(at)?;
            Ok(socket)
        })?;
        let bound = client.local_addr();
        let source = bound.map_err(|source| failed("send", from, source))?;
        for socket in [&server, &client] {
            let set = socket.set_read_timeout(Some(QUIET));
            set.map_err(|source| failed("listen", from, source))?;
            setsockopt(socket, RcvBufForce, &ROOM)
                .map_err(|errno| failed("listen", from, errno.into()))?;
        }
        let cloned = client.try_clone();
        let receiver = cloned.map_err(|source| failed("listen", from, source))?;
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicU64::new(0));
        let refused = Arc::new(AtomicU64::new(0));
        let answered = Arc::new(AtomicU64::new(0));
        let times = Arc::new(Mutex::new(Vec::new()));
        let arrivals = Arc::new(Mutex::new(Vec::new()));
        let receivers = vec![
            std::thread::spawn({
                let (done, arrivals) = (Arc::clone(&done), Arc::clone(&arrivals));
                move || answer(&server, &done, &arrivals)
            }),
            std::thread::spawn({
                let (done, answered) = (Arc::clone(&done), Arc::clone(&answered));
                move || count(&receiver, &done, &answered)
            }),
        ];
        let sender = std::thread::spawn({
            let (stop, sent, refused) =
                (Arc::clone(&stop), Arc::clone(&sent), Arc::clone(&refused));
            let times = Arc::clone(&times);
            move || {
                while !stop.load(Ordering::Acquire) {
                    locked(&times).push(Instant::now());
                    let number = sent.fetch_add(1, Ordering::AcqRel);
                    // The socket tells here of an ICMP error for one before, and sends nothing.
                    if client.send(&number.to_be_bytes()).is_err() {
                        refused.fetch_add(1, Ordering::AcqRel);
                    }
                    sleep(pause);
                }
            }
        });
        Ok(Self {
            stop,
            done,
            sent,
            times,
            refused,
            answered,
            arrivals,
            sender: Some(sender),
            receivers,
            source,
        })
    }

    /// The number of the next datagram.
    pub fn next(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    /// How many answers have come.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Acquire)
    }

    /// What has arrived at the server.
    pub fn arrivals(&self) -> Vec<Arrival> {
        locked(&self.arrivals).clone()
    }

    /// When those were sent that have arrived since the last call. [`Self::end`] does not count
    /// them.
    pub fn take_times(&self) -> Vec<Instant> {
        let arrivals = std::mem::take(&mut *locked(&self.arrivals));
        let times = locked(&self.times);
        let time = |(_, number): &Arrival| times[usize::try_from(*number).unwrap()];
        arrivals.iter().map(time).collect()
    }

    /// Waits until answers come.
    pub fn wait(&self) -> Result<(), LabError> {
        let before = self.answered();
        wait_until("datagrams to be answered", LIMIT, || {
            match self.answered() {
                now if now > before + 2 => Ok(()),
                now => Err(format!("{now} of {}", self.next())),
            }
        })
    }

    /// Ends it. How many were sent, have arrived and were answered.
    pub fn end(mut self) -> [u64; 3] {
        self.stop.store(true, Ordering::Release);
        if let Some(sender) = self.sender.take() {
            sender.join().unwrap();
        }
        self.done.store(true, Ordering::Release);
        for receiver in self.receivers.drain(..) {
            receiver.join().unwrap();
        }
        let arrived = u64::try_from(self.arrivals().len()).unwrap();
        let refused = self.refused.load(Ordering::Acquire);
        [self.next() - refused, arrived, self.answered()]
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.done.store(true, Ordering::Release);
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A datagram each millisecond from a pod on node 2 to one on node 1.
pub struct Far {
    pub datagrams: Datagrams,
    pub pods: [ClusterPod; 2],
}

impl Far {
    pub fn open(scene: &mut Scene) -> Result<Self, LabError> {
        let server = scene.cluster.pod(1, "server")?;
        let far = scene.cluster.pod(2, "far")?;
        let at = SocketAddr::new(server.address(), PORT);
        let pause = Duration::from_millis(1);
        let datagrams = Datagrams::open(far.netns(), at, &server, PORT, pause)?;
        let pods = [server, far];
        Ok(Self { datagrams, pods })
    }
}

fn answer(server: &UdpSocket, done: &AtomicBool, arrivals: &Mutex<Vec<Arrival>>) {
    // Nine bytes are nobody's number.
    let mut buffer = [0; 9];
    loop {
        match server.recv_from(&mut buffer) {
            Ok((8, from)) => {
                let number = u64::from_be_bytes(*buffer.first_chunk().unwrap());
                let arrival = (Instant::now(), number);
                locked(arrivals).push(arrival);
                let _ = server.send_to(&buffer[..8], from);
            }
            Ok(_) => {}
            // Nothing is on its way any more.
            Err(_) if done.load(Ordering::Acquire) => return,
            Err(_) => {}
        }
    }
}

fn count(receiver: &UdpSocket, done: &AtomicBool, answered: &AtomicU64) {
    let mut buffer = [0; 8];
    loop {
        match receiver.recv(&mut buffer) {
            Ok(_) => {
                answered.fetch_add(1, Ordering::AcqRel);
            }
            Err(_) if done.load(Ordering::Acquire) => return,
            Err(_) => {}
        }
    }
}
