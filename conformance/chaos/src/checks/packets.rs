//! Every pod reaches every pod and every node, and every node every pod and every node,
//! where the policies allow it, and nobody else does: a datagram from each to each, in
//! both families.
//!
//! One thread owns the sockets in all namespaces. A datagram names its sender and
//! receiver, so that one that arrives proves one way; the way back is another datagram,
//! and another flow, since the sender's port is not the receiver's. Between pods its
//! source has to be the sending pod's own address. The ports stay the same from one look
//! to the next, so that flows that a policy no longer allows have to be cut. Services are
//! asked from a new port at each look too: the rules see only the first packet of a flow.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tweed_lab::{LabError, Netns};

use crate::plan::Plan;
use crate::policy::{End, passes};
use crate::services::{Candidate, SERVICE_PORT, Use, cluster_ip};
use crate::world::World;

/// The port that is sent to.
pub const PORT: u16 = 7777;

/// The port that is sent from.
const SOURCE_PORT: u16 = 7778;

/// How long an arrival is waited for before the check fails; it is repeated then.
const ARRIVAL_LIMIT: Duration = Duration::from_millis(500);

/// How long a datagram that may not arrive is waited for after all others have arrived:
/// it was sent among them.
const LATE: Duration = Duration::from_millis(20);

/// Maximum number of ways that a finding names.
const MAX_NAMED: usize = 12;

/// A socket in each namespace; they stay open between checks.
#[derive(Debug, Default)]
pub struct Endpoints {
    sockets: BTreeMap<(PathBuf, u64), Sockets>,
    round: u64,
}

/// The sockets in one namespace.
#[derive(Debug)]
struct Sockets {
    receiving: UdpSocket,
    sending: UdpSocket,
    /// Sends from a port that no look before has sent from.
    fresh: UdpSocket,
}

/// From which endpoint to which, and to which of its addresses. Services are numbered
/// after the endpoints, each twice: for the flow that lasts, and for the new one.
type Way = (usize, usize, IpAddr);

/// What should become of the datagrams of a round.
#[derive(Debug, Default)]
struct Expected {
    /// Those that should arrive and have not yet.
    wanted: BTreeSet<Way>,
    /// Those that may not arrive.
    forbidden: BTreeSet<Way>,
    /// Where those to a Service may arrive, by its number.
    endpoints: BTreeMap<usize, BTreeSet<usize>>,
}

#[derive(Debug)]
struct Endpoint {
    name: String,
    /// Its namespace: a machine that replaces another has the same name, but not the
    /// same inode while a socket keeps the old one alive.
    netns: (PathBuf, u64),
    addresses: Vec<IpAddr>,
    /// Number of its node, or of that it is.
    node: u8,
    /// Namespace and label `app` of a pod; `None` for a node.
    pod: Option<(&'static str, &'static str)>,
    /// The address by which a node is known where its packets leave its VXLAN device.
    overlay: Option<IpAddr>,
}

impl Endpoint {
    fn is_pod(&self) -> bool {
        self.pod.is_some()
    }

    /// Its end of a flow whose other end is of this family.
    fn end(&self, is_ipv4: bool) -> Option<End<'_>> {
        let address = self.addresses.iter().find(|ip| ip.is_ipv4() == is_ipv4);
        let address = *address?;
        Some(match self.pod {
            Some((namespace, app)) => End::Pod {
                node: self.node,
                namespace,
                app,
                address,
            },
            None => End::Node {
                node: self.node,
                addresses: [address, self.overlay.unwrap_or(address)],
            },
        })
    }
}

/// As which receivers a Service is named: an even number for the flow that lasts from one
/// look to the next, and an odd one for the flow of this look alone.
fn flows_to(service: usize, endpoints: &[Endpoint]) -> [usize; 2] {
    let first = endpoints.len().next_multiple_of(2) + 2 * service;
    [first, first + 1]
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
        let mut expected = Expected::default();
        let mut failed = Vec::new();
        for (sender, from) in endpoints.iter().enumerate() {
            for (receiver, to) in endpoints.iter().enumerate().filter(|(to, _)| *to != sender) {
                for address in &to.addresses {
                    // A node of the lab has no IPv6 address on the underlay.
                    if address.is_ipv6() && !(from.is_pod() && to.is_pod()) {
                        continue;
                    }
                    let way = (sender, receiver, *address);
                    let Some((one, other)) =
                        from.end(address.is_ipv4()).zip(to.end(address.is_ipv4()))
                    else {
                        continue;
                    };
                    let verdict = passes(&world.policies, one, other, PORT);
                    match (self.send(from, way, PORT), verdict) {
                        (Ok(()), Some(true)) => drop(expected.wanted.insert(way)),
                        (Ok(()), Some(false)) => drop(expected.forbidden.insert(way)),
                        (_, None) => {}
                        (Err(error), _) => {
                            failed.push(format!("{} to {address}: {error}", from.name));
                        }
                    }
                }
            }
        }
        self.send_to_services(world, &endpoints, &mut expected, &mut failed);
        let deadline = Instant::now() + ARRIVAL_LIMIT;
        let receive = |expected: &mut Expected, failed: &mut Vec<String>| {
            for (receiver, to) in endpoints.iter().enumerate() {
                failed.extend(self.receive(to, receiver, &endpoints, expected));
            }
        };
        while !expected.wanted.is_empty() && Instant::now() < deadline {
            receive(&mut expected, &mut failed);
            if !expected.wanted.is_empty() {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        if !expected.forbidden.is_empty() {
            std::thread::sleep(LATE);
            receive(&mut expected, &mut failed);
        }
        failed.extend(expected.wanted.iter().map(|(from, to, address)| {
            let from = &endpoints[*from].name;
            let to = endpoints.get(*to).map_or("a Service", |to| &to.name);
            format!("nothing from {from} arrives at {to}, {address}")
        }));
        let more = failed.len().saturating_sub(MAX_NAMED);
        failed.truncate(MAX_NAMED);
        if more > 0 {
            failed.push(format!("and {more} more"));
        }
        Ok(failed)
    }

    /// A datagram from each pod to each Service of which it is no endpoint itself. It has to
    /// arrive where every endpoint that may be chosen lets it in, and may not where there
    /// is no endpoint or none does.
    fn send_to_services(
        &self,
        world: &World,
        endpoints: &[Endpoint],
        expected: &mut Expected,
        failed: &mut Vec<String>,
    ) {
        for (number, service) in &world.services.all {
            let uses = |endpoint: &Endpoint, client: u8| {
                let candidate = Candidate {
                    node: endpoint.node,
                    name: &endpoint.name,
                    app: endpoint.pod?.1,
                };
                Some(service.uses(&candidate, client)).filter(|how| *how != Use::None)
            };
            let all = (0..).zip(endpoints);
            let found = all.filter(|(_, endpoint)| uses(endpoint, endpoint.node).is_some());
            let serving: BTreeSet<usize> = found.map(|(at, _)| at).collect();
            for (sender, from) in endpoints.iter().enumerate() {
                if !from.is_pod() || serving.contains(&sender) {
                    continue;
                }
                for is_ipv4 in [true, false] {
                    let Some(end) = from.end(is_ipv4) else {
                        continue;
                    };
                    let used = serving.iter().filter_map(|at| {
                        let endpoint = &endpoints[*at];
                        let how = uses(endpoint, from.node)?;
                        let verdict = passes(&world.policies, end, endpoint.end(is_ipv4)?, PORT);
                        Some((how, verdict))
                    });
                    let of_family: Vec<_> = used.collect();
                    let is_any = of_family.iter().any(|(how, _)| *how == Use::Chosen);
                    let all = |verdict| of_family.iter().all(|(_, one)| *one == Some(verdict));
                    for receiver in flows_to(*number, endpoints) {
                        let way = (sender, receiver, cluster_ip(*number, is_ipv4));
                        if is_any && all(true) {
                            expected.wanted.insert(way);
                        }
                        if all(false) {
                            expected.forbidden.insert(way);
                        }
                        if let Err(error) = self.send(from, way, SERVICE_PORT) {
                            failed.push(format!("{} to {}: {error}", from.name, way.2));
                        }
                    }
                }
            }
            for receiver in flows_to(*number, endpoints) {
                expected.endpoints.insert(receiver, serving.clone());
            }
        }
    }

    fn open_all(&mut self, world: &mut World, plan: &Plan) -> Result<Vec<Endpoint>, LabError> {
        let mut endpoints = Vec::new();
        for node in &plan.nodes {
            let netns = world.node(node.index)?.node.netns();
            endpoints.push(Endpoint {
                name: node.name.clone(),
                netns: self.open(netns)?,
                addresses: vec![node.address.into()],
                node: node.index,
                pod: None,
                overlay: node.overlay_addresses().find(IpAddr::is_ipv4),
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
                node: pod.node,
                pod: Some((pod.namespace, pod.app)),
                overlay: None,
            });
        }
        Ok(endpoints)
    }

    fn open(&mut self, netns: &Netns) -> Result<(PathBuf, u64), LabError> {
        let path = netns.path();
        let file = std::fs::metadata(&path).map_err(|e| LabError::file("find", &path, e))?;
        let key = (path, file.ino());
        let known = self.sockets.remove(&key);
        let opened = netns.enter(|| {
            let open = |port| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port));
            let fresh = open(0)?;
            if let Some(known) = known {
                return Ok(Sockets { fresh, ..known });
            }
            let (receiving, sending) = (open(PORT)?, open(SOURCE_PORT)?);
            receiving.set_nonblocking(true)?;
            Ok::<_, io::Error>(Sockets {
                receiving,
                sending,
                fresh,
            })
        })?;
        let sockets = opened.map_err(|source| LabError::Namespace {
            action: "open a socket",
            namespace: netns.name().to_owned(),
            source,
        })?;
        self.sockets.insert(key.clone(), sockets);
        Ok(key)
    }

    fn send(&self, from: &Endpoint, (sender, receiver, to): Way, port: u16) -> io::Result<()> {
        let to = match to {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
            v6 @ IpAddr::V6(_) => v6,
        };
        let text = format!("{} {sender} {receiver}", self.round);
        let Some(sockets) = self.sockets.get(&from.netns) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let socket = if port == SERVICE_PORT && receiver % 2 == 1 {
            &sockets.fresh
        } else {
            &sockets.sending
        };
        let sent = socket.send_to(text.as_bytes(), SocketAddr::new(to, port));
        sent.map(drop)
    }

    /// Takes what has arrived at an endpoint from the list of what is wanted. Returns
    /// what arrived with another source than it should, and what may not arrive.
    fn receive(
        &self,
        to: &Endpoint,
        receiver: usize,
        endpoints: &[Endpoint],
        expected: &mut Expected,
    ) -> Vec<String> {
        let mut failed = Vec::new();
        let Some(sockets) = self.sockets.get(&to.netns) else {
            return failed;
        };
        let mut buffer = [0; 64];
        while let Ok((length, sent_by)) = sockets.receiving.recv_from(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..length]);
            let words = text.split(' ').map(|word| word.parse::<usize>().ok());
            let numbers: Option<Vec<usize>> = words.collect();
            let Some([round, sender, meant]) = numbers.as_deref() else {
                continue;
            };
            let is_now = u64::try_from(*round) == Ok(self.round);
            let Some(from) = endpoints.get(*sender).filter(|_| is_now) else {
                continue;
            };
            let source = sent_by.ip().to_canonical();
            let is_this = |way: &Way| {
                way.0 == *sender && way.1 == *meant && way.2.is_ipv4() == source.is_ipv4()
            };
            expected.wanted.retain(|way| !is_this(way));
            if expected.forbidden.iter().any(is_this) {
                let (from, to) = (&from.name, &to.name);
                failed.push(format!(
                    "{from} reaches {to} from {source}, which no policy or Service allows"
                ));
            }
            let by_service = expected.endpoints.get(meant);
            if by_service.is_some_and(|endpoints| !endpoints.contains(&receiver)) {
                let (from, to) = (&from.name, &to.name);
                failed.push(format!("{from} reaches {to} by a Service that has it not"));
            }
            if from.is_pod() && to.is_pod() && !from.addresses.contains(&source) {
                failed.push(format!(
                    "{} sees {source} as the source of {}",
                    to.name, from.name
                ));
            }
        }
        failed
    }
}
