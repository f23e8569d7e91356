//! The fast path beside the kernel's, with policies and Services on; and both beside two nodes
//! with tweed's rules, and a pair of machines without any. What is measured is time, and no
//! program has a CPU of its own.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tweed_lab::{Agent, AgentOptions, Cluster, Netns, Node, NodesFile, Pod, Underlay, wait_until};

use super::network::{attach, nodes};
use super::tools::{IPERF_PORT, Load, SOCKPERF_PORT, Servers, talk};
use crate::Options;
use crate::policies::objects::{NAMESPACE, namespace, pod};
use crate::report::{Report, Table, progress};
use crate::services::connections::{connect, reset};
use crate::services::objects::{Measured, cidr};
use crate::stats::turns;

/// Where connections are made, beside the ports of sockperf and iperf3: directly, and by the
/// Service. Two at one port would clash in conntrack, which then translates their source.
const PORTS: [u16; 2] = [7000, 7001];
/// Maximum time until policies and Services are in force.
const LIMIT: Duration = Duration::from_secs(30);
/// How long agents run before a measurement.
const AWAKE: Duration = Duration::from_millis(50);
/// Packets that have to take each way of the fast path in a round.
const LEAST: f64 = 1000.0;

/// The ways of the fast path on each site that has it; the last is for pods of one node.
const VXLAN_WAYS: [&str; 3] = ["vxlan-out", "vxlan-in", "local"];
const DIRECT_WAYS: [&str; 2] = ["direct-out", "direct-in"];

/// The sites, by their index.
const FAST: usize = 0;
const KERNEL: usize = 1;
const DIRECT_FAST: usize = 2;
const DIRECT_KERNEL: usize = 3;
const BARE: usize = 4;

/// From where to where, each on a site: a pod is on the first node, as the near one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    PodToFar,
    PodToNear,
    PodToService,
    PodToFarNode,
    PodToOwnNode,
    NodeToNode,
}

/// A column: its name, the site, and the path.
type Column = (&'static str, usize, Path);

const BARE_PAIR: Column = ("pair without any rule", BARE, Path::NodeToNode);

const TABLES: [(&str, &[Column]); 5] = [
    (
        "From node to node, with policies and Services",
        &[
            ("fast path", FAST, Path::PodToFar),
            ("kernel's path", KERNEL, Path::PodToFar),
            ("node to node, same rules", KERNEL, Path::NodeToNode),
            BARE_PAIR,
            ("fast path to a ClusterIP", FAST, Path::PodToService),
            ("kernel's path to a ClusterIP", KERNEL, Path::PodToService),
        ],
    ),
    (
        "From node to node by plain routes, with policies and Services",
        &[
            ("fast path", DIRECT_FAST, Path::PodToFar),
            ("kernel's path", DIRECT_KERNEL, Path::PodToFar),
            ("node to node, same rules", KERNEL, Path::NodeToNode),
            BARE_PAIR,
        ],
    ),
    (
        "On one node, with policies and Services",
        &[
            ("fast path", FAST, Path::PodToNear),
            ("kernel's path", KERNEL, Path::PodToNear),
            BARE_PAIR,
        ],
    ),
    (
        "Never on the fast path: to another node, masqueraded",
        &[
            ("fast path on", FAST, Path::PodToFarNode),
            ("off", KERNEL, Path::PodToFarNode),
        ],
    ),
    (
        "Never on the fast path: to the own node",
        &[
            ("fast path on", FAST, Path::PodToOwnNode),
            ("off", KERNEL, Path::PodToOwnNode),
        ],
    ),
];

type Rows = Vec<(&'static str, f64)>;

/// What is measured, in the order of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    RoundTrip,
    Stream,
    Connection,
}

impl Pace {
    const ALL: [Self; 3] = [Self::RoundTrip, Self::Stream, Self::Connection];

    /// The Service that leads to the far pod's server.
    fn service(self) -> Measured {
        match self {
            Self::RoundTrip => Measured::tcp("sockperf", 10, SOCKPERF_PORT),
            Self::Stream => Measured::tcp("iperf3", 11, IPERF_PORT),
            Self::Connection => Measured::tcp("connections", 12, PORTS[1]),
        }
    }
}

/// Adds the tables and measures them.
pub fn measure(
    options: &Options,
    rounds: usize,
    underlay: &Underlay,
    report: &mut Report,
) -> anyhow::Result<()> {
    progress("networks with policies and Services …");
    let bare = nodes(underlay, 8, 2)?;
    let ruled = |number, backend, fast_path| {
        let site = Site::ruled(nodes(underlay, number, 2)?, backend, fast_path);
        site.with_context(|| format!("a site with --fast-path {fast_path}"))
    };
    let mut sites = [
        ruled(4, "vxlan", "on")?,
        ruled(5, "vxlan", "off")?,
        ruled(6, "direct", "on")?,
        ruled(7, "direct", "off")?,
        Site {
            ends: vec![end(Path::NodeToNode, bare[1].netns(), bare[1].address())?],
            pods: Vec::new(),
            agents: Vec::new(),
            nodes: bare,
        },
    ];
    let first = report.tables.len();
    for (title, columns) in TABLES {
        let names: Vec<_> = columns.iter().map(|(name, ..)| *name).collect();
        report.tables.push(Table::new(title, &names));
    }
    for round in 0..rounds {
        progress(&format!("fast path: round {} of {rounds} …", round + 1));
        for pace in Pace::ALL {
            for ((_, columns), table) in TABLES.iter().zip(&mut report.tables[first..]) {
                for at in turns(round, columns.len()) {
                    // sockperf sleeps for two seconds each time.
                    if options.quick && pace == Pace::RoundTrip && at > 0 {
                        continue;
                    }
                    let (name, site, path) = columns[at];
                    let measured = sites[site].measure(path, pace, options.quick);
                    let values = measured.with_context(|| format!("{pace:?}, {name}, {path:?}"))?;
                    for (row, value) in values {
                        table.record(row, at, value);
                    }
                }
            }
        }
        sites[FAST].check_that_packets_are_fast(&VXLAN_WAYS)?;
        sites[DIRECT_FAST].check_that_packets_are_fast(&DIRECT_WAYS)?;
        report.save()?;
    }
    Ok(())
}

/// Servers at the end of a path; the listeners are at [`PORTS`].
type End = (Path, Servers, [TcpListener; 2]);

fn end(path: Path, netns: &Netns, address: impl ToString) -> anyhow::Result<End> {
    let servers = Servers::start(netns, &address.to_string(), false)?;
    let listen = |port| netns.listen(|| TcpListener::bind(("0.0.0.0", port)));
    Ok((path, servers, [listen(PORTS[0])?, listen(PORTS[1])?]))
}

/// Two nodes, and what is on them.
struct Site {
    // In the order in which they end.
    ends: Vec<End>,
    /// The client's first; none without agents.
    pods: Vec<Pod>,
    /// They stand still, so that they take no time of what is measured; with the packets that
    /// had taken each way of the fast path.
    agents: Vec<(Agent, [f64; 3])>,
    nodes: Vec<Node>,
}

impl Site {
    /// With agents, policies, Services and pods: two on the first node, one on the second.
    fn ruled(nodes: Vec<Node>, backend: &str, fast_path: &str) -> anyhow::Result<Self> {
        let (near, far) = (&nodes[0], &nodes[1]);
        let file = NodesFile::at(near.folder().join("nodes.yaml"));
        file.write_text(&objects(&nodes, &[]))?;
        let options = AgentOptions::new(&file)
            .arg(format!("--backend={backend}"))
            .arg(format!("--fast-path={fast_path}"))
            .arg("--services=on");
        let mut agents = Vec::new();
        for node in &nodes {
            agents.push((node.start_agent(&options)?, [0.0; 3]));
        }
        for (agent, _) in &mut agents {
            agent.wait_ready()?;
        }
        let (mut pods, mut addresses) = (Vec::new(), Vec::new());
        for (node, name) in named(&nodes) {
            let (pod, address) = attach(node, "tweed", &name)?;
            pods.push(pod);
            addresses.push(address);
        }
        file.write_text(&objects(&nodes, &addresses))?;
        let ends = vec![
            end(Path::PodToNear, pods[1].netns(), addresses[1])?,
            end(Path::PodToFar, pods[2].netns(), addresses[2])?,
            end(Path::PodToFarNode, far.netns(), far.address())?,
            end(Path::PodToOwnNode, near.netns(), near.address())?,
        ];
        for (_, servers, _) in &ends {
            Cluster::wait_for_path(pods[0].netns(), servers.address.parse()?)?;
        }
        let to = Pace::Connection.service().at();
        wait_until(&format!("a connection to {to}"), LIMIT, || {
            let one = || connect(&ends[1].2[1], to).and_then(reset);
            let connected = pods[0].netns().enter(one).map_err(|e| e.chain())?;
            connected.map_err(|error| error.to_string())
        })?;
        for (agent, _) in &mut agents {
            let policed = agent.metric("tweed_policed_pods{direction=\"egress\"}")?;
            ensure!(policed > Some(0.0), "no policy is in force: {policed:?}");
            agent.process().freeze()?;
        }
        Ok(Self {
            ends,
            pods,
            agents,
            nodes,
        })
    }

    /// Lets the agents run for a moment: the programs let flows in only as long as agents are
    /// there.
    fn wake_agents(&mut self) -> anyhow::Result<()> {
        for (agent, _) in &mut self.agents {
            agent.process().signal(Signal::SIGCONT);
        }
        sleep(AWAKE);
        for (agent, _) in &mut self.agents {
            agent.process().freeze()?;
        }
        Ok(())
    }

    /// The rows of one measurement.
    fn measure(&mut self, path: Path, pace: Pace, quick: bool) -> anyhow::Result<Rows> {
        self.wake_agents()?;
        let target = match path {
            Path::PodToService => Path::PodToFar,
            Path::NodeToNode if !self.pods.is_empty() => Path::PodToFarNode,
            path => path,
        };
        let end = self.ends.iter().find(|(path, ..)| *path == target);
        let (_, servers, listeners) = end.context("nobody is at the end of this path")?;
        let client = match path {
            Path::NodeToNode => self.nodes[0].netns(),
            _ => self.pods[0].netns(),
        };
        let address = match path {
            Path::PodToService => pace.service().at().ip().to_string(),
            _ => servers.address.clone(),
        };
        match pace {
            Pace::RoundTrip => {
                let mut words = Load::Requests.client(&address, quick);
                words.push("--full-rtt");
                let (text, _) = talk(client, servers, &words)?;
                let both = percentile(&text, "50.000").zip(percentile(&text, "99.000"));
                let (p50, p99) = both.with_context(|| format!("no result in {text}"))?;
                Ok(vec![
                    ("TCP round trip, p50, µs", p50),
                    ("TCP round trip, p99, µs", p99),
                ])
            }
            Pace::Stream => {
                let words = Load::Stream.client(&address, quick);
                let (text, _) = talk(client, servers, &words)?;
                let time = time_of_mib(&text).with_context(|| format!("no result in {text}"))?;
                Ok(vec![("TCP stream, µs for a MiB", time)])
            }
            Pace::Connection => {
                let at = usize::from(path == Path::PodToService);
                let to = SocketAddr::new(address.parse()?, PORTS[at]);
                let time = Duration::from_millis(if quick { 50 } else { 1000 });
                let took = client.enter(|| connections(&listeners[at], to, time))??;
                Ok(vec![("TCP connection, a byte each way, µs", took)])
            }
        }
    }

    /// Fails if not enough packets have skipped the host's stack since the last time.
    fn check_that_packets_are_fast(&mut self, ways: &[&str]) -> anyhow::Result<()> {
        for ((agent, seen), ways) in self.agents.iter_mut().zip([ways, &ways[..2]]) {
            agent.process().signal(Signal::SIGCONT);
            for (way, seen) in ways.iter().zip(seen) {
                let name = format!("tweed_fast_path_packets_total{{way=\"{way}\"}}");
                let now = agent.metric(&name)?.unwrap_or_default();
                if now - *seen < LEAST {
                    let (_, text) = agent.get("/metrics")?;
                    let is_of_it = |line: &&str| line.starts_with("tweed_fast_path");
                    let all: Vec<_> = text.lines().filter(is_of_it).collect();
                    bail!("{seen}, then {now} packets went {way}: {all:#?}");
                }
                *seen = now;
            }
            agent.process().freeze()?;
        }
        Ok(())
    }
}

/// Where the pods are, and their names.
fn named(nodes: &[Node]) -> [(&Node, String); 3] {
    let place = |at: usize| (&nodes[at / 2], format!("{}p{at}", nodes[0].name()));
    [0, 1, 2].map(place)
}

/// The nodes, their pods of these addresses, policies, and Services of the last pod.
fn objects(nodes: &[Node], addresses: &[IpAddr]) -> String {
    let far = nodes[1].name();
    let numbered = named(nodes).into_iter().enumerate();
    let pods = numbered.map(|(at, (node, name))| {
        let address = addresses.get(at).copied();
        pod(&name, node.name(), "end", address)
    });
    let ends = json!({ "podSelector": { "matchLabels": { "app": "end" } } });
    let mut allow = ends.clone();
    allow["ingress"] = json!([{ "from": [ends] }]);
    allow["egress"] = json!([{ "to": [ends, { "ipBlock": { "cidr": "192.0.2.0/24" } }] }]);
    let deny = json!({ "podSelector": {} });
    let services = Pace::ALL.map(Pace::service);
    let slices = services.map(|service| service.slice(addresses.get(2).copied(), far));
    let mut all = vec![namespace(NAMESPACE), cidr()];
    all.extend(nodes.iter().map(|node| node.manifest().to_json()));
    all.extend([policy("deny", deny), policy("allow", allow)]);
    all.extend(pods);
    all.extend(services.map(Measured::service));
    all.extend(slices);
    json!({ "apiVersion": "v1", "kind": "List", "items": all }).to_string()
}

fn policy(name: &str, mut spec: Value) -> Value {
    spec["policyTypes"] = json!(["Ingress", "Egress"]);
    json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": spec,
            "metadata": { "namespace": NAMESPACE, "name": name, "uid": format!("uid-{name}") } })
}

/// Connections one after the other for this long; gives the microseconds of one.
fn connections(listener: &TcpListener, to: SocketAddr, time: Duration) -> io::Result<f64> {
    let start = Instant::now();
    let mut count = 0.0;
    while start.elapsed() < time {
        let [mut client, mut server] = connect(listener, to)?;
        let mut byte = [0];
        client.write_all(&byte)?;
        server.read_exact(&mut byte)?;
        server.write_all(&byte)?;
        client.read_exact(&mut byte)?;
        reset([client, server])?;
        count += 1.0;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / count)
}

/// Of sockperf's lines such as `sockperf: ---> percentile 99.000 =   13.791`.
fn percentile(text: &str, share: &str) -> Option<f64> {
    let (_, rest) = text.split_once(&format!("percentile {share} ="))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Microseconds for a MiB, of iperf3's report.
fn time_of_mib(text: &str) -> Option<f64> {
    let json: Value = serde_json::from_str(text).ok()?;
    let bits = json["end"]["sum_received"]["bits_per_second"].as_f64()?;
    Some(8.0 * 1_048_576.0 * 1e6 / bits)
}
