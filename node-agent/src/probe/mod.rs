//! Asks the other nodes whether they are reached, and answers theirs. What is asked, and what
//! follows from it, [`tweed_planner::probe`] decides; here it is sent and received.
//!
//! The kernel thread enters the ways to other nodes into the shared [`State`]; the tasks here
//! send what `Prober::turn` says, enter each answer, and put what is wrong on the board.

mod sockets;

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use tokio::net::TcpSocket;
use tokio::time::{sleep, timeout};
use tweed_core::family::Family;
use tweed_core::problem::Problem;
use tweed_planner::probe::{KUBELET_PORT, Means, Message, Probe, SPACING, TIMEOUT, headers};

use crate::serve::metrics::Metrics;
use crate::serve::status::{Reporter, StatusBoard};
use crate::state::State;
use sockets::Socket;

/// Pause before a socket that cannot be opened, or fails, is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// How often it is looked at least whether there is anybody to ask, and what is wrong.
const LOOK: Duration = Duration::from_secs(1);

/// Probes the peers in `state`, for ever.
pub async fn run(state: Arc<State>, board: Arc<StatusBoard>, metrics: Metrics) {
    let random = RandomState::new();
    let link = Arc::new(Link {
        state,
        metrics,
        nonce: random.hash_one(0),
        sockets: Mutex::default(),
    });
    let serve = |family, means| link.serve(family, means);
    tokio::select! {
        () = link.ask(&board, &random) => {}
        () = serve(Family::V4, Means::Icmp) => {}
        () = serve(Family::V6, Means::Icmp) => {}
        () = serve(Family::V4, Means::Udp) => {}
        () = serve(Family::V6, Means::Udp) => {}
    }
}

/// What was last reported, and when it was looked at.
#[derive(Default)]
struct Report {
    at: Option<Instant>,
    problems: Vec<Problem>,
}

/// What probes go through.
struct Link {
    state: Arc<State>,
    metrics: Metrics,
    /// What tells answers to this agent from those to others.
    nonce: u64,
    sockets: Mutex<BTreeMap<(Family, bool), Arc<Socket>>>,
}

impl Link {
    /// Sends what is to be sent, and reports what is wrong.
    async fn ask(self: &Arc<Self>, board: &StatusBoard, random: &RandomState) {
        let mut report = Report::default();
        for turn in 0_u64.. {
            let Some((probes, idle)) = self.turn(&mut report, board) else {
                return;
            };
            let packets = u32::try_from(probes.len()).unwrap_or(u32::MAX);
            for probe in probes {
                self.send(probe);
            }
            // From a half to one and a half of the time, so that nodes do not keep step.
            let jitter = u32::try_from(random.hash_one(turn) % 1024).unwrap_or(512);
            let pause = SPACING * packets * (512 + jitter) / 1024;
            sleep(pause.max(idle.min(LOOK))).await;
        }
    }

    /// What to send now, and after which time there may be more; the board gets what is wrong.
    fn turn(&self, report: &mut Report, board: &StatusBoard) -> Option<(Vec<Probe>, Duration)> {
        let now = Instant::now();
        let mut prober = self.state.probes()?;
        let probes = prober.turn(now);
        let idle = prober.idle(now).unwrap_or(LOOK);
        if report.at.is_some_and(|at| now.duration_since(at) < LOOK) {
            return Some((probes, idle));
        }
        let changed = prober.take_changed();
        let news = changed.then(|| (prober.counts(), prober.problems()));
        drop(prober);
        if let Some((counts, problems)) = news {
            report.at = Some(now);
            let by_state = counts.into_iter();
            let by_word = by_state.map(|(state, count)| (state.word(), count));
            self.metrics.set_peers(by_word);
            if problems != report.problems {
                board.report(Reporter::Probes, problems.clone(), now);
                report.problems = problems;
            }
        }
        Some((probes, idle))
    }

    fn send(self: &Arc<Self>, probe: Probe) {
        if probe.means == Means::Tcp {
            let link = Arc::clone(self);
            tokio::spawn(async move {
                if answers_connection(probe).await {
                    link.answered(probe.id, None);
                }
            });
            return;
        }
        let message = Message {
            is_answer: false,
            nonce: self.nonce,
            id: probe.id,
            address: probe.asks_about,
            heard: None,
        };
        let size = probe.size.saturating_sub(headers(probe.to));
        let content = message.encode(usize::try_from(size).unwrap_or(0));
        let family = Family::of(probe.to);
        let socket = self.socket(family, probe.means);
        let sent = match &socket {
            Some(socket) => socket.send(probe.from, probe.to, &content),
            // It is as if the answer were filtered, unless nobody can be asked.
            None if self.socket(family, other(probe.means)).is_some() => Ok(()),
            None => Err(Errno::EADDRNOTAVAIL),
        };
        // The own address is not there yet, or is just being replaced.
        if matches!(sent, Err(Errno::EADDRNOTAVAIL | Errno::EINVAL))
            && let Some(mut prober) = self.state.probes()
        {
            prober.not_sent(probe.id);
        }
    }

    /// Receives what is sent to this node by `means`, over `family`.
    async fn serve(&self, family: Family, means: Means) {
        let mut failed = false;
        loop {
            match Socket::open(family, means) {
                Ok(socket) => {
                    failed = false;
                    let socket = Arc::new(socket);
                    let key = (family, means == Means::Udp);
                    self.sockets().insert(key, Arc::clone(&socket));
                    let error = self.receive(&socket).await;
                    tracing::debug!(%error, ?means, %family, "a socket for probes is opened again");
                    self.sockets().remove(&key);
                }
                // A machine without IPv6 has no such peers.
                Err(error) if error.raw_os_error() == Some(Errno::EAFNOSUPPORT as i32) => {
                    return std::future::pending().await;
                }
                Err(error) if !failed => {
                    failed = true;
                    tracing::warn!(%error, ?means, %family, "other nodes are not probed by this means, and it is tried again");
                }
                Err(_) => {}
            }
            sleep(RETRY).await;
        }
    }

    async fn receive(&self, socket: &Socket) -> std::io::Error {
        let mut buffer = vec![0; usize::from(u16::MAX)];
        loop {
            let received = match socket.receive(&mut buffer).await {
                Ok(received) => received,
                Err(error) => return error,
            };
            let Some(message) = Message::decode(received.content) else {
                continue;
            };
            if message.is_answer || socket.has_answers_only() {
                if message.nonce == self.nonce {
                    self.answered(message.id, message.heard);
                }
                continue;
            }
            let prober = self.state.probes();
            let answer = prober
                .and_then(|mut prober| prober.answer_to(received.from, &message, Instant::now()));
            if let Some(answer) = answer {
                // Never larger than what was asked by.
                let content = answer.encode(received.content.len());
                let _ = socket.send(received.to, received.from, &content);
            }
        }
    }

    fn answered(&self, id: u64, heard: Option<Duration>) {
        let Some(mut prober) = self.state.probes() else {
            return;
        };
        if let Some(took) = prober.answered(id, heard, Instant::now()) {
            self.metrics
                .peer_round_trip_seconds
                .observe(took.as_secs_f64());
        }
    }

    fn socket(&self, family: Family, means: Means) -> Option<Arc<Socket>> {
        self.sockets().get(&(family, means == Means::Udp)).cloned()
    }

    fn sockets(&self) -> MutexGuard<'_, BTreeMap<(Family, bool), Arc<Socket>>> {
        // Each change of the map is whole.
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn other(means: Means) -> Means {
    match means {
        Means::Udp => Means::Icmp,
        Means::Icmp | Means::Tcp => Means::Udp,
    }
}

/// Whether a machine takes or refuses a connection: both show that it is there.
async fn answers_connection(probe: Probe) -> bool {
    let connect = async {
        let socket = match probe.to {
            IpAddr::V4(_) => TcpSocket::new_v4(),
            IpAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        if let Some(from) = probe.from {
            socket.bind(SocketAddr::new(from, 0))?;
        }
        socket
            .connect(SocketAddr::new(probe.to, KUBELET_PORT))
            .await
    };
    match timeout(TIMEOUT, connect).await {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => error.kind() == ErrorKind::ConnectionRefused,
        Err(_) => false,
    }
}
