//! A node of its own for each subject, so that none meets what another left.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tempfile::TempDir;
use tweed_lab::{Node, NodeSpec, Pod, Underlay};

use super::call::{Burst, burst};
use super::subject::{Subject, Verb};

/// Where subjects keep their state: in memory, as /run is on a node. The lab's
/// own folder may be on a disk, and a disk that others use too would be measured.
const MEMORY: &str = "/dev/shm";
/// How the folders there are named; the number of their process follows.
const PREFIX: &str = "tweed-bench-";
/// How long links may take to be gone after DEL.
const GONE: Duration = Duration::from_secs(10);
/// Pods that are attached at once while a crowd is made.
const CROWD_BURST: usize = 8;

/// Removes the state that benches left behind which were killed.
pub fn clear_away() -> anyhow::Result<()> {
    for entry in fs::read_dir(MEMORY).context(MEMORY)? {
        let entry = entry.context(MEMORY)?;
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| {
            let (pid, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
            pid.parse::<u32>().ok()
        });
        if let Some(owner) = owner
            && !Path::new(&format!("/proc/{owner}")).exists()
        {
            let path = entry.path();
            fs::remove_dir_all(&path).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// A subject on its node.
pub struct Stage {
    /// The subject.
    pub subject: Subject,
    node: Node,
    state: TempDir,
    crowd: Vec<Pod>,
    empty: BTreeSet<String>,
}

impl Stage {
    /// A node of this number and its subject, with `crowd` pods attached.
    pub fn new(
        underlay: &Underlay,
        subject: Subject,
        number: u8,
        crowd: usize,
    ) -> anyhow::Result<Self> {
        let spec = NodeSpec {
            name: format!("bench{number}"),
            address: Ipv4Addr::new(192, 0, 2, 10 + number),
            pod_cidr: format!("10.{}.0.0/20", 100 + u16::from(number)),
            mtu: 1500,
        };
        let node = Node::new(underlay, spec)?;
        node.netns().set_sysctl("ipv4/ip_forward", "1")?;
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let state = TempDir::with_prefix_in(prefix, MEMORY).context(MEMORY)?;
        subject.prepare(&node, state.path())?;
        let lab = underlay.lab();
        let crowd = (0..crowd)
            .map(|pod| Pod::new(lab, &format!("b{number}-{pod}")))
            .collect::<Result<Vec<_>, _>>()?;
        let mut stage = Self {
            subject,
            node,
            state,
            crowd,
            empty: BTreeSet::new(),
        };
        // The first call makes what stays: a bridge.
        stage.empty = stage.links()?;
        let pods: Vec<&Pod> = stage.crowd.iter().collect();
        for (chunk, pods) in pods.chunks(CROWD_BURST).enumerate() {
            stage.add(pods, chunk * CROWD_BURST)?;
        }
        stage.empty = stage.links()?;
        Ok(stage)
    }

    /// The node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// How many pods it has when nothing is measured.
    pub fn crowd(&self) -> usize {
        self.crowd.len()
    }

    /// ADD for all `pods` at once, the first of which has this number.
    pub fn add(&self, pods: &[&Pod], first: usize) -> anyhow::Result<Burst> {
        self.burst(Verb::Add, pods, first, &[])
    }

    /// DEL for all `pods` at once, given what their ADD answered.
    pub fn del(&self, pods: &[&Pod], first: usize, added: &Burst) -> anyhow::Result<Burst> {
        self.burst(Verb::Del, pods, first, &added.answers)
    }

    fn burst(
        &self,
        verb: Verb,
        pods: &[&Pod],
        first: usize,
        added: &[Vec<u8>],
    ) -> anyhow::Result<Burst> {
        let chains = pods
            .iter()
            .enumerate()
            .map(|(at, pod)| {
                let added = added.get(at).filter(|answer| !answer.is_empty());
                self.subject.call(
                    verb,
                    &self.node,
                    self.state.path(),
                    pod,
                    first + at,
                    added.map(Vec::as_slice),
                )
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        self.node
            .netns()
            .enter(|| burst(&chains))?
            .with_context(|| format!("{} of {}", verb.as_str(), self.subject.name()))
    }

    /// One worker for each queue attaches and detaches its pods one after the
    /// other. Gives the time until all are done and the last link is gone.
    pub fn churn(&self, queues: &[Vec<&Pod>]) -> anyhow::Result<Duration> {
        let start = Instant::now();
        std::thread::scope(|scope| {
            let workers: Vec<_> = queues
                .iter()
                .enumerate()
                .map(|(worker, queue)| {
                    let step = queues.len();
                    scope.spawn(move || {
                        queue.iter().enumerate().try_for_each(|(at, pod)| {
                            let number = self.crowd() + worker + at * step;
                            let added = self.add(&[pod], number)?;
                            self.del(&[pod], number, &added).map(drop)
                        })
                    })
                })
                .collect();
            workers.into_iter().try_for_each(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })?;
        self.settle()?;
        Ok(start.elapsed())
    }

    /// Waits until the node has the links that it had before the measured pods,
    /// and says how long that took.
    pub fn settle(&self) -> anyhow::Result<Duration> {
        let start = Instant::now();
        if self.subject == Subject::Floor {
            // Whom the floor leaves it to.
            self.node.netns().ip(["link del group 117"])?;
        }
        loop {
            let there = self.links()?;
            let more: Vec<&String> = there.difference(&self.empty).collect();
            // A bridge stays; pods' links are pairs or have an upper device.
            if more.iter().all(|name| *name == "cni0") {
                return Ok(start.elapsed());
            }
            if start.elapsed() > GONE {
                bail!(
                    "links of {} were still there {} s after DEL: {more:?}",
                    self.subject.name(),
                    GONE.as_secs()
                );
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn links(&self) -> anyhow::Result<BTreeSet<String>> {
        let text = self
            .node
            .netns()
            .enter(|| fs::read_to_string("/proc/thread-self/net/dev"))?
            .context("the node's links")?;
        let names = text.lines().filter_map(|line| line.split_once(':'));
        Ok(names.map(|(name, _)| name.trim().to_owned()).collect())
    }
}
