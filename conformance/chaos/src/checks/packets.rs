//! Every pod reaches every pod and every node, and every node every pod and every node:
//! a datagram from each to each, in both families.
//!
//! One thread owns a socket in each namespace. A datagram names its sender and receiver,
//! so that one that arrives proves one way; the way back is another datagram. Between
//! pods its source has to be the sending pod's own address.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tweed_lab::{LabError, Netns};

use crate::plan::Plan;
use crate::world::World;

const PORT: u16 = 7777;

/// How long an arrival is waited for before the check fails; it is repeated then.
const ARRIVAL_LIMIT: Duration = Duration::from_millis(500);

/// Maximum number of ways that a finding names.
const MAX_NAMED: usize = 12;

/// A socket in each namespace; they stay open between checks.
#[derive(Debug, Default)]
pub struct Endpoints {
    sockets: BTreeMap<(PathBuf, u64), UdpSocket>,
    round: u64,
}

#[derive(Debug)]
struct Endpoint {
    name: String,
    /// Its namespace: a machine that replaces another has the same name, but not the
    /// same inode while a socket keeps the old one alive.
    netns: (PathBuf, u64),
    addresses: Vec<IpAddr>,
    is_pod: bool,
}

impl Endpoints {
    /// Closes the sockets in namespaces that have been deleted: a socket keeps its
    /// namespace alive, and with it the link of a pod.
    pub fn close_deleted(&mut self) {
        self.sockets
            .retain(|(path, inode), _| std::fs::metadata(path).is_ok_and(|f| f.ino() == *inode));
    }

    /// The ways that packets do not find.
    ///
    /// # Errors
    /// A namespace cannot be entered.
    pub fn problems(&mut self, world: &mut World, plan: &Plan) -> Result<Vec<String>, LabError> {
        let endpoints = self.open_all(world, plan)?;
        self.round += 1;
        let mut wanted = BTreeSet::new();
        let mut failed = Vec::new();
        for (sender, from) in endpoints.iter().enumerate() {
            for (receiver, to) in endpoints.iter().enumerate().filter(|(to, _)| *to != sender) {
                for address in &to.addresses {
                    // A node of the lab has no IPv6 address on the underlay.
                    if address.is_ipv6() && !(from.is_pod && to.is_pod) {
                        continue;
                    }
                    let way = (sender, receiver, *address);
                    match self.send(from, way) {
                        Ok(()) => drop(wanted.insert(way)),
                        Err(error) => failed.push(format!("{} to {address}: {error}", from.name)),
                    }
                }
            }
        }
        let deadline = Instant::now() + ARRIVAL_LIMIT;
        while !wanted.is_empty() && Instant::now() < deadline {
            for (receiver, to) in endpoints.iter().enumerate() {
                failed.extend(self.receive(to, receiver, &endpoints, &mut wanted));
            }
            if !wanted.is_empty() {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        failed.extend(wanted.iter().map(|(from, to, address)| {
            let (from, to) = (&endpoints[*from].name, &endpoints[*to].name);
            format!("nothing from {from} arrives at {to}, {address}")
        }));
        let more = failed.len().saturating_sub(MAX_NAMED);
        failed.truncate(MAX_NAMED);
        if more > 0 {
            failed.push(format!("and {more} more"));
        }
        Ok(failed)
    }

    fn open_all(&mut self, world: &mut World, plan: &Plan) -> Result<Vec<Endpoint>, LabError> {
        let mut endpoints = Vec::new();
        for node in &plan.nodes {
            let netns = world.node(node.index)?.node.netns();
            endpoints.push(Endpoint {
                name: node.name.clone(),
                netns: self.open(netns)?,
                addresses: vec![node.address.into()],
                is_pod: false,
            });
        }
        for pod in &world.pods {
            let netns = pod.pod.netns();
            endpoints.push(Endpoint {
                name: pod.name.clone(),
                netns: self.open(netns)?,
                addresses: pod
                    .attached
                    .iter()
                    .flat_map(|a| a.addresses.clone())
                    .collect(),
                is_pod: true,
            });
        }
        Ok(endpoints)
    }

    fn open(&mut self, netns: &Netns) -> Result<(PathBuf, u64), LabError> {
        let path = netns.path();
        let file = std::fs::metadata(&path).map_err(|e| LabError::file("find", &path, e))?;
        let key = (path, file.ino());
        if self.sockets.contains_key(&key) {
            return Ok(key);
        }
        let socket = netns.enter(|| {
            let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT))?;
            socket.set_nonblocking(true)?;
            Ok::<_, io::Error>(socket)
        })?;
        let socket = socket.map_err(|source| LabError::Namespace {
            action: "open a socket",
            namespace: netns.name().to_owned(),
            source,
        })?;
        self.sockets.insert(key.clone(), socket);
        Ok(key)
    }

    fn send(
        &self,
        from: &Endpoint,
        (sender, receiver, to): (usize, usize, IpAddr),
    ) -> io::Result<()> {
        let to = match to {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
            v6 @ IpAddr::V6(_) => v6,
        };
        let text = format!("{} {sender} {receiver}", self.round);
        let Some(socket) = self.sockets.get(&from.netns) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        socket
            .send_to(text.as_bytes(), SocketAddr::new(to, PORT))
            .map(drop)
    }

    /// Takes what has arrived at an endpoint from the list of what is wanted. Returns
    /// what arrived with another source than it should.
    fn receive(
        &self,
        to: &Endpoint,
        receiver: usize,
        endpoints: &[Endpoint],
        wanted: &mut BTreeSet<(usize, usize, IpAddr)>,
    ) -> Vec<String> {
        let mut failed = Vec::new();
        let Some(socket) = self.sockets.get(&to.netns) else {
            return failed;
        };
        let mut buffer = [0; 64];
        while let Ok((length, source)) = socket.recv_from(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..length]);
            let mut words = text.split(' ').map(|word| word.parse::<u64>().ok());
            let (round, sender) = (words.next().flatten(), words.next().flatten());
            let sender = sender.and_then(|number| usize::try_from(number).ok());
            let Some((from, sender)) = sender
                .filter(|_| round == Some(self.round))
                .and_then(|number| Some((endpoints.get(number)?, number)))
            else {
                continue;
            };
            let source = source.ip().to_canonical();
            let arrived: Vec<_> = wanted
                .iter()
                .filter(|way| way.0 == sender && way.1 == receiver)
                .filter(|way| way.2.is_ipv4() == source.is_ipv4())
                .copied()
                .collect();
            for way in arrived {
                wanted.remove(&way);
            }
            if from.is_pod && to.is_pod && !from.addresses.contains(&source) {
                failed.push(format!(
                    "{} sees {source} as the source of {}",
                    to.name, from.name
                ));
            }
        }
        failed
    }
}
