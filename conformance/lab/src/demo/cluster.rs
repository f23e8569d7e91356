//! The demo's nodes and pods, with a server in each.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::time::Instant;

use crate::{Cluster, ClusterPod, EchoServer, Lab, Netns, OUTSIDE};
use anyhow::{Context, Result, bail};
use ipnetwork::Ipv4Network;

use super::path::{Endpoint, Place};
use super::picture::{NodePicture, PodPicture, Topology};
use super::{done, progress};

/// The port of every server.
const PORT: u16 = 7777;

/// The demo's nodes and pods.
pub(crate) struct DemoCluster {
    // Servers and pods before nodes: fields are dropped in this order.
    servers: BTreeMap<String, EchoServer>,
    pods: Vec<DemoPod>,
    cluster: Cluster,
}

/// A pod and the node that it is on.
pub(crate) struct DemoPod {
    name: String,
    node: u8,
    pod: ClusterPod,
}

impl DemoPod {
    /// `a1`, `a2` on node1, `b1`, `b2` on node2 and so on.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn netns(&self) -> &Netns {
        self.pod.netns()
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.pod.address()
    }
}

impl DemoCluster {
    /// Creates the underlay, three nodes with agents, and two pods on each.
    pub(crate) fn build(out: &mut dyn Write, lab: Lab) -> Result<Self> {
        progress(out, "an underlay: a switch, a router, a host outside")?;
        let cluster = Cluster::empty(&lab, |options| options)?;
        let mut demo = Self {
            servers: BTreeMap::new(),
            pods: Vec::new(),
            cluster,
        };
        let server = EchoServer::start(demo.cluster.underlay().outside(), PORT)?;
        demo.servers.insert("outside".to_owned(), server);
        done(
            out,
            &format!(
                "nodes have strict rp_filter; the switch drops foreign sources; outside is {OUTSIDE}"
            ),
        )?;

        progress(out, "three nodes: tweed-agent in each, over one node file")?;
        for index in 1..=3 {
            demo.cluster.plug(index)?;
            demo.serve(index)?;
        }
        demo.cluster.publish()?;
        let start = Instant::now();
        for index in 1..=3 {
            demo.cluster.start_agent(index)?;
        }
        demo.cluster.wait_ready()?;
        let ms = start.elapsed().as_millis();
        done(out, &format!("all ready after {ms} ms"))?;

        progress(out, "two pods on each node, attached by cnitool")?;
        for index in 1..=3 {
            demo.attach_pods(out, index)?;
        }
        Ok(demo)
    }

    /// Adds a node with its agent and two pods.
    pub(crate) fn add_node(&mut self, out: &mut dyn Write, index: u8) -> Result<()> {
        let start = Instant::now();
        self.cluster.add_node(index)?;
        self.serve(index)?;
        let ms = start.elapsed().as_millis();
        done(out, &format!("node{index} is ready after {ms} ms"))?;
        self.attach_pods(out, index)
    }

    /// Waits until every node reaches a pod on node `index`.
    pub(crate) fn wait_for_new_node(&self, index: u8) -> Result<()> {
        let Some(new) = self.pods.iter().find(|pod| pod.node == index) else {
            bail!("node{index} has no pod");
        };
        for entry in self.cluster.nodes().values() {
            Cluster::wait_for_path(entry.node.netns(), new.address())?;
        }
        Ok(())
    }

    /// Removes a node and its pods without any shutdown. Returns its pod CIDR.
    pub(crate) fn remove_node(&mut self, index: u8) -> Result<String> {
        let node = &self.cluster.entry(index)?.node;
        let (name, pod_cidr) = (node.name().to_owned(), node.pod_cidr().to_owned());
        self.servers.remove(&name);
        let removed: Vec<DemoPod> = self.pods.extract_if(.., |pod| pod.node == index).collect();
        for pod in &removed {
            self.servers.remove(&pod.name);
        }
        self.cluster.remove_node(index)?;
        Ok(pod_cidr)
    }

    fn serve(&mut self, index: u8) -> Result<()> {
        let node = &self.cluster.entry(index)?.node;
        let server = EchoServer::start(node.netns(), PORT)?;
        self.servers.insert(node.name().to_owned(), server);
        Ok(())
    }

    fn attach_pods(&mut self, out: &mut dyn Write, index: u8) -> Result<()> {
        let letter = char::from(b'a' + index.saturating_sub(1));
        let mut attached = Vec::new();
        for number in 1..=2 {
            let name = format!("{letter}{number}");
            let start = Instant::now();
            let pod = self.cluster.pod(index, &name)?;
            let ms = start.elapsed().as_millis();
            attached.push(format!("{name} {} in {ms} ms", pod.address()));
            check_own_address(&name, &pod)?;
            let server = EchoServer::start(pod.netns(), PORT)?;
            self.servers.insert(name.clone(), server);
            self.pods.push(DemoPod {
                name,
                node: index,
                pod,
            });
        }
        done(out, &format!("node{index}: {}", attached.join(", ")))
    }

    /// The first pod, and the last one that is never removed.
    pub(crate) fn first_and_last_pod(&self) -> Result<(&DemoPod, &DemoPod)> {
        let first = self.pods.first();
        let last = self.pods.iter().rfind(|pod| pod.node <= 3);
        first.zip(last).context("there are no pods")
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Everything that can be pinged, in the order of the matrix.
    pub(crate) fn endpoints(&self) -> Vec<Endpoint<'_>> {
        let nodes = self.cluster.nodes().iter().map(|(index, entry)| Endpoint {
            name: entry.node.name(),
            netns: entry.node.netns(),
            address: entry.node.address().into(),
            port: PORT,
            place: Place::Node {
                index: *index,
                overlay: overlay_address(entry.node.pod_cidr()),
            },
        });
        let pods = self.pods.iter().map(|pod| Endpoint {
            name: &pod.name,
            netns: pod.netns(),
            address: pod.address(),
            port: PORT,
            place: Place::Pod { node: pod.node },
        });
        let outside = Endpoint {
            name: "outside",
            netns: self.cluster.underlay().outside(),
            address: OUTSIDE.into(),
            port: PORT,
            place: Place::Outside,
        };
        nodes.chain(pods).chain([outside]).collect()
    }

    /// The content of the picture, as read from the kernel.
    pub(crate) fn topology(&self) -> Result<Topology> {
        let mut nodes = Vec::new();
        let mut vxlan = String::new();
        for (index, entry) in self.cluster.nodes() {
            let netns = entry.node.netns();
            let link = netns.json("ip -j -d addr show dev tweed.1")?;
            let (link, data) = (&link[0], &link[0]["linkinfo"]["info_data"]);
            vxlan = format!(
                "VNI {}, UDP {}, MTU {}",
                data["id"], data["port"], link["mtu"]
            );
            let pods = self.pods.iter().filter(|pod| pod.node == *index);
            nodes.push(NodePicture {
                name: entry.node.name().to_owned(),
                address: entry.node.address().to_string(),
                overlay: text(&link["addr_info"][0]["local"]),
                mac: text(&link["address"]),
                pods: pods
                    .map(|pod| PodPicture {
                        name: pod.name.clone(),
                        address: pod.address().to_string(),
                    })
                    .collect(),
            });
        }
        Ok(Topology {
            outside: OUTSIDE.to_string(),
            vxlan,
            nodes,
        })
    }

    /// The end of each agent's log, for the report of a failure.
    pub(crate) fn agent_logs(&self) -> String {
        let nodes = self.cluster.nodes().values();
        let logs = nodes.filter_map(|entry| {
            let log = entry.agent.as_ref()?.log();
            let lines: Vec<&str> = log.lines().collect();
            let end = lines[lines.len().saturating_sub(10)..].join("\n  ");
            Some(format!(
                "The agent's log on {}:\n  {end}\n",
                entry.node.name()
            ))
        });
        logs.collect()
    }

    pub(crate) fn keep(&self) -> Result<()> {
        Ok(self.cluster.lab().keep()?)
    }
}

/// Checks that a pod's interface has the address of the result of ADD.
fn check_own_address(name: &str, pod: &ClusterPod) -> Result<()> {
    let links = pod.netns().json("ip -j -4 addr show dev eth0")?;
    let own = text(&links[0]["addr_info"][0]["local"]);
    if own != pod.address().to_string() {
        bail!(
            "pod {name} has {own} on eth0, but the result of ADD has {}",
            pod.address()
        );
    }
    Ok(())
}

/// The first address of a pod CIDR: the source of a node's packets to remote pods.
fn overlay_address(pod_cidr: &str) -> Option<IpAddr> {
    let network: Ipv4Network = pod_cidr.parse().ok()?;
    Some(network.network().into())
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or("?").to_owned()
}
