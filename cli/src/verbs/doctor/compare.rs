//! What does not fit together between nodes. Pure.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnetwork::IpNetwork;
use tweed_component::explain::listed;

use super::{Finding, Level, Report};
use crate::answered::{Answered, reports};
use crate::cluster::Place;
use crate::verbs::nodes::{grouped, named};

/// The name under which findings about all nodes are: no Node can have it.
pub(super) const ALL_NODES: &str = "*";

/// How far a clock may be off, in milliseconds.
const CLOCK_TOLERANCE: u64 = 1000;
/// Maximum number of clocks that are named.
const MAX_CLOCKS: usize = 8;

/// What is wrong between these nodes. `asked` are the milliseconds since 1970 in which they
/// were asked, by the clock of this machine.
pub(super) fn findings(
    places: &[Place],
    answers: &[Answered<Report>],
    asked: RangeInclusive<u64>,
) -> Vec<Finding> {
    let reports: Vec<(&str, &Report)> = reports(answers).collect();
    let mut findings = cidrs(places);
    findings.extend(versions(&reports));
    findings.extend(clocks(&reports, &asked));
    findings
}

/// Pod CIDRs of two Nodes that have addresses in common.
fn cidrs(places: &[Place]) -> Vec<Finding> {
    let of_place = |place: &'_ Place| {
        let cidrs = place.pod_cidrs.iter().filter_map(|text| text.parse().ok());
        let node = place.node.clone();
        cidrs
            .map(move |cidr: IpNetwork| (cidr, node.clone()))
            .collect::<Vec<_>>()
    };
    let mut cidrs: Vec<(IpNetwork, String)> = places.iter().flat_map(of_place).collect();
    cidrs.sort_by_key(|(cidr, _)| (cidr.network(), cidr.prefix()));
    // The range that reaches furthest so far: what begins inside it overlaps it.
    let mut widest: Option<(IpAddr, IpNetwork, String)> = None;
    let mut findings = Vec::new();
    for (cidr, node) in cidrs {
        if let Some((end, other, owner)) = &widest
            && end.is_ipv4() == cidr.is_ipv4()
            && cidr.network() <= *end
            && *owner != node
        {
            findings.push(Finding {
                level: Level::Error,
                ..Finding::warning(
                    "pod-cidr",
                    format!("pod CIDRs overlap: {other} of Node {owner}, and {cidr} of Node {node}"),
                    "drain one of the Nodes, delete it and let it register again: it then gets a range of its own",
                )
            });
        }
        let end = cidr.broadcast();
        if widest
            .as_ref()
            .is_none_or(|(last, ..)| last.is_ipv4() != end.is_ipv4() || *last < end)
        {
            widest = Some((end, cidr, node));
        }
    }
    findings
}

/// Agents of several versions.
fn versions(reports: &[(&str, &Report)]) -> Option<Finding> {
    let versions = reports
        .iter()
        .filter_map(|(node, report)| Some((report.agent.as_ref()?, *node)));
    let texts: Vec<String> = grouped(versions)
        .into_iter()
        .map(|(version, nodes)| format!("{version} on {}", named(&nodes)))
        .collect();
    (texts.len() > 1).then(|| {
        Finding::warning(
            "version",
            format!("agents are of different versions: {}", texts.join("; ")),
            "if no upgrade is under way, see kubectl rollout status daemonset/tweed",
        )
    })
}

/// Clocks that differ from this machine's by more than the time that the question took.
fn clocks(reports: &[(&str, &Report)], asked: &RangeInclusive<u64>) -> Option<Finding> {
    let differing = reports.iter().filter_map(|(node, report)| {
        let early = asked.start().saturating_sub(report.time_ms);
        let late = report.time_ms.saturating_sub(*asked.end());
        let (by, how) = if early > 0 {
            (early, "behind")
        } else {
            (late, "ahead")
        };
        (by > CLOCK_TOLERANCE).then(|| format!("{node} is {} s {how}", by / 1000))
    });
    let off: Vec<String> = differing.collect();
    (!off.is_empty()).then(|| {
        Finding::warning(
            "clock",
            format!("clocks differ from this machine's: {}", listed(off.into_iter(), MAX_CLOCKS)),
            "have the nodes synchronise their clocks (chrony, systemd-timesyncd), or this machine: tokens and certificates depend on it",
        )
    })
}
