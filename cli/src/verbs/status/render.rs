//! The nodes as a table, what is wrong first, and below it each problem once.

use std::cmp::Reverse;
use std::io;

use tweed_component::message::{Found, RangeUse};
use tweed_core::problem::Effect;

use super::Report;
use crate::answered::{Answered, reports};
use crate::output::{Format, Page, Tone};
use crate::verbs::nodes::{grouped, named};

const NONE: &str = "-";
/// What a note has of a kind of objects that the API server does not have: most clusters lack
/// one, and it is of no consequence to them.
const ABSENT: &str = ": there are no ";

/// Prints the nodes and their problems.
pub(super) fn render(answers: &[Answered<Report>], page: &mut Page<'_>) -> io::Result<()> {
    let is_wide = page.format == Format::Wide;
    let mut header = vec![
        "NODE",
        "READY",
        "AGENT",
        "ADDRESSES",
        "MTU",
        "PEERS",
        "PROBLEMS",
    ];
    if is_wide {
        header.push("POD CIDRS");
    }
    let mut sorted: Vec<&Answered<Report>> = answers.iter().collect();
    // Stable: nodes that are alike stay in the order of their names.
    sorted.sort_by_key(|(_, answer)| Reverse(badness(answer.as_ref().ok())));
    let rows: Vec<Vec<String>> = sorted
        .iter()
        .map(|(node, answer)| row(node, answer.as_ref().ok(), is_wide))
        .collect();
    page.table(&header, &rows)?;
    let unanswered = answers.iter().filter_map(|(node, answer)| {
        let why = answer.as_ref().err()?;
        Some((why.to_string(), node.as_str()))
    });
    for (why, nodes) in grouped(unanswered) {
        let nodes = named(&nodes);
        page.line("")?;
        page.toned(Tone::Bad, &format!("no answer: {why}"))?;
        page.line(&format!("  on {nodes}"))?;
    }
    problems(answers, page)?;
    let notes = reports(answers).flat_map(|(_, report)| {
        let node = report.node.as_str();
        let is_shown = move |note: &&String| is_wide || !note.contains(ABSENT);
        let shown = report.notes.iter().filter(is_shown);
        shown.map(move |note| (note.clone(), node))
    });
    for (note, nodes) in grouped(notes) {
        page.line(&format!("note on {}: {note}", named(&nodes)))?;
    }
    Ok(())
}

/// How urgent a node is.
fn badness(report: Option<&Report>) -> u8 {
    match report {
        None => 4,
        Some(report) if report.affects_running => 3,
        Some(report) if !report.ready => 2,
        Some(report) => u8::from(!report.problems.is_empty()),
    }
}

fn row(node: &str, report: Option<&Report>, is_wide: bool) -> Vec<String> {
    let Some(report) = report else {
        let unknown = [node, "unknown", NONE, NONE, NONE, NONE, "no answer"];
        return unknown.map(ToOwned::to_owned).to_vec();
    };
    let count = report.problems.len() + report.more_problems;
    let ready = if report.ready { "yes" } else { "NO" };
    let mut row = vec![
        report.node.clone(),
        ready.to_owned(),
        report.agent.clone().unwrap_or_else(|| "silent".to_owned()),
        addresses(&report.ranges),
        report.mtu.map_or(NONE.to_owned(), |mtu| mtu.to_string()),
        (report.peers).map_or(NONE.to_owned(), |peers| {
            format!("{}/{}", peers.answer, peers.all)
        }),
        if count == 0 {
            NONE.to_owned()
        } else {
            count.to_string()
        },
    ];
    if is_wide {
        row.push(report.pod_cidrs.join(","));
    }
    row
}

/// Used addresses of all, for each range. Nobody fills a range of IPv6.
fn addresses(ranges: &[RangeUse]) -> String {
    let of_range = |range: &RangeUse| match range.used.saturating_add(range.free) {
        all if all > u64::from(u32::MAX) => range.used.to_string(),
        all => format!("{}/{all}", range.used),
    };
    let texts: Vec<String> = ranges.iter().map(of_range).collect();
    if texts.is_empty() {
        NONE.to_owned()
    } else {
        texts.join(",")
    }
}

/// Prints each kind of problem once, the worst first: what is wrong and where, and its cure.
fn problems(answers: &[Answered<Report>], page: &mut Page<'_>) -> io::Result<()> {
    let all = reports(answers).flat_map(|(_, report)| {
        let with_node = |problem| (problem, report.node.as_str());
        report.problems.iter().map(with_node)
    });
    let kind = |one: &Found| (Reverse(one.effect), one.kind.clone(), one.cure.clone());
    let mut found: Vec<(&Found, &str)> = all.collect();
    found.sort_by_key(|(problem, _)| kind(problem));
    for alike in found.chunk_by(|(one, _), (other, _)| kind(one) == kind(other)) {
        let Some((first, _)) = alike.first() else {
            continue;
        };
        let (tone, what) = match first.effect {
            Effect::RunningPods => (Tone::Bad, "running pods are affected"),
            Effect::NewPods => (Tone::Bad, "new pods are not served"),
            Effect::Warning => (Tone::Warning, "warning"),
        };
        let kind = Some(&first.kind).filter(|kind| !kind.is_empty());
        let prefix = kind.map_or(String::new(), |kind| format!("{kind}: "));
        page.line("")?;
        page.toned(tone, &format!("{prefix}{what}"))?;
        let texts = alike
            .iter()
            .map(|(problem, node)| match problem.object.as_str() {
                "" => (problem.message.clone(), *node),
                object => (format!("{} ({object})", problem.message), *node),
            });
        for (text, nodes) in grouped(texts) {
            page.line(&format!("  on {}: {text}", named(&nodes)))?;
        }
        if !first.cure.is_empty() {
            page.line(&format!("  → {}", first.cure))?;
        }
    }
    Ok(())
}
