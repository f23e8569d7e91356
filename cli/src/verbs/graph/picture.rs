//! Nodes on a circle, and a line for each way between two. Pure.

use std::collections::BTreeMap;
use std::f64::consts::TAU;

use tweed_component::peers::{PeerState, PeerStatus};
use tweed_drawing::{Drawing, Point};

use super::words;
use crate::answered::Answered;
use crate::verbs::peers;
use crate::verbs::status::Report;

const STYLE: &str = "\
  .good { fill: #dff3e4; stroke: #4c9a63; }
  .doubtful { fill: #fff3dc; stroke: #c2912e; }
  .bad { fill: #fbe0de; stroke: #c0392b; }
  .way { stroke: #4c9a63; stroke-width: 1.5; }
  .unknown { stroke: #b5bfca; stroke-width: 1; stroke-dasharray: 3 4; }
  .broken { stroke: #c0392b; stroke-width: 3; stroke-dasharray: 7 5; }
";

const BOX: Point = (170, 44);
const MARGIN: usize = 30;
/// Room for the title.
const TOP: usize = 40;
/// Least radius of the circle.
const LEAST_RADIUS: usize = 200;
/// With more nodes than these the lines between those that answer have no text.
const MOST_WITH_TEXTS: usize = 12;
/// With more nodes than these only lines are drawn that have something wrong.
const MOST_WITH_LINES: usize = 60;

/// The document.
pub(super) fn draw(reports: &[Answered<Report>], peers: &[Answered<peers::Report>]) -> String {
    let count = reports.len();
    // Boxes side by side are the circumference.
    let radius = LEAST_RADIUS.max(count * (BOX.0 + MARGIN) / 6);
    let size = 2 * (radius + MARGIN) + BOX.0;
    let mut drawing = Drawing::new((size, size + TOP), STYLE);
    let numbered = reports.iter().enumerate();
    let middles: BTreeMap<&str, Point> = numbered
        .map(|(number, (node, _))| (node.as_str(), on_circle(number, count, radius, size)))
        .collect();
    for ((one, other), ways) in ways(peers) {
        let (Some(from), Some(to)) = (middles.get(one), middles.get(other)) else {
            continue;
        };
        let broken = ways.iter().find(|(_, peer)| is_broken(peer));
        if broken.is_none() && count > MOST_WITH_LINES {
            continue;
        }
        let is_known = ways
            .iter()
            .all(|(_, peer)| peer.state == PeerState::Answers);
        let class = match broken {
            Some(_) => "broken",
            None if is_known => "way",
            None => "unknown",
        };
        drawing.line(class, *from, *to);
        let text = match broken {
            Some((finder, peer)) => Some(format!("{finder}: {}", loss(peer))),
            None if count <= MOST_WITH_TEXTS => round_trip(&ways),
            None => None,
        };
        if let Some(text) = text {
            // Not in the middle, where many lines cross.
            let at = |from: usize, to: usize| (3 * from + 2 * to) / 5;
            let place = (at(from.0, to.0), at(from.1, to.1));
            drawing.text("small", "middle", place, &text);
        }
    }
    for (node, report) in reports {
        if let Some((x, y)) = middles.get(node.as_str()) {
            let (class, text) = words(report);
            drawing.rect(class, (x - BOX.0 / 2, y - BOX.1 / 2), BOX);
            drawing.text("title", "middle", (*x, y - 4), node);
            drawing.text("small", "middle", (*x, y + 14), &text);
        }
    }
    let silent = peers.iter().filter(|(_, peers)| peers.is_err()).count();
    let of_ways = match silent {
        0 => String::new(),
        silent => format!("; what {silent} of them know of the ways to others could not be asked"),
    };
    drawing.text(
        "title",
        "start",
        (MARGIN, 26),
        &format!("{count} nodes{of_ways}"),
    );
    drawing.end()
}

/// The middle of a node's box: the first is at the top.
fn on_circle(number: usize, count: usize, radius: usize, size: usize) -> Point {
    let angle = TAU * number as f64 / count.max(1) as f64;
    let (radius, middle) = (radius as f64, size as f64 / 2.0);
    let x = middle + radius * angle.sin();
    let y = middle - radius * angle.cos() + TOP as f64;
    (x.round() as usize, y.round() as usize)
}

/// What each pair of nodes knows of its way: who, and what.
fn ways(peers: &[Answered<peers::Report>]) -> BTreeMap<(&str, &str), Vec<(&str, &PeerStatus)>> {
    let mut ways: BTreeMap<(&str, &str), Vec<(&str, &PeerStatus)>> = BTreeMap::new();
    for (node, peers) in peers {
        for peer in peers.iter().flat_map(|report| &report.peers) {
            let (one, other) = (node.as_str(), peer.node.as_str());
            let pair = (one.min(other), one.max(other));
            ways.entry(pair).or_default().push((one, peer));
        }
    }
    ways
}

fn is_broken(peer: &PeerStatus) -> bool {
    use PeerState::{Mtu, OneWay, Silent, Unreachable};
    matches!(peer.state, Mtu | OneWay | Silent | Unreachable)
}

/// What is wrong with a way.
fn loss(peer: &PeerStatus) -> String {
    match peer.missed {
        0 => peer.state.word().to_owned(),
        missed => format!("{}, {missed} probes lost", peer.state.word()),
    }
}

/// The longest round trip of a way, as both ends have measured it.
fn round_trip(ways: &[(&str, &PeerStatus)]) -> Option<String> {
    let longest = ways
        .iter()
        .filter_map(|(_, peer)| peer.round_trip_us)
        .max()?;
    Some(match longest {
        micros if micros < 1000 => format!("{micros} µs"),
        micros => format!("{}.{} ms", micros / 1000, micros % 1000 / 100),
    })
}
