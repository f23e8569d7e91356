//! The agent is killed at every system call on one of its files, from its start until a Node
//! has joined and the first policy has come and gone: each file is whole afterwards, or the
//! next agent does not use it; and that agent converges and leaves no draft.
//!
//! `make test` tries some of the calls, each run of it other ones.
//! `TWEED_CRASH_POINTS=all` tries all of them, and `TWEED_CRASH_POINTS=fsync:1` the one
//! that a failed test has named. Which calls there are is known from one whole run, and
//! not every agent makes the same: one that makes fewer is not killed.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tweed_lab::{
    AgentOptions, Cluster, ClusterPod, LabError, Node, NodeManifest, NodesFile, Objects, Snapshot,
    Strace, SystemCall, wait_until,
};

use crate::policy::{DENY_ALL, active, policy};
use crate::state::{settled_state, state, wait_for_state};

/// The calls by which a file is read, written, replaced and removed.
const CALLS: [&str; 12] = [
    "openat",
    "read",
    "write",
    "fchmod",
    "fsync",
    "rename",
    "renameat2",
    "ftruncate",
    "flock",
    "statx",
    "lseek",
    "unlink",
];

/// One in so many of the calls is tried, unless all are.
const SAMPLE: usize = 8;

/// Files of the run folder that an agent writes.
const STATE: [&str; 5] = [
    "agent.json",
    "nft-skeleton",
    "nodes.jsonl",
    "ready",
    "sysctls.json",
];
const CONFLIST: &str = "10-tweed.conflist";
/// Files that come and go: this one while there are policies, and the socket with its agent.
const POLICY: &str = "policy";
const SOCKET: &str = "agent.sock";
/// The socket's draft. Of a rename `strace` sees the old path alone.
const SOCKET_DRAFT: &str = ".tweed-agent.sock.new";

/// Time until the agent has ended or is ready.
const LIMIT: Duration = Duration::from_secs(30);

/// A node whose agent is killed. Another node, which joins later, exists only in the
/// node file, and so does the policy that comes with it.
pub struct Stage {
    /// What it has in the kernel is part of `before`. The policy isolates it.
    _pod: ClusterPod,
    /// The agent of node 1 is the one that is damaged.
    pub cluster: Cluster,
    nodes_file: NodesFile,
    joining: NodeManifest,
    /// The objects besides the Nodes, with the policy.
    isolating: Objects,
    /// What is in the kernel of node 1 while nothing is damaged.
    pub before: Snapshot,
}

/// How far an agent has come that is to be killed.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// It is not ready.
    Starts,
    /// It has not yet done what a new Node and the first policy need.
    Joins,
    /// Both have gone again, and it has not yet taken the policy out of force.
    Leaves,
}

impl Stage {
    pub fn new() -> Result<Self, LabError> {
        let mut cluster = Cluster::start(2)?;
        let pod = cluster.labelled_pod(1, "shop/pod", "")?;
        let mut isolating = cluster.objects().clone();
        isolating.set("deny", policy("shop", "deny", DENY_ALL));
        let before = settled_state(cluster[1].node.netns())?;
        let address = "192.0.2.13".parse().unwrap();
        let nodes_file = NodesFile::at(cluster.nodes_file().path());
        Ok(Self {
            _pod: pod,
            cluster,
            nodes_file,
            joining: NodeManifest::new("node3", address, "10.244.3.0/24"),
            isolating,
            before,
        })
    }

    pub fn files(&self) -> Vec<PathBuf> {
        let node = &self.cluster[1].node;
        let mut files = STATE.map(|name| self.in_run_dir(name)).to_vec();
        files.push(node.cni_conf_dir().join(CONFLIST));
        files
    }

    fn in_run_dir(&self, name: &str) -> PathBuf {
        self.cluster[1].node.run_dir().join(name)
    }

    /// Adds the node that joins, and the policy, to the node file.
    pub fn publish_joining(&self) -> Result<(), LabError> {
        let manifests = self.cluster.nodes().values().map(|entry| &entry.manifest);
        self.nodes_file
            .write_with(manifests.chain([&self.joining]), &self.isolating)
    }

    fn strace(&self) -> Strace {
        let log = self.cluster[1].node.folder().join("strace.txt");
        Strace::new(&log).with_threads()
    }

    /// Stops the agent and takes away what it has written, so that the next one writes
    /// all of it.
    fn reset(&mut self) -> Result<(), LabError> {
        self.cluster.kill_agent(1)?;
        for file in self.files() {
            let _ = fs::remove_file(file);
        }
        let netns = self.cluster[1].node.netns();
        netns.set_sysctl("ipv4/ip_forward", "0")?;
        netns.sh("nft delete table inet tweed").map(drop)
    }

    /// Runs an agent under `strace` until it is killed, or until it has done all that
    /// makes it write a file. Returns whether it was killed.
    fn run(&mut self, strace: &Strace) -> Result<bool, LabError> {
        let options = AgentOptions::new(&self.nodes_file).under(strace);
        self.cluster.publish()?;
        let node = &self.cluster[1].node;
        let mut agent = node.start_agent(&options)?;
        let mut phase = Phase::Starts;
        wait_until(
            "the agent to be killed or to write all files",
            LIMIT,
            || {
                if let Some(status) = agent.process().exit_status().unwrap() {
                    assert_eq!(status.signal(), Some(Signal::SIGKILL as i32), "{status}");
                    return Ok(true);
                }
                let next = match phase {
                    Phase::Starts if agent.get("/readyz").is_ok_and(|(code, _)| code == 200) => {
                        self.publish_joining().unwrap();
                        Phase::Joins
                    }
                    // The CNI config is written when the agent is ready already.
                    Phase::Joins if self.has_joined() && self.has_policy().unwrap() => {
                        self.assert_new_pods_are_enforced("the agent runs").unwrap();
                        self.cluster.publish().unwrap();
                        Phase::Leaves
                    }
                    Phase::Leaves if !self.is_marked() => return Ok(false),
                    same => same,
                };
                phase = next;
                Err(format!("{phase:?}; {}", agent.process().last_lines(5)))
            },
        )
    }

    /// Whether the node that joins is known, and all files are there.
    fn has_joined(&self) -> bool {
        let kept = fs::read_to_string(self.in_run_dir("nodes.jsonl"));
        kept.is_ok_and(|text| text.contains("node3"))
            && self.files().iter().all(|file| file.exists())
    }

    /// Whether the kernel has rules of policies.
    fn has_policy(&self) -> Result<bool, LabError> {
        let node = self.cluster[1].node.netns();
        // An agent that was killed early has not made the table.
        let has_table = node.sh("nft list tables inet")?.contains("tweed");
        Ok(has_table && !active::objects(node)?.is_empty())
    }

    /// What a reader finds in each file: the old content, the new one, or none.
    pub fn assert_whole(&self, when: &str) {
        for file in self.files() {
            let Ok(text) = fs::read_to_string(&file) else {
                continue;
            };
            assert!(text.ends_with('\n'), "{when}: {}: {text:?}", file.display());
            let documents: Vec<&str> = match file.extension().and_then(|e| e.to_str()) {
                Some("jsonl") => text.lines().collect(),
                None if file.ends_with("nft-skeleton") => continue,
                _ => vec![&text],
            };
            for document in documents {
                let parsed = serde_json::from_str::<Value>(document);
                assert!(parsed.is_ok(), "{when}: {}: {document:?}", file.display());
            }
        }
        if let Ok(text) = fs::read_to_string(self.in_run_dir(POLICY)) {
            let last = text.lines().last();
            assert_eq!(last, Some("NetworkPolicies"), "{when}: {text:?}");
        }
        // The value of before is known before it is changed.
        let node = &self.cluster[1].node;
        let found = fs::read_to_string(node.run_dir().join("sysctls.json")).unwrap_or_default();
        let forwarding = node.netns().sysctl("ipv4/ip_forward").unwrap();
        assert!(
            forwarding == "0" || found.contains(r#""net/ipv4/ip_forward": "0""#),
            "{when}: ip_forward is {forwarding}, known is {found:?}"
        );
    }

    /// While the kernel has rules of policies, an ADD waits for the agent: it knows that by
    /// the file.
    fn assert_new_pods_are_enforced(&self, when: &str) -> Result<(), LabError> {
        assert!(
            self.is_marked() || !self.has_policy()?,
            "{when}: there is no file"
        );
        Ok(())
    }

    fn is_marked(&self) -> bool {
        self.in_run_dir(POLICY).exists()
    }

    /// What is wrong with the files that come and go, while an agent runs and there is no
    /// policy.
    pub fn astray(&self) -> Vec<&'static str> {
        let has = |name| self.in_run_dir(name).exists();
        let policy = has(POLICY).then_some("the file policy is left");
        let socket = (!has(SOCKET)).then_some("there is no agent.sock");
        policy.into_iter().chain(socket).collect()
    }

    /// Starts an agent again, which must bring back everything.
    fn assert_converges(&mut self, when: &str) -> Result<(), LabError> {
        self.cluster.publish()?;
        self.cluster.start_agent(1)?;
        self.cluster.wait_ready()?;
        let netns = self.cluster[1].node.netns();
        if let Err(error) = wait_for_state(netns, &self.before) {
            let changes = self.before.changes(&state(netns)?);
            panic!("{when}: {}: {changes:#?}", error.chain());
        }
        self.assert_whole(when);
        wait_until_no_draft(&self.cluster[1].node, when)?;
        for file in self.files() {
            assert!(file.exists(), "{when}: there is no {}", file.display());
        }
        let what = format!("the socket to be there and no policy, {when}");
        wait_until(&what, LIMIT, || match self.astray() {
            astray if astray.is_empty() => Ok(()),
            astray => Err(astray.join(", ")),
        })
    }
}

/// Waits until no draft of a file is left. The agent that runs removes drafts of others when
/// it starts only, and its own one is there for a moment whenever it writes a file.
pub fn wait_until_no_draft(node: &Node, when: &str) -> Result<(), LabError> {
    let what = format!("no draft to be left, {when}");
    wait_until(&what, LIMIT, || {
        let folders = [node.run_dir(), node.cni_conf_dir()];
        let drafts: Vec<_> = folders.iter().flat_map(|folder| drafts(folder)).collect();
        if drafts.is_empty() {
            Ok(())
        } else {
            Err(drafts.join(", "))
        }
    })
}

fn drafts(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(".tweed-")).collect()
}

/// Kills an agent at each call that `on` sees.
fn killed_at_each_call(on: impl Fn(&Stage, Strace) -> Strace) -> Result<(), LabError> {
    let mut stage = Stage::new()?;
    stage.reset()?;
    let counting = on(&stage, stage.strace());
    stage.run(&counting)?;
    let mut made = counting.calls()?;
    made.retain(|name, _| CALLS.contains(&name.as_str()));
    assert!(made.values().sum::<usize>() > 3, "only {made:?}");
    let wanted = std::env::var("TWEED_CRASH_POINTS").unwrap_or_default();
    let offset = std::process::id() as usize;
    // At least one is tried.
    let sample = SAMPLE.min(made.values().sum());
    let calls = made.iter().flat_map(|(name, count)| {
        (1..=*count).map(|number| SystemCall {
            name: name.clone(),
            number,
        })
    });
    let (mut tried, mut killed) = (0, 0);
    for (position, point) in calls.enumerate() {
        let is_chosen = match wanted.as_str() {
            // Further ones until an agent has been killed.
            "" => (position + offset).is_multiple_of(sample) || (tried > 0 && killed == 0),
            "all" => true,
            one => point.to_string() == one,
        };
        if !is_chosen {
            continue;
        }
        let when = format!("agent killed at {point}");
        stage.reset()?;
        let strace = on(&stage, stage.strace()).kill_at(&point);
        killed += u32::from(stage.run(&strace)?);
        tried += 1;
        stage.assert_whole(&when);
        stage.assert_new_pods_are_enforced(&when)?;
        stage.assert_converges(&when)?;
    }
    println!("{tried} of {made:?} were tried, {killed} agents were killed");
    assert!(killed > 0, "no agent was killed at {made:?}");
    Ok(())
}

#[test]
fn at_the_files_of_the_run_folder() -> Result<(), LabError> {
    killed_at_each_call(|stage, strace| {
        let mut files = stage.files();
        files.extend([POLICY, SOCKET, SOCKET_DRAFT].map(|name| stage.in_run_dir(name)));
        strace.on_files(files.iter().map(PathBuf::as_path))
    })
}

#[test]
fn at_the_drafts_of_the_run_folder() -> Result<(), LabError> {
    killed_at_each_call(|stage, strace| strace.on_drafts_in(&stage.cluster[1].node.run_dir()))
}

#[test]
fn at_the_drafts_of_the_cni_config() -> Result<(), LabError> {
    killed_at_each_call(|stage, strace| strace.on_drafts_in(&stage.cluster[1].node.cni_conf_dir()))
}
