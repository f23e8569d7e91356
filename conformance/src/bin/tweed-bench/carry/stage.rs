//! The networks: each has nodes of its own, cabled to each other by one plain
//! veth pair. The lab's switch, which judges every frame by rules, would cost
//! all of them the same and hide differences; it only lends the nodes.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, bail};
use tweed_lab::{
    AddResult, Agent, AgentOptions, Cluster, CniTool, Lab, Netns, Node, NodeManifest, NodeSpec,
    NodesFile, Pod, Underlay,
};

use super::crowd;
use super::handmade;
use super::load::Path;
use super::subject::{Kind, Place};

/// MTU of the nodes' link.
const MTU: u32 = 1500;
/// Keeps conntrack working for every packet, as kube-proxy does, by a rule that
/// meets none.
const CONNTRACK: &str = "table inet others {
    chain postrouting {
        type nat hook postrouting priority 100
        ip saddr 203.0.113.1 masquerade
    }
}";

/// What is left of a pod network's table if it does nothing but masquerade, as
/// every one does: what `source` sends to the world, by a rule that the first
/// packet of each flow meets.
fn only_masquerade(source: &str, cluster: &str) -> String {
    format!(
        "table inet others {{
    chain postrouting {{
        type nat hook postrouting priority 100
        ip saddr {source} ip daddr != {cluster} masquerade fully-random
    }}
}}"
    )
}

/// How full a crowded network is.
#[derive(Debug, Clone, Copy)]
pub struct Crowd {
    /// Pods on each of its nodes.
    pub pods: usize,
    /// Nodes that its nodes know.
    pub nodes: usize,
}

/// An end of a path.
struct PodEnd {
    pod: Pod,
    address: Ipv4Addr,
}

/// A network, ready to carry.
pub struct Stage {
    /// Which.
    pub kind: Kind,
    // Ends before the pods, and these before the nodes.
    agents: Vec<Agent>,
    /// Two on the first node, one on the second where there is one.
    pods: Vec<PodEnd>,
    /// Held: their links go with them.
    crowd: Vec<Netns>,
    nodes: Vec<Node>,
}

/// What a node is called and has, in the `number`th network.
fn spec(number: u8, side: u8) -> NodeSpec {
    NodeSpec {
        name: format!("c{number}n{side}"),
        address: Ipv4Addr::new(192, 0, 2, 20 + 4 * number + side),
        pod_cidr: format!("10.{}.{}.0/20", 100 + number, 16 * side),
        mtu: MTU,
    }
}

/// All pods of the `number`th network.
pub fn cluster_cidr(number: u8) -> String {
    format!("10.{}.0.0/16", 100 + number)
}

impl Stage {
    /// Builds the `number`th network and sees that packets pass.
    pub fn new(underlay: &Underlay, kind: Kind, number: u8, crowd: Crowd) -> anyhow::Result<Self> {
        let sides = match kind {
            Kind::Bridge | Kind::Ptp => 1,
            _ => 2,
        };
        let nodes = (0..sides)
            .map(|side| Node::new(underlay, spec(number, side)))
            .collect::<Result<Vec<_>, _>>()?;
        if let [a, b] = nodes.as_slice() {
            cable(underlay, a, b)?;
        }
        let mut stage = Self {
            kind,
            agents: Vec::new(),
            pods: Vec::new(),
            crowd: Vec::new(),
            nodes,
        };
        match kind {
            Kind::Nodes => {}
            Kind::HandMade => {
                handmade::overlay(&stage.nodes, number)?;
                stage.attach(underlay.lab(), handmade::NETWORK)?;
            }
            Kind::Bridge | Kind::Ptp => {
                for node in &stage.nodes {
                    handmade::plugin(node, kind)?;
                }
                stage.attach(underlay.lab(), handmade::NETWORK)?;
            }
            Kind::Tweed
            | Kind::Direct
            | Kind::OnlyMasquerade
            | Kind::NoTable
            | Kind::NoConntrack => {
                stage.tweed(underlay.lab(), number, 0)?;
            }
            Kind::Crowded | Kind::CrowdedNoTable => {
                stage.tweed(underlay.lab(), number, crowd.nodes)?;
                stage.crowd = crowd::fill(underlay.lab(), &stage.nodes, crowd.pods)?;
            }
        }
        if matches!(
            kind,
            Kind::OnlyMasquerade | Kind::NoTable | Kind::NoConntrack | Kind::CrowdedNoTable
        ) {
            stage.lay_bare(number)?;
        }
        for place in Place::ALL {
            if let Ok(path) = stage.path(place) {
                Cluster::wait_for_path(path.client, path.address.into())?;
            }
        }
        Ok(stage)
    }

    /// Agents and pods as users have them, with `strangers` more nodes.
    fn tweed(&mut self, lab: &Lab, number: u8, strangers: usize) -> anyhow::Result<()> {
        let file = NodesFile::at(lab.folder().join(format!("nodes{number}.yaml")));
        let own = self.nodes.iter().map(Node::manifest);
        let manifests: Vec<NodeManifest> = own.chain(crowd::strangers(strangers)).collect();
        file.write(&manifests)?;
        let mut options = AgentOptions::new(&file);
        if self.kind == Kind::Direct {
            options = options.arg("--backend").arg("direct");
        }
        for node in &self.nodes {
            self.agents.push(node.start_agent(&options)?);
        }
        for agent in &mut self.agents {
            agent.wait_ready()?;
        }
        self.attach(lab, "tweed")
    }

    fn attach(&mut self, lab: &Lab, network: &str) -> anyhow::Result<()> {
        let Some(first) = self.nodes.first() else {
            bail!("a network without nodes");
        };
        for node in std::iter::once(first).chain(&self.nodes) {
            let pod = Pod::new(lab, &format!("{}p{}", node.name(), self.pods.len()))?;
            let result = CniTool::new(node, network)
                .args("IgnoreUnknown=1;K8S_POD_NAMESPACE=bench;K8S_POD_NAME=end")
                .add(&pod)?;
            let address = ipv4(&result).context("ADD answered without an address")?;
            self.pods.push(PodEnd { pod, address });
        }
        Ok(())
    }

    fn stop_agents(&mut self) -> anyhow::Result<()> {
        for agent in self.agents.drain(..) {
            agent.stop()?;
        }
        Ok(())
    }

    /// Stops the agents and gives the table of each node as `nft` lists it.
    pub fn tables(&mut self) -> anyhow::Result<Vec<String>> {
        self.stop_agents()?;
        let listing = |node: &Node| Ok(node.netns().sh("nft list table inet tweed")?);
        self.nodes.iter().map(listing).collect()
    }

    /// Puts `tables`, one for each node, in place of all the rules there are.
    pub fn put(&self, tables: &[String]) -> anyhow::Result<()> {
        for (node, table) in self.nodes.iter().zip(tables) {
            node.netns().nft(&format!("flush ruleset\n{table}"))?;
        }
        Ok(())
    }

    /// For each node a table that only masquerades.
    pub fn only_masquerading(&self, number: u8) -> Vec<String> {
        let table = |node: &Node| only_masquerade(node.pod_cidr(), &cluster_cidr(number));
        self.nodes.iter().map(table).collect()
    }

    /// Takes the agents and the table away, and puts there what the kind says.
    fn lay_bare(&mut self, number: u8) -> anyhow::Result<()> {
        self.stop_agents()?;
        for node in &self.nodes {
            node.netns().nft("delete table inet tweed")?;
            match self.kind {
                Kind::NoConntrack => {}
                Kind::OnlyMasquerade => {
                    let table = only_masquerade(node.pod_cidr(), &cluster_cidr(number));
                    node.netns().nft(&table)?;
                }
                _ => node.netns().nft(CONNTRACK)?,
            }
        }
        Ok(())
    }

    /// The two ends at this place.
    pub fn path(&self, place: Place) -> anyhow::Result<Path<'_>> {
        let found = match (place, self.nodes.as_slice(), self.pods.as_slice()) {
            (Place::Across, [a, b], []) => Some((a.netns(), b.netns(), b.address())),
            (Place::Across, _, [a, _, b]) => Some((a.pod.netns(), b.pod.netns(), b.address)),
            (Place::Same, _, [a, b, ..]) => Some((a.pod.netns(), b.pod.netns(), b.address)),
            _ => None,
        };
        let (client, server, address) =
            found.with_context(|| format!("{:?} has no path {}", self.kind, place.name()))?;
        Ok(Path {
            client,
            server,
            address,
        })
    }
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
    Cluster::wait_for_path(a.netns(), b.address().into())?;
    Ok(())
}

fn ipv4(result: &AddResult) -> Option<Ipv4Addr> {
    match result.address()? {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}
