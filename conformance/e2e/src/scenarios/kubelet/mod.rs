//! What a kubelet does with a pod's network: probes, and the three commands by
//! which people look into pods.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tweed_lab::{Background, Transport, wait_until};
use tweed_lab_kubernetes::{CONTROL, condition};

use super::{Begins, Scenario};
use crate::ask::ask;
use crate::place::Place;
use crate::stage::Stage;

pub const SCENARIO: Scenario = Scenario {
    name: "kubelet",
    shows: "HTTP and TCP probes tell well pods from others; exec, logs and port-forward work",
    begins: Begins::Ready,
    run,
};

const LIMIT: Duration = Duration::from_secs(120);

const OBJECTS: &str = include_str!("objects.yaml");

/// Pods that are not well, and the words of kubelet for it: the server itself has
/// said so, and the question was not lost.
const ILL: [(&str, &str); 3] = [
    ("http-says-no", "HTTP probe failed with statuscode: 503"),
    ("tcp-says-no", "connect: connection refused"),
    ("dies", "HTTP probe failed with statuscode: 503"),
];

fn run(stage: &mut Stage<'_>) -> Result<()> {
    let nodes = stage.cluster.nodes().count();
    stage.apply(OBJECTS)?;
    let well = stage.wait_all_ready("app=well", nodes, LIMIT)?;
    let well: Vec<Place> = well.iter().map(Place::pod).collect::<Result<_>>()?;
    for (pod, words) in ILL {
        wait_for_event(stage, pod, words)?;
    }
    for pod in ["http-says-no", "tcp-says-no"] {
        let object = pod_object(stage, pod)?;
        ensure!(
            condition(&object, "Ready") == Some("False"),
            "{pod} is Ready"
        );
        ensure!(restarts(&object) == 0, "{pod} was started again");
    }
    let what = "the second start of the pod that is not alive";
    stage.kubectl().wait_for(what, LIMIT, || {
        let object = pod_object(stage, "dies").map_err(|error| format!("{error:#}"))?;
        if restarts(&object) > 0 {
            Ok(())
        } else {
            Err(object["status"].to_string())
        }
    })?;
    for pod in &well {
        let object = pod_object(stage, &pod.name)?;
        ensure!(restarts(&object) == 0, "{} was started again", pod.name);
        look_into(stage, pod).with_context(|| pod.name.clone())?;
    }
    let what = "pods probed by HTTP and TCP, and looked into by exec, logs and port-forward";
    stage.measure(what, well.len().to_string());
    Ok(())
}

fn pod_object(stage: &Stage<'_>, pod: &str) -> Result<serde_json::Value> {
    let line = format!("get pod {pod} --namespace {}", stage.namespace());
    Ok(stage.kubectl().json(&line)?)
}

fn restarts(pod: &serde_json::Value) -> u64 {
    let count = &pod["status"]["containerStatuses"][0]["restartCount"];
    count.as_u64().unwrap_or(0)
}

/// Waits until kubelet says so of a pod.
fn wait_for_event(stage: &Stage<'_>, pod: &str, words: &str) -> Result<()> {
    let line = format!(
        "events --namespace {} --field-selector reason=Unhealthy,involvedObject.name={pod}",
        stage.namespace()
    );
    let what = format!("an event of {pod} with the words {words:?}");
    Ok(stage.kubectl().wait_for(&what, LIMIT, || {
        let events = stage.kubectl().list(&line).map_err(|error| error.chain())?;
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

fn look_into(stage: &Stage<'_>, pod: &Place) -> Result<()> {
    let name = &pod.name;
    let told = stage.exec(name, ["hostname"])?;
    ensure!(told.trim() == name, "exec hostname: {told:?}");

    let log = stage.sh(&format!("logs {name}"))?;
    ensure!(
        log.contains("Started HTTP server on port 8080"),
        "logs: {log:?}"
    );

    let (_forward, port) = forward(stage, name)?;
    let here = Place::node(stage.cluster.node(CONTROL)?);
    let answer = ask(
        &here,
        Transport::Tcp,
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
    )?;
    ensure!(answer.server == *name, "port-forward: {answer:?}");
    // It comes from within the pod.
    ensure!(
        answer.seen == IpAddr::from(Ipv4Addr::LOCALHOST),
        "port-forward: {answer:?}"
    );
    Ok(())
}

/// A port-forward to a pod while it is held, and its port where kubectl runs: at
/// the control plane.
fn forward(stage: &Stage<'_>, pod: &str) -> Result<(Background, u16)> {
    let lab = stage.cluster.lab();
    let words = [
        "port-forward",
        "--namespace",
        stage.namespace(),
        pod,
        ":8080",
    ];
    let mut command = stage.kubectl().command(words);
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
    fn the_port_is_known_once_its_line_is_whole() {
        assert_eq!(port_in(""), None);
        assert_eq!(port_in("Forwarding from 127.0.0.1:394"), None);
        let line = "Forwarding from 127.0.0.1:39451 -> 8080\nForwarding from [::1]:39451 -> 8080";
        assert_eq!(port_in(line), Some(39451));
    }
}
