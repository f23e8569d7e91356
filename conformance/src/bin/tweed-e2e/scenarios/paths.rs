//! Every path between pods, nodes and the world, and the source that the other
//! end sees: by TCP and by UDP.

use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;
use tweed_lab::{Background, OUTSIDE, wait_until};

use super::{Begins, Scenario, Tier};
use crate::stage::Stage;

pub const SCENARIO: Scenario = Scenario {
    name: "paths",
    shows: "pods, nodes and the world reach each other, and see the source that is promised",
    tier: Tier::Ci,
    begins: Begins::Ready,
    run,
};

const POD_LIMIT: Duration = Duration::from_secs(120);

/// Two pods on each node, and one in its network namespace.
const SERVERS: [(&str, bool); 3] = [("one", false), ("two", false), ("host", true)];

/// Not those of a pod, which a node may have in use itself.
const HOST_PORTS: Ports = Ports {
    tcp: 18080,
    udp: 18081,
};

const POD_PORTS: Ports = Ports {
    tcp: 8080,
    udp: 8081,
};

#[derive(Clone, Copy)]
struct Ports {
    tcp: u16,
    udp: u16,
}

/// A server that tells who asks, on a node or outside.
struct End {
    /// Its pod; none for the one outside.
    pod: Option<String>,
    /// Its node; none for the one outside.
    node: Option<String>,
    address: IpAddr,
    is_host: bool,
}

impl End {
    fn ports(&self) -> Ports {
        if self.is_host { HOST_PORTS } else { POD_PORTS }
    }
}

fn run(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    let nodes = stage.cluster.nodes().count();
    for (name, is_host) in SERVERS {
        stage.apply(&servers(name, is_host))?;
    }
    let mut ends = Vec::new();
    for (name, is_host) in SERVERS {
        for pod in stage.wait_all_ready(&format!("app={name}"), nodes, POD_LIMIT)? {
            ends.push(end(&pod, is_host)?);
        }
    }
    let outside = outside(stage)?;
    ends.push(End {
        pod: None,
        node: None,
        address: OUTSIDE.into(),
        is_host: true,
    });

    let mut paths = 0;
    let mut wrong = Vec::new();
    for from in ends.iter().filter(|end| end.pod.is_some()) {
        let (count, failures) = ask_all(stage, from, &ends)?;
        paths += count;
        wrong.extend(failures);
    }
    drop(outside);
    ensure!(
        wrong.is_empty(),
        "{} of {paths} paths:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    let dropped = stage.cluster.underlay().foreign_frames()?;
    ensure!(
        dropped == 0,
        "{dropped} frames left a node with a foreign source"
    );
    stage.measure("paths, each by TCP and UDP", (paths / 2).to_string());
    Ok(())
}

/// Asks every end but itself from one, both ways; how many answers there should
/// be, and what is wrong with which.
fn ask_all(stage: &Stage<'_>, from: &End, ends: &[End]) -> anyhow::Result<(usize, Vec<String>)> {
    let name = from.pod.as_deref().context("only a pod asks")?;
    let others: Vec<&End> = ends
        .iter()
        .filter(|end| end.address != from.address)
        .collect();
    let answers = stage.exec(name, ["sh", "-c", &questions(&others)])?;
    let mut failures = Vec::new();
    for to in &others {
        let expected = expected_source(stage, from, to)?;
        for transport in ["tcp", "udp"] {
            let question = format!("{transport} {} ", to.address);
            let seen = answers
                .lines()
                .find_map(|line| line.strip_prefix(&question));
            let source = seen
                .and_then(|seen| seen.rsplit_once(':'))
                .map(|(source, _)| source);
            if source != Some(expected.as_str()) {
                let to_name = to.pod.as_deref().unwrap_or("the host outside");
                let seen = seen.unwrap_or("nothing");
                failures.push(format!(
                    "{transport} from {name} ({}) to {to_name} ({}): seen is {seen}, not {expected}",
                    from.address, to.address
                ));
            }
        }
    }
    Ok((2 * others.len(), failures))
}

/// Shell that asks all at once; a line for each answer.
fn questions(ends: &[&End]) -> String {
    let mut text = String::new();
    for end in ends {
        let (address, Ports { tcp, udp }) = (end.address, end.ports());
        // Writing to a String cannot fail. `nc` waits for a second answer.
        let _ = writeln!(
            text,
            "(seen=$(curl -s -m 10 http://{address}:{tcp}/clientip); echo \"tcp {address} $seen\") &\n\
             (seen=$(echo clientip | nc -u -w 2 {address} {udp}); echo \"udp {address} $seen\") &"
        );
    }
    text + "wait\n"
}

/// Whom `to` has to see when `from` asks: the promises of tweed over VXLAN.
fn expected_source(stage: &Stage<'_>, from: &End, to: &End) -> anyhow::Result<String> {
    let name = from.node.as_deref().context("only a node's end asks")?;
    let node = stage.cluster.node(name)?.spec().address.to_string();
    let is_same_node = from.node == to.node;
    Ok(match (from.is_host, to.is_host) {
        // Without NAT, and so is a pod to its own node.
        (false, false) => from.address.to_string(),
        (false, true) if is_same_node => from.address.to_string(),
        (false, true) => node,
        (true, true) => node,
        (true, false) if is_same_node => node,
        (true, false) => stage.overlay_address(name)?.to_string(),
    })
}

fn end(pod: &Value, is_host: bool) -> anyhow::Result<End> {
    let text = |value: &Value| {
        value
            .as_str()
            .map(str::to_owned)
            .context("a pod without it")
    };
    Ok(End {
        pod: Some(text(&pod["metadata"]["name"])?),
        node: Some(text(&pod["spec"]["nodeName"])?),
        address: text(&pod["status"]["podIP"])?.parse()?,
        is_host,
    })
}

/// The same server on the host outside.
fn outside(stage: &Stage<'_>) -> anyhow::Result<Background> {
    let lab = stage.cluster.lab();
    let netns = stage.cluster.underlay().outside();
    let program = stage.cluster.program("agnhost")?;
    let mut command = netns.command(program);
    command.args(arguments(HOST_PORTS));
    let server = Background::start(lab, &mut command, &lab.folder().join("outside.log"))?;
    wait_until("the server outside", Duration::from_secs(20), || {
        let sockets = netns.sh("ss -Hltun").map_err(|error| error.chain())?;
        let ports = [HOST_PORTS.tcp, HOST_PORTS.udp].map(|port| format!(":{port} "));
        let is_up = ports.iter().all(|port| sockets.contains(port));
        is_up.then_some(()).ok_or(sockets)
    })?;
    Ok(server)
}

fn arguments(ports: Ports) -> [String; 3] {
    [
        "netexec".to_owned(),
        format!("--http-port={}", ports.tcp),
        format!("--udp-port={}", ports.udp),
    ]
}

fn servers(name: &str, is_host: bool) -> String {
    let ports = if is_host { HOST_PORTS } else { POD_PORTS };
    let arguments = arguments(ports).join(", ");
    format!(
        r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {{ name: {name} }}
spec:
  selector: {{ matchLabels: {{ app: {name} }} }}
  template:
    metadata: {{ labels: {{ app: {name} }} }}
    spec:
      hostNetwork: {is_host}
      tolerations: [{{ operator: Exists }}]
      terminationGracePeriodSeconds: 1
      containers:
        - name: server
          image: localhost/agnhost:lab
          args: [{arguments}]
          readinessProbe: {{ httpGet: {{ path: /healthz, port: {tcp} }}, periodSeconds: 1 }}
"#,
        tcp = ports.tcp
    )
}
