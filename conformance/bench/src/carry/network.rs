//! The networks: each has nodes of its own, cabled to each other by one plain veth
//! pair. The lab's switch, which judges every frame by rules, would cost all of
//! them the same and hide differences; it only lends the nodes.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Context;
use tweed_lab::{AgentOptions, Cluster, CniTool, Netns, Node, NodeSpec, NodesFile, Pod, Underlay};

use super::handmade;
use super::tools::Servers;

/// MTU of the nodes' link, in bytes.
const MTU: u32 = 1500;

/// Where the two ends are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On two nodes.
    Across,
    /// Both on one node.
    Same,
}

/// What a network consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkKind {
    /// Two nodes and nothing else.
    Nodes,
    /// What flannel sets up: a VXLAN device, pods on a bridge, its rules.
    HandMade,
    /// Agent and plugin. The agents are stopped once all is there: what they made stays.
    Tweed,
    /// One node, pods by the reference plugin `ptp`, no rules at all.
    Ptp,
}

/// A network, ready to carry.
pub struct Network {
    // In the order in which they end.
    servers: Vec<(Place, Servers)>,
    /// Two on the first node, the first of which is the client, and one on the
    /// second node where there is one.
    pods: Vec<Pod>,
    nodes: Vec<Node>,
}

impl Network {
    /// Builds the `number`th network, with servers at the far ends of its paths.
    pub fn new(underlay: &Underlay, kind: NetworkKind, number: u8) -> anyhow::Result<Self> {
        let sides = if kind == NetworkKind::Ptp { 1 } else { 2 };
        let mut network = Self {
            servers: Vec::new(),
            pods: Vec::new(),
            nodes: nodes(underlay, number, sides)?,
        };
        let cluster_cidr = format!("10.{}.0.0/16", 100 + number);
        match kind {
            NetworkKind::Nodes => {
                let node = network.nodes.last().context("a network without nodes")?;
                let servers = Servers::start(node.netns(), &node.address().to_string(), true)?;
                network.servers.push((Place::Across, servers));
                return Ok(network);
            }
            NetworkKind::HandMade => handmade::overlay(&network.nodes, &cluster_cidr)?,
            NetworkKind::Ptp => network.nodes.iter().try_for_each(handmade::ptp)?,
            NetworkKind::Tweed => return network.with_agents(),
        }
        network.attach(handmade::NETWORK)?;
        Ok(network)
    }

    /// Agents and pods as users have them; then the agents are stopped.
    fn with_agents(mut self) -> anyhow::Result<Self> {
        let lab = self.nodes.first().context("no node")?.lab().clone();
        let file = NodesFile::at(lab.folder().join("nodes.yaml"));
        let manifests: Vec<_> = self.nodes.iter().map(Node::manifest).collect();
        file.write(&manifests)?;
        let options = AgentOptions::new(&file);
        let mut agents = self
            .nodes
            .iter()
            .map(|node| node.start_agent(&options))
            .collect::<Result<Vec<_>, _>>()?;
        for agent in &mut agents {
            agent.wait_ready()?;
        }
        self.attach("tweed")?;
        for agent in agents {
            agent.stop()?;
        }
        Ok(self)
    }

    /// Attaches the pods, starts the servers, and waits until packets pass.
    fn attach(&mut self, network: &str) -> anyhow::Result<()> {
        let first = self.nodes.first();
        for (number, node) in first.into_iter().chain(&self.nodes).enumerate() {
            let (pod, address) = attach(node, network, &format!("{}p{number}", node.name()))?;
            let place = match number {
                0 => None,
                1 => Some(Place::Same),
                _ => Some(Place::Across),
            };
            if let Some(place) = place {
                let servers = Servers::start(pod.netns(), &address.to_string(), true)?;
                self.servers.push((place, servers));
                Cluster::wait_for_path(self.client()?, address)?;
            }
            self.pods.push(pod);
        }
        Ok(())
    }

    /// Where the clients run.
    pub fn client(&self) -> anyhow::Result<&Netns> {
        let pod = self.pods.first().map(Pod::netns);
        let client = pod.or_else(|| self.nodes.first().map(Node::netns));
        client.context("a network without ends")
    }

    /// The servers at the other end of the path.
    pub fn servers(&self, place: Place) -> anyhow::Result<&Servers> {
        let found = self.servers.iter().find(|(at, _)| *at == place);
        let (_, servers) = found.with_context(|| format!("no path {place:?}"))?;
        Ok(servers)
    }
}

/// The nodes of the `number`th network; two are joined.
pub fn nodes(underlay: &Underlay, number: u8, sides: u8) -> anyhow::Result<Vec<Node>> {
    let spec = |side: u8| NodeSpec {
        name: format!("c{number}n{side}"),
        address: Ipv4Addr::new(192, 0, 2, 20 + 4 * number + side),
        pod_cidr: format!("10.{}.{}.0/20", 100 + number, 16 * side),
        mtu: MTU,
    };
    let nodes = (0..sides)
        .map(|side| Node::new(underlay, spec(side)))
        .collect::<Result<Vec<_>, _>>()?;
    if let [a, b] = nodes.as_slice() {
        cable(underlay, a, b)?;
    }
    Ok(nodes)
}

/// A new pod of this name, and its address.
pub fn attach(node: &Node, network: &str, name: &str) -> anyhow::Result<(Pod, IpAddr)> {
    let pod = Pod::new(node.lab(), name)?;
    let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=bench;K8S_POD_NAME={name}");
    let result = CniTool::new(node, network).args(&args).add(&pod)?;
    let address = result.address();
    Ok((pod, address.context("ADD answered without an address")?))
}

/// Takes both nodes off the switch and joins them directly.
fn cable(underlay: &Underlay, a: &Node, b: &Node) -> anyhow::Result<()> {
    let switch = underlay.switch();
    switch.ip([a, b].map(|node| format!("link del {}", node.name())))?;
    a.netns().ip([format!(
        "link add eth0 mtu {MTU} type veth peer name eth0 mtu {MTU} netns {}",
        b.netns().name()
    )])?;
    for node in [a, b] {
        node.netns().ip([
            format!("addr add {}/24 dev eth0", node.address()),
            "link set eth0 up".to_owned(),
        ])?;
    }
    Cluster::wait_for_path(a.netns(), IpAddr::V4(b.address()))?;
    Ok(())
}
