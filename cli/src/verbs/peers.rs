//! `peers`: whether the other nodes are reached, as each node finds by asking them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use tweed_component::message::{Answer, Request};
use tweed_component::peers::{PeerState, PeerStatus, Way};

use crate::answered::{Answered, Unanswered, reports};
use crate::exit::Exit;
use crate::node::{Node, unexpected};
use crate::output::{Format, Page};
use crate::verb::Verb;

const EXAMPLES: &str = "\
Examples:
  The cluster as a matrix: each row is a node that asks, each column one that is asked:
    tweedctl peers

  As rows, with way, MTU, round trip and last answer:
    tweedctl peers -o wide
    tweedctl peers --node worker-1

  Is every node reached?
    tweedctl peers >/dev/null || echo no

In the matrix a time is the round trip of a node that answers. In a cluster of more than 20
nodes only the rows and columns of those that do not answer are shown. Exit code 1: a node
is not reached, or loses large packets.";

/// Maximum number of columns of a matrix with all nodes.
const MAX_COLUMNS: usize = 20;

/// The arguments of `peers`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = EXAMPLES)]
pub struct Peers {}

/// What one node answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// A row for each way to another node.
    pub peers: Vec<PeerStatus>,
}

impl Verb for Peers {
    type Report = Report;
    const NAME: &'static str = "peers";

    fn local(&self, node: &Node) -> Result<Report, Unanswered> {
        match node.ask(&Request::Peers {})? {
            Answer::Peers(peers) => Ok(Report { peers }),
            _ => Err(unexpected()),
        }
    }

    fn render(&self, answers: &[Answered<Report>], page: &mut Page<'_>) -> io::Result<()> {
        let reports: Vec<(&str, &Report)> = reports(answers).collect();
        match reports.as_slice() {
            [_, _, ..] if page.format == Format::Table => matrix(&reports, page)?,
            _ => rows(&reports, page)?,
        }
        page.all_unanswered(answers)
    }

    fn exit(&self, answers: &[Answered<Report>]) -> Exit {
        let peers = reports(answers).flat_map(|(_, report)| &report.peers);
        let exits = peers.map(|peer| match peer.state {
            PeerState::Answers | PeerState::NotReady => Exit::Fine,
            PeerState::Unknown => Exit::Undetermined,
            PeerState::Mtu | PeerState::OneWay | PeerState::Silent | PeerState::Unreachable => {
                Exit::Findings
            }
        });
        exits.max().unwrap_or_default()
    }
}

fn rows(reports: &[(&str, &Report)], page: &mut Page<'_>) -> io::Result<()> {
    let is_wide = page.format == Format::Wide;
    let is_of_cluster = reports.iter().any(|(node, _)| !node.is_empty());
    let mut header = Vec::from(if is_of_cluster { &["NODE"][..] } else { &[] });
    header.extend(["PEER", "STATE", "WAY", "MTU", "ROUND-TRIP", "LAST-ANSWER"]);
    // By its address a way of one family is told from that of the other.
    let mut peers = reports.iter().map(|(_, report)| &report.peers);
    let has_two = |peers: &Vec<PeerStatus>| !peers.is_sorted_by(|a, b| a.node != b.node);
    let has_address = is_wide || peers.any(has_two);
    header.extend(has_address.then_some("ADDRESS"));
    if is_wide {
        header.extend(["UNDERLAY", "MISSED"]);
    }
    let row = |node: &str, peer: &PeerStatus| {
        let mut row = Vec::from_iter(is_of_cluster.then(|| node.to_owned()));
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let way = match peer.way {
            Way::Vxlan => "vxlan",
            Way::Direct => "direct",
        };
        let ago = peer.answered_ms_ago.map(Duration::from_millis);
        row.extend([
            peer.node.clone(),
            peer.state.word().to_owned(),
            way.to_owned(),
            or_dash(peer.mtu.map(|mtu| mtu.to_string())),
            or_dash(round_trip(peer)),
            or_dash(ago.map(|ago| format!("{:.1}s ago", ago.as_secs_f64()))),
        ]);
        row.extend(has_address.then(|| peer.address.to_string()));
        if is_wide {
            row.extend([peer.underlay.to_string(), peer.missed.to_string()]);
        }
        row
    };
    let rows = reports.iter().flat_map(|(node, report)| {
        let peers = report.peers.iter();
        peers.map(|peer| row(node, peer)).collect::<Vec<_>>()
    });
    page.table(&header, &rows.collect::<Vec<_>>())
}

/// Who asks by who is asked. Of several ways to a node the worst counts.
fn matrix(reports: &[(&str, &Report)], page: &mut Page<'_>) -> io::Result<()> {
    let mut cells: BTreeMap<(&str, &str), &PeerStatus> = BTreeMap::new();
    for (node, report) in reports {
        for peer in &report.peers {
            let cell = cells.entry((node, &peer.node)).or_insert(peer);
            if peer.state > cell.state {
                *cell = peer;
            }
        }
    }
    let all: BTreeSet<&str> = cells.keys().map(|(_, to)| *to).collect();
    let is_large = all.len() > MAX_COLUMNS;
    let is_shown = |state| !is_large || state != PeerState::Answers;
    let shown = || cells.iter().filter(|(_, peer)| is_shown(peer.state));
    let asking: BTreeSet<&str> = shown().map(|((from, _), _)| *from).collect();
    let asked: BTreeSet<&str> = shown().map(|((_, to), _)| *to).collect();
    let header: Vec<&str> = std::iter::once("FROM")
        .chain(asked.iter().copied())
        .collect();
    let lines = asking.iter().map(|from| {
        let cells = asked.iter().map(|to| match cells.get(&(*from, *to)) {
            None => "-".to_owned(),
            Some(peer) if peer.state == PeerState::Answers => {
                round_trip(peer).unwrap_or_else(|| peer.state.word().to_owned())
            }
            Some(peer) => peer.state.word().to_owned(),
        });
        std::iter::once((*from).to_owned()).chain(cells).collect()
    });
    let rows: Vec<Vec<String>> = lines.collect();
    if !rows.is_empty() {
        page.table(&header, &rows)?;
    }
    let good = cells
        .values()
        .filter(|peer| peer.state == PeerState::Answers);
    page.line(&format!("{} of {} ways answer", good.count(), cells.len()))
}

fn round_trip(peer: &PeerStatus) -> Option<String> {
    let micros = peer.round_trip_us?;
    Some(match micros {
        0..10_000 => format!("{micros}us"),
        _ => format!("{}ms", micros / 1000),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(node: &str, state: PeerState) -> PeerStatus {
        PeerStatus {
            node: node.to_owned(),
            address: "10.0.2.0".parse().unwrap(),
            underlay: "192.0.2.2".parse().unwrap(),
            way: Way::Vxlan,
            state,
            mtu: Some(1450),
            round_trip_us: Some(312),
            answered_ms_ago: Some(1250),
            missed: 0,
        }
    }

    fn shown(answers: &[Answered<Report>], format: Format) -> String {
        let mut out = Vec::new();
        let mut page = Page::new(&mut out, format);
        Peers {}.render(answers, &mut page).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn of(node: &str, peers: Vec<PeerStatus>) -> Answered<Report> {
        (node.to_owned(), Ok(Report { peers }))
    }

    #[test]
    fn a_node_has_a_row_for_each_way() {
        let answers = [of("", vec![peer("n2", PeerState::Answers)])];
        let expected = "\
PEER  STATE    WAY    MTU   ROUND-TRIP  LAST-ANSWER
n2    answers  vxlan  1450  312us       1.2s ago
";
        assert_eq!(shown(&answers, Format::Table), expected);
        assert_eq!(Peers {}.exit(&answers), Exit::Fine);
        let mut ipv6 = peer("n2", PeerState::Answers);
        ipv6.address = "fd00:0:0:2::".parse().unwrap();
        let both = [of("", vec![peer("n2", PeerState::Answers), ipv6])];
        let expected = "\
PEER  STATE    WAY    MTU   ROUND-TRIP  LAST-ANSWER  ADDRESS
n2    answers  vxlan  1450  312us       1.2s ago     10.0.2.0
n2    answers  vxlan  1450  312us       1.2s ago     fd00:0:0:2::
";
        assert_eq!(shown(&both, Format::Table), expected);
    }

    #[test]
    fn a_cluster_is_a_matrix_in_which_the_worst_way_counts() {
        let both = [PeerState::Answers, PeerState::Mtu].map(|state| peer("n2", state));
        let answers = [
            of("n1", both.into()),
            of("n2", vec![peer("n1", PeerState::Answers)]),
            ("n3".to_owned(), Err(Unanswered::new("no agent"))),
        ];
        let expected = "\
FROM  n1     n2
n1    -      mtu
n2    312us  -
1 of 2 ways answer
node n3: no agent
";
        assert_eq!(shown(&answers, Format::Table), expected);
        assert_eq!(Peers {}.exit(&answers), Exit::Findings);
        let rows = shown(&answers, Format::Wide);
        assert_eq!(rows.lines().count(), 5, "{rows}");
    }

    #[test]
    fn of_a_large_cluster_only_what_does_not_answer_is_shown() {
        let answers: Vec<_> = (0..30)
            .map(|from| {
                let peers = (0..30).filter(|to| *to != from).map(|to| {
                    let state = match (from, to) {
                        (3, 7) => PeerState::Silent,
                        _ => PeerState::Answers,
                    };
                    peer(&format!("n{to}"), state)
                });
                of(&format!("n{from}"), peers.collect())
            })
            .collect();
        let expected = "FROM  n7\nn3    silent\n869 of 870 ways answer\n";
        assert_eq!(shown(&answers, Format::Table), expected);
    }
}
