//! CoreDNS as pods: names resolve from every node, by UDP and by TCP.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tweed_lab_kubernetes::SERVICE_OF_API;

use super::{Begins, Scenario};
use crate::place::Place;
use crate::stage::Stage;

pub const SCENARIO: Scenario = Scenario {
    name: "names",
    shows: "CoreDNS runs as pods, and names resolve in pods and in the nodes' own network",
    begins: Begins::Ready,
    run,
};

/// For pods to start, and for CoreDNS to know of all: in its first second it may
/// not.
const LIMIT: Duration = Duration::from_secs(120);

const COREDNS: &str = include_str!("coredns.yaml");
const ASKERS: &str = include_str!("askers.yaml");

fn run(stage: &mut Stage<'_>) -> Result<()> {
    let played = play(stage);
    let played = stage.witness(played);
    // It is in no namespace.
    let binding = format!("clusterrolebinding {}", stage.namespace());
    let line = format!("delete {binding} --ignore-not-found");
    let cleared = stage.kubectl().sh(&line).map(drop);
    played.and(cleared.map_err(Into::into))
}

fn play(stage: &mut Stage<'_>) -> Result<()> {
    let nodes = stage.cluster.nodes().count();
    stage.apply(COREDNS)?;
    stage.apply(ASKERS)?;
    let replicas = stage.wait_all_ready("app=coredns", 2, LIMIT)?;
    let web = places(&stage.wait_all_ready("app=web", nodes, LIMIT)?)?;
    let hosts = places(&stage.wait_all_ready("app=host", nodes, LIMIT)?)?;

    let names = names(stage, &web)?;
    let script = script(&names);
    let servers: Vec<&str> = web.iter().map(|pod| pod.name.as_str()).collect();
    for asker in web.iter().chain(&hosts) {
        let what = format!("the right answers to {}", asker.name);
        stage.kubectl().wait_for(&what, LIMIT, || {
            let answers = stage.exec(&asker.name, ["sh", "-c", &script]);
            let answers = answers.map_err(|error| error.chain())?;
            check(&answers, &names, &servers)
        })?;
    }
    let askers = web.len() + hosts.len();
    let what = format!("names that resolved, in each of {askers} pods, by UDP and by TCP");
    stage.measure(&what, names.len().to_string());

    let mut sources = BTreeSet::new();
    for replica in &replicas {
        let name = replica["metadata"]["name"].as_str().unwrap_or_default();
        let seen = sources_in(&stage.sh(&format!("logs {name}"))?);
        ensure!(!seen.is_empty(), "{name} was asked nothing");
        sources.extend(seen);
    }
    check_sources(stage, sources, &web)?;
    let what = "pods that CoreDNS saw by their own addresses";
    stage.measure(what, web.len().to_string());
    Ok(())
}

fn places(pods: &[Value]) -> Result<Vec<Place>> {
    pods.iter().map(Place::pod).collect()
}

/// Names, and the addresses that they stand for.
type Names = BTreeMap<String, BTreeSet<IpAddr>>;

fn names(stage: &Stage<'_>, web: &[Place]) -> Result<Names> {
    let namespace = stage.namespace();
    let service = stage
        .kubectl()
        .json(&format!("get service web --namespace {namespace}"))?;
    let address = service["spec"]["clusterIP"].as_str();
    let address = address.and_then(|text| text.parse().ok());
    let address = address.with_context(|| format!("no address in {service}"))?;
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

/// Shell that resolves all names, and uses a short one as people do, by UDP and
/// by TCP; a line for each.
fn script(names: &Names) -> String {
    let ask = names
        .keys()
        .map(|name| format!("echo {name} $(nslookup -type=a {name} | sed -n 's/^Address: //p')\n"));
    let curl = "curl --silent --max-time 10 http://web/hostname";
    ask.chain([
        format!("echo udp $({curl})\n"),
        // The C library's option for it.
        format!("echo tcp $(RES_OPTIONS=use-vc {curl})\n"),
    ])
    .collect()
}

/// Makes sure of the answers to that script: names resolve to what they stand
/// for, and the short one leads to one of the servers.
fn check(answers: &str, names: &Names, servers: &[&str]) -> Result<(), String> {
    let answers: BTreeMap<&str, BTreeSet<&str>> = answers
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.collect()))
        })
        .collect();
    let wrong = names.iter().filter(|(name, to)| {
        let to: BTreeSet<String> = to.iter().map(IpAddr::to_string).collect();
        let to = to.iter().map(String::as_str).collect();
        answers.get(name.as_str()) != Some(&to)
    });
    let wrong = wrong.map(|(name, _)| name.as_str());
    let unreached = ["udp", "tcp"].into_iter().filter(|by| {
        let reached = answers.get(by).map(|one| Vec::from_iter(one.clone()));
        !reached.is_some_and(|one| one.len() == 1 && servers.contains(&one[0]))
    });
    let wrong: Vec<&str> = wrong.chain(unreached).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("wrong for {wrong:?}: {answers:?}"))
}

/// Who asked by which transport, as a log of CoreDNS has it: lines such as
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

/// Pods are seen by their own addresses, and the nodes by theirs: the node's or
/// the one that it has in the overlay.
fn check_sources(
    stage: &Stage<'_>,
    mut sources: BTreeSet<(IpAddr, String)>,
    web: &[Place],
) -> Result<()> {
    for transport in ["udp", "tcp"] {
        let transport = transport.to_owned();
        for pod in web {
            ensure!(
                sources.remove(&(pod.address, transport.clone())),
                "{} ({}) is not among those whom CoreDNS saw by {transport}: {sources:?}",
                pod.name,
                pod.address
            );
        }
        for node in stage.cluster.nodes() {
            let own = [
                node.spec().address.into(),
                stage.overlay_address(node.name())?,
            ];
            let seen = own.map(|address| sources.remove(&(address, transport.clone())));
            ensure!(
                seen.contains(&true),
                "{} ({own:?}) is not among those whom CoreDNS saw by {transport}: {sources:?}",
                node.name()
            );
        }
    }
    ensure!(sources.is_empty(), "nobody has the addresses {sources:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_questions_tell_of_a_source() {
        let log = "CoreDNS-1.14.7\n\
            [INFO] 10.244.0.4:58489 - 64058 \"A IN web.cluster.local. udp 54 false 512\" NOERROR\n\
            [INFO] plugin/ready: Still waiting on: \"kubernetes\"\n";
        let sources = sources_in(log);
        let expected = ("10.244.0.4".parse().unwrap(), "udp".to_owned());
        assert_eq!(sources, BTreeSet::from([expected]));
    }

    #[test]
    fn a_name_without_an_answer_or_with_one_too_many_is_named() {
        let to = BTreeSet::from(["10.96.0.1".parse().unwrap()]);
        let names = BTreeMap::from([("a".to_owned(), to)]);
        let reached = "udp web-1\ntcp web-1";
        for (answer, is_right) in [
            ("a 10.96.0.1", true),
            ("a", false),
            ("b 10.96.0.1", false),
            ("a 10.96.0.1 10.96.0.2", false),
        ] {
            let told = check(&format!("{answer}\n{reached}"), &names, &["web-1"]);
            assert_eq!(told.is_ok(), is_right, "{answer}: {told:?}");
        }
    }

    #[test]
    fn a_short_name_has_to_lead_to_a_server_by_both_transports() {
        let names = BTreeMap::new();
        assert!(check("udp web-1\ntcp web-2", &names, &["web-1", "web-2"]).is_ok());
        for answers in ["udp web-1", "udp web-1\ntcp", "udp web-1\ntcp web-2"] {
            assert!(check(answers, &names, &["web-1"]).is_err(), "{answers}");
        }
    }
}
