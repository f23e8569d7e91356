//! Very many changes of policies under flows that are in, of UDP and TCP, on one node and by
//! VXLAN: nothing that was sent after a change arrives. The moment of a change is that at which
//! the agent writes another epoch for the programs.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use nix::libc;
use serde_json::{Value, json};
use tweed_lab::{ClusterPod, LabError};

use super::datagrams::Datagrams;
use super::live::Live;
use super::scene::{LIMIT, all, connect, many, packets, wait_for};

const PORT: u16 = 7010;
/// Some thousands of datagrams a second, of each flow.
const PAUSE: Duration = Duration::from_micros(50);
/// How many policies come and go.
const CHANGES: (&str, usize) = ("TWEED_FAST_PATH_CHANGES", 20);
/// When what was on its way at the write of the epoch should have arrived.
const LATE: Duration = Duration::from_millis(1);
/// How long a policy that denies is in force.
const DENIED: Duration = Duration::from_millis(5);
/// How many datagrams arrive before it comes: the first of them let their flows in.
const ALLOWED: usize = 20;

/// A policy for the server, with these rules.
fn policy(rules: &Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "namespace": "shop", "name": "server" },
        "spec": { "podSelector": { "matchLabels": { "app": "server" } },
                  "policyTypes": ["Ingress"], "ingress": rules },
    })
}

/// Bytes from a client to a server, as many as there is room for.
struct Stream {
    client: TcpStream,
    peer: TcpStream,
    stop: Arc<AtomicBool>,
    writer: JoinHandle<u64>,
    reader: JoinHandle<u64>,
}

impl Stream {
    fn open(from: &ClusterPod, to: &ClusterPod, port: u16) -> Result<Self, LabError> {
        // What is lost is sent again after some milliseconds.
        let netns = from.netns();
        let route = netns.sh("ip route show default")?;
        netns.ip([format!("route replace {} rto_min 5ms", route.trim())])?;
        let at = SocketAddr::new(to.address(), port);
        let (client, peer) = connect(netns, at, to, port)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (mut writing, mut reading) = (client.try_clone().unwrap(), peer.try_clone().unwrap());
        let writer = thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                let piece = vec![0; 65_536];
                let mut sent = 0;
                while !stop.load(Ordering::Acquire) {
                    writing.write_all(&piece).unwrap();
                    sent += 65_536;
                    sleep(PAUSE);
                }
                writing.shutdown(Shutdown::Write).unwrap();
                sent
            }
        });
        let reader = thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            let mut read = 0;
            loop {
                match reading.read(&mut buffer).unwrap() {
                    0 => return read,
                    length => read += u64::try_from(length).unwrap(),
                }
            }
        });
        Ok(Self {
            client,
            peer,
            stop,
            writer,
            reader,
        })
    }

    /// How many bytes have been sent at least once, and how many of them have arrived, without
    /// a gap.
    fn sent(&self) -> u64 {
        let info = TcpInfo::of(&self.client);
        info.at(200) - info.at(208)
    }

    fn received(&self) -> u64 {
        TcpInfo::of(&self.peer).at(128)
    }

    fn wait_until_moved(&self, before: u64) {
        let start = Instant::now();
        while self.received() == before {
            assert!(start.elapsed() < LIMIT, "nothing arrives");
            sleep(Duration::from_micros(500));
        }
    }

    /// All of it arrives.
    fn end(self) {
        self.stop.store(true, Ordering::Release);
        let sent = self.writer.join().unwrap();
        assert_eq!(self.reader.join().unwrap(), sent);
    }
}

/// What the kernel tells of a connection: `struct tcp_info` of its `tcp.h`.
struct TcpInfo([u8; 256]);

impl TcpInfo {
    fn of(socket: &TcpStream) -> Self {
        let mut info = [0_u8; 256];
        let mut length = libc::socklen_t::try_from(info.len()).unwrap();
        #[expect(unsafe_code, reason = "nix has no TCP_INFO")]
        // SAFETY: the kernel writes no more bytes than `length` says that there are.
        let got = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        assert_eq!(got, 0);
        Self(info)
    }

    /// A number of eight bytes.
    fn at(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(*self.0[offset..].first_chunk().unwrap())
    }
}

/// Datagrams of a flow, and when those were sent that arrive.
struct Flow {
    datagrams: Datagrams,
    /// Of those that have arrived and were not looked at.
    times: Vec<Instant>,
    /// How long after the write of the epoch the last was sent that has arrived, of all
    /// changes; negative if it was before.
    latest: f64,
}

impl Flow {
    /// Waits until some have arrived that were sent after this moment.
    fn wait_until_allowed(&mut self, since: Instant) {
        let start = Instant::now();
        loop {
            self.times.extend(self.datagrams.take_times());
            let later = self.times.iter().rev().take_while(|time| **time > since);
            if later.count() >= ALLOWED {
                return;
            }
            assert!(start.elapsed() < LIMIT, "nothing arrives");
            sleep(Duration::from_micros(500));
        }
    }

    /// Between these moments none was to be sent that has arrived.
    fn check(&mut self, denied: Instant, allowed: Instant) {
        let before = self.times.iter().filter(|time| **time < allowed);
        let last = *before.max().unwrap();
        let late = last.saturating_duration_since(denied).as_secs_f64()
            - denied.saturating_duration_since(last).as_secs_f64();
        self.latest = self.latest.max(late);
        assert!(last < denied, "sent {late} s after the change");
        self.times.retain(|time| *time >= allowed);
    }
}

#[test]
fn nothing_passes_after_any_of_many_policies() -> Result<(), LabError> {
    let mut live = Live::new(&[])?;
    let server = live.pod(1, "server")?;
    let near = live.pod(1, "near")?;
    let far = live.pod(2, "far")?;
    let (allow, deny) = (policy(&json!([{}])), policy(&json!([])));
    let before = live.settings();
    live.put("networkpolicies", std::slice::from_ref(&allow));
    live.wait_for_generation(before);
    let mut flows = Vec::new();
    let mut streams = Vec::new();
    for (from, port) in [(&near, PORT), (&far, PORT + 2)] {
        let at = SocketAddr::new(server.address(), port);
        let datagrams = Datagrams::open(from.netns(), at, &server, port, PAUSE)?;
        datagrams.wait()?;
        flows.push(Flow {
            datagrams,
            times: Vec::new(),
            latest: f64::NEG_INFINITY,
        });
        streams.push(Stream::open(from, &server, port + 1)?);
    }
    let ways = ["local", "vxlan-in"];
    for way in ways {
        wait_for(&live.cluster, 1, way)?;
    }
    let fast = |live: &Live| -> Result<Vec<f64>, LabError> {
        let each = ways.iter().map(|way| packets(&live.cluster, 1, way));
        each.collect()
    };
    let before = fast(&live)?;
    let changes = many(CHANGES.0, CHANGES.1);
    let (mut received_late, mut moved) = ([0; 2], [0; 2]);
    let mut received: Vec<u64> = streams.iter().map(Stream::received).collect();
    for change in 0..changes {
        let settings = live.settings();
        live.put("networkpolicies", std::slice::from_ref(&deny));
        let denied = live.wait_for_generation(settings);
        let sent: Vec<u64> = streams.iter().map(Stream::sent).collect();
        sleep(LATE.saturating_sub(denied.elapsed()));
        let early: Vec<u64> = streams.iter().map(Stream::received).collect();
        sleep(DENIED);
        for (index, stream) in streams.iter().enumerate() {
            let now = stream.received();
            // What was sent before may arrive late on a busy machine.
            assert!(now <= sent[index], "{change}: {now} of {}", sent[index]);
            received_late[index] += usize::from(now != early[index]);
            moved[index] += usize::from(now != received[index]);
            received[index] = now;
        }
        let allowed = Instant::now();
        live.put("networkpolicies", std::slice::from_ref(&allow));
        for flow in &mut flows {
            flow.wait_until_allowed(allowed);
            flow.check(denied, allowed);
        }
        for (stream, before) in streams.iter().zip(&received) {
            stream.wait_until_moved(*before);
        }
    }
    for (index, flow) in flows.iter().enumerate() {
        println!(
            "{}, {changes} changes: the last datagram was sent {:.6} s after one; {} streams \
             moved, of {} something arrived more than 1 ms after",
            ways[index], flow.latest, moved[index], received_late[index],
        );
    }
    // All of the flows were in.
    let enough = f64::from(u32::try_from(changes * ALLOWED / 2).unwrap());
    for (before, after) in before.iter().zip(fast(&live)?) {
        assert!(after > before + enough, "{}", all(&live.cluster, 1));
    }
    assert!(moved.iter().all(|times| *times > 0), "{moved:?}");
    streams.into_iter().for_each(Stream::end);
    Ok(())
}
