//! What kubelet does over a pod's network: probes, and the commands exec, logs and
//! port-forward.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tweed_lab::{Background, Transport, wait_until};
use tweed_lab_kubernetes::{CONTROL, condition};

use super::{Precondition, Scenario};
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;
use crate::netexec::request;

pub const SCENARIO: Scenario = Scenario {
    name: "kubelet",
    shows: "HTTP and TCP probes find healthy and unhealthy pods; exec, logs and port-forward work",
    precondition: Precondition::Ready,
    run,
};

/// Maximum time until each expected state is reached.
const LIMIT: Duration = Duration::from_secs(120);

const OBJECTS: &str = include_str!("objects.yaml");

/// Unhealthy pods, and kubelet's message about each. It shows that the server itself
/// has refused, and that the probe was not lost.
const UNHEALTHY: [(&str, &str); 3] = [
    ("http-unhealthy", "HTTP probe failed with statuscode: 503"),
    ("tcp-unhealthy", "connect: connection refused"),
    ("not-alive", "HTTP probe failed with statuscode: 503"),
];

fn run(fixture: &mut Fixture<'_>) -> Result<()> {
    let nodes = fixture.cluster.nodes().count();
    fixture.apply(OBJECTS)?;
    let ready = fixture.wait_all_ready("app=healthy", nodes, LIMIT)?;
    let healthy: Vec<Endpoint> = ready.iter().map(Endpoint::pod).collect::<Result<_>>()?;
    for (pod, words) in UNHEALTHY {
        wait_for_event(fixture, pod, words)?;
    }
    for pod in ["http-unhealthy", "tcp-unhealthy"] {
        let object = pod_object(fixture, pod)?;
        ensure!(
            condition(&object, "Ready") == Some("False"),
            "{pod} is Ready"
        );
        ensure!(restarts(&object) == 0, "{pod} was restarted");
    }
    let what = "the restart of the pod whose liveness probe fails";
    fixture.kubectl().wait_for(what, LIMIT, || {
        let object = pod_object(fixture, "not-alive").map_err(|error| format!("{error:#}"))?;
        if restarts(&object) > 0 {
            Ok(())
        } else {
            Err(object["status"].to_string())
        }
    })?;
    for pod in &healthy {
        let object = pod_object(fixture, &pod.name)?;
        ensure!(restarts(&object) == 0, "{} was restarted", pod.name);
        check_commands(fixture, pod).with_context(|| pod.name.clone())?;
    }
    let what = "pods probed by HTTP and TCP, and accessed by exec, logs and port-forward";
    fixture.measure(what, healthy.len().to_string());
    Ok(())
}

fn pod_object(fixture: &Fixture<'_>, pod: &str) -> Result<serde_json::Value> {
    let line = format!("get pod {pod} --namespace {}", fixture.namespace());
    Ok(fixture.kubectl().json(&line)?)
}

fn restarts(pod: &serde_json::Value) -> u64 {
    let count = &pod["status"]["containerStatuses"][0]["restartCount"];
    count.as_u64().unwrap_or(0)
}

/// Waits for an Event of kubelet about a pod that contains these words.
fn wait_for_event(fixture: &Fixture<'_>, pod: &str, words: &str) -> Result<()> {
    let line = format!(
        "events --namespace {} --field-selector reason=Unhealthy,involvedObject.name={pod}",
        fixture.namespace()
    );
    let what = format!("an event of {pod} with the words {words:?}");
    Ok(fixture.kubectl().wait_for(&what, LIMIT, || {
        let events = fixture
            .kubectl()
            .list(&line)
            .map_err(|error| error.chain())?;
        let messages: Vec<&str> = events
            .iter()
            .filter_map(|event| event["message"].as_str())
            .collect();
        if messages.iter().any(|message| message.contains(words)) {
            return Ok(());
        }
        Err(format!("{messages:?}"))
    })?)
}

fn check_commands(fixture: &Fixture<'_>, pod: &Endpoint) -> Result<()> {
    let name = &pod.name;
    let printed = fixture.exec(name, ["hostname"])?;
    ensure!(printed.trim() == name, "exec hostname: {printed:?}");

    let log = fixture.sh(&format!("logs {name}"))?;
    ensure!(
        log.contains("Started HTTP server on port 8080"),
        "logs: {log:?}"
    );

    let (_forward, port) = forward(fixture, name)?;
    let here = Endpoint::node(fixture.cluster.node(CONTROL)?);
    let answer = request(
        &here,
        Transport::Tcp,
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
    )?;
    ensure!(answer.server == *name, "port-forward: {answer:?}");
    // kubelet connects from inside the pod.
    ensure!(
        answer.client == IpAddr::from(Ipv4Addr::LOCALHOST),
        "port-forward: {answer:?}"
    );
    Ok(())
}

/// Starts a port-forward to a pod. Returns its process and its port on the
/// control-plane node, where kubectl runs.
fn forward(fixture: &Fixture<'_>, pod: &str) -> Result<(Background, u16)> {
    let lab = fixture.cluster.lab();
    let words = [
        "port-forward",
        "--namespace",
        fixture.namespace(),
        pod,
        ":8080",
    ];
    let mut command = fixture.kubectl().command(words);
    let log = lab.folder().join(format!("port-forward-{pod}.log"));
    let forward = Background::start(lab, &mut command, &log)?;
    let port = wait_until("the port of kubectl port-forward", LIMIT, || {
        let output = forward.output();
        port_in(&output).ok_or(output)
    })?;
    Ok((forward, port))
}

/// The port in `Forwarding from 127.0.0.1:39451 -> 8080`.
fn port_in(output: &str) -> Option<u16> {
    let (_, rest) = output.split_once("127.0.0.1:")?;
    let (port, _) = rest.split_once(' ')?;
    port.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_only_from_a_complete_line() {
        assert_eq!(port_in(""), None);
        assert_eq!(port_in("Forwarding from 127.0.0.1:394"), None);
        let line = "Forwarding from 127.0.0.1:39451 -> 8080\nForwarding from [::1]:39451 -> 8080";
        assert_eq!(port_in(line), Some(39451));
    }
}
