//! A node of its own for each subject, so that none meets what another left.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tweed_lab::{Node, NodeSpec, Pod, Underlay};

use super::call::{Burst, burst};
use super::subject::{Subject, Verb};

/// How long links may take to disappear after DEL.
const REMOVED_WITHIN: Duration = Duration::from_secs(60);
/// Pods that are attached at once while the node is filled.
const FILL_BURST: usize = 8;

/// A subject on its node.
pub struct Host<'a> {
    /// The subject.
    pub subject: &'a Subject,
    node: Node,
    /// In memory, as `/run` is on a node: a disk would be measured, too.
    state: PathBuf,
    pods: Vec<Pod>,
    /// The links that stay when nothing is measured.
    links: BTreeSet<String>,
}

impl<'a> Host<'a> {
    /// The node of this number and its subject, with `pods` pods attached.
    pub fn new(
        underlay: &Underlay,
        subject: &'a Subject,
        number: u8,
        pods: usize,
    ) -> anyhow::Result<Self> {
        let lab = underlay.lab();
        let name = format!("bench{number}");
        let state = lab.tmpfs(&format!("{name}-state"))?;
        let spec = NodeSpec {
            name,
            address: Ipv4Addr::new(192, 0, 2, 10 + number),
            pod_cidr: format!("10.{}.0.0/20", 100 + u16::from(number)),
            mtu: 1500,
        };
        let node = Node::new(underlay, spec)?;
        node.netns().set_sysctl("ipv4/ip_forward", "1")?;
        subject.prepare(&node, &state)?;
        let pods = (0..pods)
            .map(|pod| Pod::new(lab, &format!("b{number}-{pod}")))
            .collect::<Result<Vec<_>, _>>()?;
        let mut host = Self {
            subject,
            node,
            state,
            pods,
            links: BTreeSet::new(),
        };
        let pods: Vec<&Pod> = host.pods.iter().collect();
        for pods in pods.chunks(FILL_BURST) {
            host.burst(Verb::Add, pods, &[])?;
        }
        host.links = host.links()?;
        Ok(host)
    }

    /// ADD for all `pods` at once.
    pub fn add(&self, pods: &[&Pod]) -> anyhow::Result<Burst> {
        self.burst(Verb::Add, pods, &[])
    }

    /// DEL for all `pods` at once, given what their ADD answered.
    pub fn del(&self, pods: &[&Pod], added: &Burst) -> anyhow::Result<Burst> {
        self.burst(Verb::Del, pods, &added.answers)
    }

    fn burst(&self, verb: Verb, pods: &[&Pod], added: &[Vec<u8>]) -> anyhow::Result<Burst> {
        let place = (&self.node, self.state.as_path());
        let chains = pods
            .iter()
            .enumerate()
            .map(|(at, pod)| {
                let result = added.get(at).map_or(&[][..], Vec::as_slice);
                self.subject.calls(verb, place, pod, result)
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        self.node
            .netns()
            .enter(|| burst(&chains))?
            .with_context(|| format!("{} of {}", verb.as_str(), self.subject.name))
    }

    /// How long a VERSION call takes, which does nothing but start the plugin.
    pub fn start_plugin(&self) -> anyhow::Result<Duration> {
        let call = self.subject.version();
        let start = Instant::now();
        call.make()?;
        Ok(start.elapsed())
    }

    /// Waits until the node has the links that it had before the measured pods;
    /// gives how long that took.
    pub fn wait_removed(&self) -> anyhow::Result<Duration> {
        let start = Instant::now();
        loop {
            let now = self.links()?;
            let more: Vec<&String> = now.difference(&self.links).collect();
            // The bridge of flannel's chain stays.
            if more.iter().all(|name| *name == "cni0") {
                return Ok(start.elapsed());
            }
            if start.elapsed() > REMOVED_WITHIN {
                bail!("links of {} stay after DEL: {more:?}", self.subject.name);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn links(&self) -> anyhow::Result<BTreeSet<String>> {
        let netns = self.node.netns();
        let read = netns.enter(|| fs::read_to_string("/proc/thread-self/net/dev"))?;
        let text = read.context("the node's links")?;
        let names = text.lines().filter_map(|line| line.split_once(':'));
        Ok(names.map(|(name, _)| name.trim().to_owned()).collect())
    }
}
