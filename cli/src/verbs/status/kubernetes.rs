//! What Kubernetes says of the nodes by itself, without asking an agent.

use std::collections::BTreeMap;

use anyhow::Result;

use serde_json::Value;

use crate::cluster::places::text;
use crate::cluster::{Cluster, ClusterError, Place};
use crate::output::{Page, Tone};

/// Maximum number of warnings that are shown.
const MAX_WARNINGS: usize = 5;

/// Prints what Nodes, pods and Events say.
///
/// # Errors
/// The cluster cannot be asked, or it cannot be written.
pub(super) fn show(cluster: &Cluster, page: &mut Page<'_>) -> Result<()> {
    let places = cluster.places()?;
    page.line(&summary(&places))?;
    for line in places.iter().filter_map(trouble) {
        page.toned(Tone::Bad, &line)?;
    }
    match cluster.warnings() {
        Ok(events) => {
            let lines = warnings(&events, &places);
            for line in lines.iter().take(MAX_WARNINGS) {
                page.toned(Tone::Warning, line)?;
            }
            if let Some(more) = lines
                .len()
                .checked_sub(MAX_WARNINGS)
                .filter(|more| *more > 0)
            {
                page.line(&format!(
                    "{more} more warnings: kubectl get events --all-namespaces"
                ))?;
            }
        }
        // Not everybody may read Events; the agents say what is wrong, too.
        Err(error @ ClusterError::Forbidden { .. }) => page.line(&format!("no Events: {error}"))?,
        Err(error) => return Err(error.into()),
    }
    page.line("")?;
    Ok(())
}

/// One line on all nodes.
fn summary(places: &[Place]) -> String {
    let count = |is_so: fn(&Place) -> bool| places.iter().filter(|place| is_so(place)).count();
    let ready = count(|place| place.unready.is_none());
    let agents = count(|place| place.agent.is_some());
    let ready_agents = count(|place| place.agent.as_ref().is_some_and(|agent| agent.ready));
    format!(
        "Kubernetes: {} Nodes, {ready} Ready; {agents} agents, {ready_agents} Ready",
        places.len()
    )
}

/// What is wrong at a place.
fn trouble(place: &Place) -> Option<String> {
    let node = &place.node;
    let agent = match &place.agent {
        None => Some("it has no agent".to_owned()),
        Some(agent) => agent.down.clone(),
    };
    let both: Vec<String> = place.unready.clone().into_iter().chain(agent).collect();
    (!both.is_empty()).then(|| format!("Node {node}: {}", both.join("; ")))
}

/// The warnings that are about these Nodes or their agents, each once. What happened before an
/// agent became ready is past.
fn warnings(events: &[Value], places: &[Place]) -> Vec<String> {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for event in events {
        let (kind, name) = (
            text(event, "/involvedObject/kind"),
            text(event, "/involvedObject/name"),
        );
        let times = ["/lastTimestamp", "/eventTime", "/series/lastObservedTime"];
        let last = times.map(|time| text(event, time)).into_iter().max();
        let is_past = |place: &&Place| {
            let agent = place.agent.as_ref();
            // Times of the API are of one form and in UTC, so that their texts are in order.
            agent.is_some_and(|agent| agent.ready && last < Some(&agent.since))
        };
        let is_meant = places
            .iter()
            .filter(|place| !is_past(place))
            .any(|place| match kind {
                "Node" => name == place.node,
                "Pod" => place.agent.as_ref().is_some_and(|agent| agent.pod == name),
                _ => false,
            });
        if is_meant {
            let (reason, message) = (text(event, "/reason"), text(event, "/message"));
            let line = format!("{kind} {name}: {reason}: {message}");
            *lines.entry(line).or_default() += event["count"].as_u64().unwrap_or(1);
        }
    }
    let line = |(line, count): (String, u64)| match count {
        1 => line,
        count => format!("{line} ({count} times)"),
    };
    lines.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::Agent;

    fn place(node: &str, unready: Option<&str>, down: Option<Option<&str>>) -> Place {
        let agent = down.map(|down| Agent {
            node: node.to_owned(),
            namespace: "kube-system".to_owned(),
            pod: format!("tweed-{node}"),
            run_dir: "/run/tweed".to_owned(),
            ready: down.is_none(),
            since: "2026-11-30T01:00:00Z".to_owned(),
            version: "0.1.0".to_owned(),
            down: down.map(ToOwned::to_owned),
        });
        Place {
            node: node.to_owned(),
            unready: unready.map(ToOwned::to_owned),
            agent,
            pod_cidrs: Vec::new(),
        }
    }

    #[test]
    fn each_trouble_is_a_line_and_all_nodes_are_one() {
        let places = [
            place("a", None, Some(None)),
            place(
                "b",
                Some("Ready is Unknown: gone"),
                Some(Some("pod tweed-b is Error")),
            ),
            place("c", None, None),
        ];
        assert_eq!(
            summary(&places),
            "Kubernetes: 3 Nodes, 2 Ready; 2 agents, 1 Ready"
        );
        let lines: Vec<String> = places.iter().filter_map(trouble).collect();
        assert_eq!(
            lines,
            [
                "Node b: Ready is Unknown: gone; pod tweed-b is Error",
                "Node c: it has no agent"
            ]
        );
    }

    #[test]
    fn a_warning_is_shown_once_and_only_if_it_is_about_these_nodes() {
        let event = |kind: &str, name: &str, count: u64| {
            json!({
                "involvedObject": { "kind": kind, "name": name },
                "reason": "NoPodCidr", "message": "none", "count": count,
            })
        };
        let events = [
            event("Node", "a", 2),
            event("Node", "a", 1),
            event("Node", "other", 1),
            event("Pod", "tweed-a", 1),
            event("Pod", "coredns", 1),
        ];
        let lines = warnings(&events, &[place("a", None, Some(Some("down")))]);
        let expected = [
            "Node a: NoPodCidr: none (3 times)",
            "Pod tweed-a: NoPodCidr: none",
        ];
        assert_eq!(lines, expected);
        let ready = [place("a", None, Some(None))];
        let shown_of = |time: &str| {
            let mut fails = event("Pod", "tweed-a", 3);
            fails["lastTimestamp"] = time.into();
            warnings(&[fails], &ready).len()
        };
        assert_eq!(shown_of("2026-11-30T00:59:59Z"), 0);
        assert_eq!(shown_of("2026-11-30T01:00:01Z"), 1);
    }
}
