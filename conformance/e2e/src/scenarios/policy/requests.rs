//! What the agents request of the API server, as its audit log has it.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tweed_lab::wait_until;

use super::LIMIT;
use super::cluster_policy;
use super::installation;
use super::readyz;
use crate::fixture::Fixture;

/// A policy without peers.
const WITHOUT_PEERS: &str = r"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: { name: without-peers }
spec:
  podSelector: {}
  policyTypes: [Ingress]
";

/// What the agents say of a kind that the server does not have.
const LACKS: &str = "the API server has no clusternetworkpolicies";

/// The field selector of the pods of one node, as it stands in a request.
const OWN_NODE: &str = "fieldSelector=spec.nodeName%3D";

/// The requests of all agents since some moment.
pub struct Requests<'a> {
    fixture: &'a Fixture<'a>,
    /// The length of the audit log then, in lines.
    start: usize,
}

impl<'a> Requests<'a> {
    /// Those from now on.
    pub fn now(fixture: &'a Fixture<'_>) -> Result<Self> {
        let start = log(fixture)?.len();
        Ok(Self { fixture, start })
    }

    /// Checks that the agents that run now have made some, from their start on, but none of
    /// one of these resources.
    pub fn check_none_of(&self, resources: &[&str]) -> Result<()> {
        let agents = cluster_policy::agents(self.fixture)?;
        let is_running = |one: &Request| agents.iter().any(|(name, _)| *name == one.pod);
        let mut seen = self.seen()?;
        seen.retain(is_running);
        ensure!(!seen.is_empty(), "no request of {agents:?} is in the log");
        check_none_of(&seen, resources)
    }

    fn seen(&self) -> Result<Vec<Request>> {
        let lines = log(self.fixture)?.split_off(self.start);
        let parsed = lines.iter().map(|line| serde_json::from_str::<Value>(line));
        let events = parsed
            .collect::<Result<Vec<_>, _>>()
            .context("the audit log")?;
        Ok(events.iter().map(Request::of).collect())
    }

    /// Waits until a watch of this resource is among them, and returns them.
    fn with_watch_of(&self, resource: &str) -> Result<Vec<Request>> {
        let what = format!("the agents to watch {resource}");
        Ok(wait_until(&what, LIMIT, || {
            let seen = self.seen().map_err(|error| format!("{error:#}"))?;
            let is_one = |one: &Request| one.verb == "watch" && one.is_of(resource);
            let watches = seen.iter().any(is_one);
            watches.then_some(seen.clone()).ok_or(format!("{seen:?}"))
        })?)
    }
}

/// Agents that start while there is no policy request no pods and no namespaces. With a
/// policy that has no peers they request their own pods only.
///
/// They start while the server has ClusterNetworkPolicies of a version that they do not
/// know, and say so. From now on they log what they drop.
pub fn none_before_a_policy(fixture: &Fixture<'_>) -> Result<()> {
    let requests = Requests::now(fixture)?;
    cluster_policy::install_unknown_version(fixture)?;
    installation::log_drops(fixture)?;
    let policies = requests.with_watch_of("networkpolicies")?;
    fixture.log(&format!("before there is a policy: {}", text(&policies)));
    check_none_of(&policies, &["pods", "namespaces"])?;
    let answer = readyz::wait_for_all(fixture, "the unknown version", |lines| {
        is_ready_without_kind(lines, &[LACKS, cluster_policy::UNKNOWN_VERSION])
    })?;
    fixture.log(&format!("with an unknown version: {answer}"));
    cluster_policy::remove(fixture)?;

    fixture.apply(WITHOUT_PEERS)?;
    // A pod that the policy selects: without one, nobody's pods matter.
    fixture.apply(&crate::pods::pod("selected", worker(fixture)?).to_string())?;
    fixture.wait_ready("selected", LIMIT)?;
    let seen = requests.with_watch_of("pods")?;
    let others: Vec<&Request> = seen
        .iter()
        .filter(|one| one.is_of("pods") && !one.uri.contains(OWN_NODE))
        .collect();
    ensure!(
        others.is_empty(),
        "with a policy without peers, agents request other nodes' pods: {others:?}"
    );
    fixture.log(&format!("with a policy without peers: {}", text(&seen)));
    fixture.sh("delete pod selected --wait=false")?;
    fixture.sh("delete networkpolicies --all")?;
    Ok(())
}

/// While the server has no ClusterNetworkPolicies, the agents serve new pods and say so.
pub fn absence_is_noted(fixture: &Fixture<'_>) -> Result<()> {
    let answer = readyz::wait_for_all(fixture, "no definition", |lines| {
        is_ready_without_kind(lines, &[LACKS])
            && !lines
                .iter()
                .any(|line| line.contains(cluster_policy::UNKNOWN_VERSION))
    })?;
    fixture.log(&format!("without the definition: {answer}"));
    Ok(())
}

/// Whether `/readyz` says that new pods are served, and in one note all of this.
fn is_ready_without_kind(lines: &[&str], parts: &[&str]) -> bool {
    let is_ready = lines.first().is_some_and(|line| line.starts_with("ready "));
    let mut notes = lines.iter().filter(|line| line.starts_with("note: "));
    is_ready && notes.any(|note| parts.iter().all(|part| note.contains(part)))
}

/// After policies with peers, the agents have requested other nodes' pods too.
pub fn with_policies(fixture: &Fixture<'_>) -> Result<()> {
    let seen = Requests { fixture, start: 0 }.seen()?;
    ensure!(
        seen.iter()
            .any(|one| one.is_of("pods") && !one.uri.contains(OWN_NODE)),
        "no request of other nodes' pods stands in the log: {seen:?}"
    );
    fixture.log(&format!("with policies with peers: {}", text(&seen)));
    Ok(())
}

/// A request of an agent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    /// The name of the agent's pod.
    pod: String,
    verb: String,
    resource: String,
    uri: String,
}

impl Request {
    fn of(event: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pod = &event["user"]["extra"]["authentication.kubernetes.io/pod-name"][0];
        Self {
            pod: text(pod),
            verb: text(&event["verb"]),
            resource: text(&event["objectRef"]["resource"]),
            uri: text(&event["requestURI"]),
        }
    }

    fn is_of(&self, resource: &str) -> bool {
        self.resource == resource
    }
}

fn worker<'a>(fixture: &'a Fixture<'_>) -> Result<&'a str> {
    Ok(fixture
        .cluster
        .workers()
        .next()
        .context("no worker")?
        .name())
}

fn check_none_of(requests: &[Request], resources: &[&str]) -> Result<()> {
    for resource in resources {
        let found = requests.iter().find(|one| one.is_of(resource));
        ensure!(found.is_none(), "agents request {resource}: {found:?}");
    }
    Ok(())
}

/// The kinds of requests, each once.
fn text(requests: &[Request]) -> String {
    let each = requests.iter().map(|one| {
        let own = if one.uri.contains(OWN_NODE) {
            " of the own node"
        } else {
            ""
        };
        let what = match one.resource.as_str() {
            "" => &one.uri,
            resource => resource,
        };
        format!("{} {what}{own}", one.verb)
    });
    let kinds: BTreeSet<String> = each.collect();
    kinds.into_iter().collect::<Vec<_>>().join(", ")
}

/// The lines of the audit log; the last one may not be written completely yet.
fn log(fixture: &Fixture<'_>) -> Result<Vec<String>> {
    let path = fixture.cluster.audit_log();
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    Ok(whole.lines().map(str::to_owned).collect())
}
