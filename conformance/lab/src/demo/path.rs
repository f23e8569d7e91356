//! The paths between all endpoints: a ping, and the source that a server sees.

use std::net::{IpAddr, SocketAddr};

use crate::{Netns, PingOptions, Transport, ping, source_seen};

/// What is at one end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A node, and the source address of its packets to remote pods.
    Node { index: u8, overlay: Option<IpAddr> },
    /// A pod on a node.
    Pod { node: u8 },
    /// The host outside.
    Outside,
}

/// One end of a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Endpoint<'a> {
    pub(crate) name: &'a str,
    pub(crate) netns: &'a Netns,
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    pub(crate) place: Place,
}

/// The source address that a server saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The client's own address.
    Own,
    /// The address of the client's node: masqueraded.
    Node,
    /// The first address of the client node's pod CIDR.
    Overlay,
}

/// A path that works.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Works {
    /// Round-trip time in milliseconds.
    pub(crate) ms: f64,
    pub(crate) seen: Seen,
}

/// The result of a check: the path works, or the reason why it does not.
pub(crate) type Outcome = Result<Works, String>;

/// All paths, checked.
#[derive(Debug)]
pub(crate) struct Checked {
    /// The names of all ends, in order.
    pub(crate) names: Vec<String>,
    /// A row for each start: an outcome for each end, `None` for itself.
    pub(crate) rows: Vec<(String, Vec<Option<Outcome>>)>,
}

impl Checked {
    /// Every path: from, to, outcome.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (&str, &str, &Outcome)> {
        self.rows.iter().flat_map(|(from, row)| {
            let ends = self.names.iter().zip(row);
            ends.filter_map(move |(to, outcome)| Some((&**from, &**to, outcome.as_ref()?)))
        })
    }

    /// The failures, one line for each path.
    pub(crate) fn failures(&self) -> Vec<String> {
        self.paths()
            .filter_map(|(from, to, outcome)| {
                let why = outcome.as_ref().err()?;
                Some(format!("{from} → {to}: {why}"))
            })
            .collect()
    }
}

/// Checks the paths from every node and pod to every other endpoint, from all
/// starts in parallel.
pub(crate) fn check_all(endpoints: &[Endpoint<'_>]) -> Checked {
    let inside = |from: &&Endpoint<'_>| from.place != Place::Outside;
    let rows = std::thread::scope(|scope| {
        let started: Vec<_> = endpoints
            .iter()
            .filter(inside)
            .map(|from| (from.name, scope.spawn(|| check_from(from, endpoints))))
            .collect();
        let row = |(name, thread): (&str, std::thread::ScopedJoinHandle<'_, _>)| {
            let outcomes = thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (name.to_owned(), outcomes)
        };
        started.into_iter().map(row).collect()
    });
    Checked {
        names: endpoints.iter().map(|end| end.name.to_owned()).collect(),
        rows,
    }
}

fn check_from(from: &Endpoint<'_>, endpoints: &[Endpoint<'_>]) -> Vec<Option<Outcome>> {
    let other = |to: &Endpoint<'_>| (to.name != from.name).then(|| check(from, to, endpoints));
    endpoints.iter().map(other).collect()
}

fn check(from: &Endpoint<'_>, to: &Endpoint<'_>, endpoints: &[Endpoint<'_>]) -> Outcome {
    let report = ping(from.netns, to.address, &PingOptions::default()).map_err(|e| e.chain())?;
    let ms = match report.average_ms {
        Some(ms) if report.lost() == 0 => ms,
        _ => return Err(format!("ping: {report}")),
    };
    let (seen, expected) = expected_source(from, to, endpoints);
    let server = SocketAddr::new(to.address, to.port);
    for transport in [Transport::Udp, Transport::Tcp] {
        let source = source_seen(from.netns, server, transport).map_err(|e| e.chain())?;
        if Some(source.ip()) != expected {
            let wanted = expected.map_or("?".to_owned(), |ip| ip.to_string());
            return Err(format!(
                "the {transport:?} server saw {} instead of {wanted}",
                source.ip()
            ));
        }
    }
    Ok(Works { ms, seen })
}

/// The source that a server must see. For a pod: its own address, but its node's
/// address towards other nodes and outside. For a node: its own address, but its
/// address on the overlay towards remote pods.
fn expected_source(
    from: &Endpoint<'_>,
    to: &Endpoint<'_>,
    endpoints: &[Endpoint<'_>],
) -> (Seen, Option<IpAddr>) {
    let node_address = |wanted: u8| {
        endpoints.iter().find_map(|end| match end.place {
            Place::Node { index, .. } if index == wanted => Some(end.address),
            _ => None,
        })
    };
    match (from.place, to.place) {
        (Place::Pod { node }, Place::Outside) => (Seen::Node, node_address(node)),
        (Place::Pod { node }, Place::Node { index, .. }) if node != index => {
            (Seen::Node, node_address(node))
        }
        (Place::Node { index, overlay }, Place::Pod { node }) if node != index => {
            (Seen::Overlay, overlay)
        }
        _ => (Seen::Own, Some(from.address)),
    }
}
