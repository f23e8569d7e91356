//! What is wrong with the ways to other nodes, in words. What many nodes have in common, such
//! as a switch that has died, is one problem.

use tweed_component::peers::{PeerState, Way};
use tweed_core::problem::{Problem, ProblemKind};

use super::Own;
use super::path::{Lost, Path};

/// How many nodes a problem names.
const NAMED: usize = 3;
/// What all of them are about.
const OBJECT: &str = "other nodes";

/// The problems of these ways.
pub(super) fn of<'a>(paths: impl Iterator<Item = &'a Path>, own: &Own) -> Vec<Problem> {
    let mut all: Vec<_> = paths
        .filter_map(|path| Some((kind(path.state())?, path)))
        .collect();
    all.sort_by(|(a, path), (b, other)| {
        let (node, with) = (&path.peer.node, &other.peer.node);
        (a, node, path.peer.address).cmp(&(b, with, other.peer.address))
    });
    let same = all.chunk_by(|(a, _), (b, _)| a == b);
    same.filter_map(|same| {
        let kind = same.first()?.0;
        let first = same.iter().take(NAMED);
        let mut named: Vec<_> = first.map(|(_, path)| text(path, kind, own)).collect();
        if same.len() > NAMED {
            named.push(format!("and {} more like these", same.len() - NAMED));
        }
        Some(Problem::new(kind, OBJECT, named.join("; ")))
    })
    .collect()
}

fn kind(state: PeerState) -> Option<ProblemKind> {
    match state {
        PeerState::Silent => Some(ProblemKind::PeerSilent),
        PeerState::Unreachable => Some(ProblemKind::PeerUnreachable),
        PeerState::OneWay => Some(ProblemKind::PeerOneWay),
        PeerState::Mtu => Some(ProblemKind::PeerMtu),
        PeerState::Answers | PeerState::Unknown | PeerState::NotReady => None,
    }
}

fn text(path: &Path, kind: ProblemKind, own: &Own) -> String {
    let peer = &path.peer;
    let (node, address, underlay) = (&peer.node, peer.address, peer.underlay);
    let over = match peer.way {
        Way::Vxlan => format!("VXLAN, UDP port {}", own.vxlan_port),
        Way::Direct => "a direct route".to_owned(),
    };
    match (kind, path.lost()) {
        (ProblemKind::PeerUnreachable, _) => {
            format!("{node} answers neither at {underlay} nor at {address} over {over}")
        }
        (ProblemKind::PeerMtu, _) => {
            let (passes, full) = (path.limit().unwrap_or_default(), own.mtu);
            format!(
                "packets of {full} bytes, the MTU of pods, do not reach {node} ({underlay}); \
                 those of up to {passes} do"
            )
        }
        (_, Some(Lost::Outbound)) => format!(
            "{node} is heard from {address} over {over}, and packets from here to {underlay} are lost"
        ),
        (_, Some(Lost::Inbound)) => format!(
            "{node} hears this node over {over}, and packets from {underlay} to here are lost"
        ),
        _ => format!("{node} answers at {underlay}, and not at {address} over {over}"),
    }
}
