//! CoreDNS runs as pods, and names resolve on every node, by UDP and by TCP.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tweed_lab_kubernetes::SERVICE_OF_API;

use super::{Precondition, Scenario};
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;

pub const SCENARIO: Scenario = Scenario {
    name: "names",
    shows: "CoreDNS runs as pods, and names resolve in pods and in the nodes' own network",
    precondition: Precondition::Ready,
    run,
};

/// Maximum time until pods have started and CoreDNS knows all of them; in its first
/// second it may not know all.
const LIMIT: Duration = Duration::from_secs(120);

const COREDNS: &str = include_str!("coredns.yaml");
const CLIENTS: &str = include_str!("clients.yaml");

/// Runs CoreDNS in the fixture's namespace and resolves names in pods of all nodes.
pub fn run(fixture: &mut Fixture<'_>) -> Result<()> {
    let result = run_steps(fixture);
    let result = fixture.report_failure(result);
    // It is not deleted with the namespace.
    let binding = format!("clusterrolebinding {}", fixture.namespace());
    let line = format!("delete {binding} --ignore-not-found");
    let cleared = fixture.kubectl().sh(&line).map(drop);
    result.and(cleared.map_err(Into::into))
}

fn run_steps(fixture: &mut Fixture<'_>) -> Result<()> {
    let nodes = fixture.cluster.nodes().count();
    fixture.apply(&COREDNS.replace("NAMESPACE", fixture.namespace()))?;
    fixture.apply(CLIENTS)?;
    let replicas = fixture.wait_all_ready("app=coredns", 2, LIMIT)?;
    let web = endpoints(&fixture.wait_all_ready("app=web", nodes, LIMIT)?)?;
    let hosts = endpoints(&fixture.wait_all_ready("app=host", nodes, LIMIT)?)?;

    let names = names(fixture, &web)?;
    let script = script(&names);
    let servers: Vec<&str> = web.iter().map(|pod| pod.name.as_str()).collect();
    for client in web.iter().chain(&hosts) {
        let what = format!("correct answers for {}", client.name);
        fixture.kubectl().wait_for(&what, LIMIT, || {
            let words = ["sh", "-c", &script];
            let answers = fixture.exec(&client.name, words).map_err(|e| e.chain())?;
            check(&answers, &names, &servers)
        })?;
    }
    let clients = web.len() + hosts.len();
    let what = format!("names that resolved, in each of {clients} pods, by UDP and by TCP");
    fixture.measure(&what, names.len().to_string());

    let mut sources = BTreeSet::new();
    for replica in &replicas {
        let name = replica["metadata"]["name"].as_str().unwrap_or_default();
        let seen = sources_in(&fixture.sh(&format!("logs {name}"))?);
        ensure!(!seen.is_empty(), "{name} got no request");
        sources.extend(seen);
    }
    check_sources(fixture, sources, &web)?;
    let what = "pods that CoreDNS saw by their own addresses";
    fixture.measure(what, web.len().to_string());
    Ok(())
}

fn endpoints(pods: &[Value]) -> Result<Vec<Endpoint>> {
    pods.iter().map(Endpoint::pod).collect()
}

/// Names and the addresses to which they must resolve.
type Names = BTreeMap<String, BTreeSet<IpAddr>>;

fn names(fixture: &Fixture<'_>, web: &[Endpoint]) -> Result<Names> {
    let namespace = fixture.namespace();
    let service = fixture
        .kubectl()
        .json(&format!("get service web --namespace {namespace}"))?;
    let cluster_ip = service["spec"]["clusterIP"].as_str();
    let parsed = cluster_ip.and_then(|text| text.parse().ok());
    let address = parsed.with_context(|| format!("no address in {service}"))?;
    let pods = web.iter().map(|pod| pod.address).collect();
    Ok(BTreeMap::from([
        (
            full("kubernetes", "default"),
            BTreeSet::from([SERVICE_OF_API.into()]),
        ),
        (full("web", namespace), BTreeSet::from([address])),
        (full("headless", namespace), pods),
    ]))
}

fn full(service: &str, namespace: &str) -> String {
    format!("{service}.{namespace}.svc.cluster.local")
}

/// A shell script that resolves all names, and connects to a short one by UDP and by
/// TCP. It prints one line for each.
fn script(names: &Names) -> String {
    let lookups = names
        .keys()
        .map(|name| format!("echo {name} $(nslookup -type=a {name} | sed -n 's/^Address: //p')\n"));
    let curl = "curl --silent --max-time 10 http://web/hostname";
    lookups
        .chain([
            format!("echo udp $({curl})\n"),
            // The option of the C library for DNS over TCP.
            format!("echo tcp $(RES_OPTIONS=use-vc {curl})\n"),
        ])
        .collect()
}

/// Checks the output of that script: names resolve to their addresses, and the short
/// name leads to one of the servers.
fn check(output: &str, names: &Names, servers: &[&str]) -> Result<(), String> {
    let answers: BTreeMap<&str, BTreeSet<&str>> = output
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.collect()))
        })
        .collect();
    let misdirected = names.iter().filter_map(|(name, to)| {
        let texts: BTreeSet<String> = to.iter().map(IpAddr::to_string).collect();
        let expected = texts.iter().map(String::as_str).collect();
        (answers.get(name.as_str()) != Some(&expected)).then_some(name.as_str())
    });
    let unreached = ["udp", "tcp"].into_iter().filter(|by| {
        let reached = answers.get(by).map(|one| Vec::from_iter(one.clone()));
        !reached.is_some_and(|one| one.len() == 1 && servers.contains(&one[0]))
    });
    let wrong: Vec<&str> = misdirected.chain(unreached).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("wrong for {wrong:?}: {answers:?}"))
}

/// The clients in a log of CoreDNS, each with its transport. The lines are like
/// `[INFO] 10.244.0.4:52794 - 47379 "A IN web.default.svc.cluster.local. udp 49 …`.
fn sources_in(log: &str) -> BTreeSet<(IpAddr, String)> {
    log.lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix("[INFO] ")?.split(' ');
            let (address, _) = words.next()?.rsplit_once(':')?;
            Some((address.parse().ok()?, words.nth(5)?.to_owned()))
        })
        .collect()
}

/// Checks that CoreDNS saw pods by their own addresses, and nodes by their address on
/// the underlay or on the overlay.
fn check_sources(
    fixture: &Fixture<'_>,
    mut sources: BTreeSet<(IpAddr, String)>,
    web: &[Endpoint],
) -> Result<()> {
    for transport in ["udp", "tcp"].map(str::to_owned) {
        for pod in web {
            ensure!(
                sources.remove(&(pod.address, transport.clone())),
                "{} ({}) is not among the clients that CoreDNS saw by {transport}: {sources:?}",
                pod.name,
                pod.address
            );
        }
        for node in fixture.cluster.nodes() {
            let own = [
                node.spec().address.into(),
                fixture.overlay_address(node.name())?,
            ];
            let seen = own.map(|address| sources.remove(&(address, transport.clone())));
            ensure!(
                seen.contains(&true),
                "{} ({own:?}) is not among the clients that CoreDNS saw by {transport}: {sources:?}",
                node.name()
            );
        }
    }
    ensure!(
        sources.is_empty(),
        "no pod or node has the addresses {sources:?}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_log_lines_of_requests_have_a_source() {
        let log = "CoreDNS-1.14.7\n\
            [INFO] 10.244.0.4:58489 - 64058 \"A IN web.cluster.local. udp 54 false 512\" NOERROR\n\
            [INFO] plugin/ready: Still waiting on: \"kubernetes\"\n";
        let sources = sources_in(log);
        let expected = ("10.244.0.4".parse().unwrap(), "udp".to_owned());
        assert_eq!(sources, BTreeSet::from([expected]));
    }

    #[test]
    fn a_name_with_missing_or_additional_answers_is_an_error() {
        let to = BTreeSet::from(["10.96.0.1".parse().unwrap()]);
        let names = BTreeMap::from([("a".to_owned(), to)]);
        let reached = "udp web-1\ntcp web-1";
        for (answer, is_right) in [
            ("a 10.96.0.1", true),
            ("a", false),
            ("b 10.96.0.1", false),
            ("a 10.96.0.1 10.96.0.2", false),
        ] {
            let checked = check(&format!("{answer}\n{reached}"), &names, &["web-1"]);
            assert_eq!(checked.is_ok(), is_right, "{answer}: {checked:?}");
        }
    }

    #[test]
    fn a_short_name_must_lead_to_a_server_by_both_transports() {
        let names = BTreeMap::new();
        assert!(check("udp web-1\ntcp web-2", &names, &["web-1", "web-2"]).is_ok());
        for answers in ["udp web-1", "udp web-1\ntcp", "udp web-1\ntcp web-2"] {
            assert!(check(answers, &names, &["web-1"]).is_err(), "{answers}");
        }
    }
}
