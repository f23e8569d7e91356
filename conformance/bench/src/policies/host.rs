//! A node with an agent over an API server of its own, and pods on it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tweed_lab::{Agent, AgentOptions, Node, NodeSpec, Pod, Underlay};

use super::objects::{NAMESPACE, NAMESPACES, NODES, PODS, namespace, pod};
use super::server::Server;
use crate::attach::call::Call;

/// A pod, and its address.
pub struct Attached {
    pub pod: Pod,
    pub address: IpAddr,
}

/// A node. Its server has its Node and the namespace, and what is put into it.
pub struct Host {
    // In the order in which they end.
    agent: Option<Agent>,
    pub server: Server,
    options: AgentOptions,
    /// How programs on the node reach the server.
    pub kubeconfig: PathBuf,
    pub node: Node,
    /// The server of the measurements, and its client.
    pub ends: Vec<Attached>,
    locals: Vec<Attached>,
}

impl Host {
    /// Node `number` with a client, a server, and `locals` pods more.
    pub fn new(underlay: &Underlay, number: u8, locals: usize) -> anyhow::Result<Self> {
        let spec = NodeSpec {
            name: format!("bench{number}"),
            address: Ipv4Addr::new(192, 0, 2, 10 + number),
            pod_cidr: format!("10.250.{number}.0/24"),
            mtu: 1500,
        };
        let node = Node::new(underlay, spec)?;
        let server = Server::start(node.netns())?;
        server.put(NODES, [node.manifest().to_json()]);
        server.put(NAMESPACES, [namespace()]);
        let kubeconfig = node.folder().join("kubeconfig");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "contexts": [{ "name": "bench", "context": { "cluster": "bench", "user": "bench" } }],
            "clusters": [{ "name": "bench", "cluster": {
                "server": format!("http://{}", server.address()) } }],
            "users": [{ "name": "bench", "user": { "token": "bench" } }],
        });
        fs::write(&kubeconfig, text.to_string()).context("the kubeconfig")?;
        let mut host = Self {
            agent: None,
            server,
            options: AgentOptions::kubernetes(&kubeconfig),
            kubeconfig,
            node,
            ends: Vec::new(),
            locals: Vec::new(),
        };
        host.start_agent()?;
        host.ends = vec![
            host.attach("server", "server")?,
            host.attach("client", "stranger")?,
        ];
        for local in 0..locals {
            let (name, app) = (format!("l{local}"), format!("local{local}"));
            let attached = host.attach(&name, &app)?;
            host.locals.push(attached);
        }
        Ok(host)
    }

    /// The flags that the agent is started with from now on, besides the lab's own.
    pub fn set_flags(&mut self, flags: &[&str]) {
        let options = AgentOptions::kubernetes(&self.kubeconfig);
        self.options = (flags.iter()).fold(options, |options, flag| options.arg(*flag));
    }

    /// Starts the agent and waits until it is ready; gives the moment before.
    pub fn start_agent(&mut self) -> anyhow::Result<Instant> {
        let start = Instant::now();
        let agent = self.node.start_agent(&self.options)?;
        self.agent.insert(agent).wait_ready()?;
        Ok(start)
    }

    /// Ends the agent; the kernel keeps what it has.
    pub fn stop_agent(&mut self) -> anyhow::Result<()> {
        if let Some(agent) = self.agent.take() {
            agent.stop()?;
        }
        Ok(())
    }

    /// The process ID of the agent.
    pub fn agent_pid(&self) -> anyhow::Result<u32> {
        Ok(self.agent.as_ref().context("no agent")?.pid())
    }

    /// The most memory that the agent ever had resident, in MiB.
    pub fn peak_mib(&self) -> anyhow::Result<f64> {
        peak_mib(self.agent_pid()?)
    }

    /// The CPU time of all threads of the agent.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        cpu(self.agent_pid()?)
    }

    /// A pod on this node with this label.
    fn attach(&self, name: &str, app: &str) -> anyhow::Result<Attached> {
        let pod_name = format!("{}-{name}", self.node.name());
        let object = pod(&pod_name, self.node.name(), app, None);
        self.server.put(PODS, [object]);
        let pod = Pod::new(self.node.lab(), &pod_name)?;
        let (_, address) = self.call("ADD", &pod, &pod_name)?;
        let address = address.context("ADD gives no address")?;
        Ok(Attached { pod, address })
    }

    /// One ADD of a pod, and its DEL; the time of the ADD.
    pub fn add_and_del(&self, pod: &Pod, name: &str) -> anyhow::Result<Duration> {
        let (took, _) = self.call("ADD", pod, name)?;
        self.call("DEL", pod, name)?;
        Ok(took)
    }

    fn call(
        &self,
        verb: &str,
        pod: &Pod,
        name: &str,
    ) -> anyhow::Result<(Duration, Option<IpAddr>)> {
        let path = self.node.cni_conf_dir().join("10-tweed.conflist");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let list: Value = serde_json::from_str(&text)?;
        let mut config = list["plugins"][0].clone();
        config["name"] = list["name"].clone();
        config["cniVersion"] = list["cniVersion"].clone();
        let bin = self.node.cni_bin_dir();
        let call = Call {
            program: bin.join("tweed"),
            environment: vec![
                ("CNI_COMMAND", verb.to_owned()),
                ("CNI_CONTAINERID", name.to_owned()),
                ("CNI_NETNS", pod.path()),
                ("CNI_IFNAME", "eth0".to_owned()),
                ("CNI_PATH", bin.display().to_string()),
                (
                    "CNI_ARGS",
                    format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME={name}"),
                ),
            ],
            stdin: config,
            ..Call::default()
        };
        // A program that entered the namespace would be part of the time.
        let (took, answer) = (self.node.netns())
            .enter(|| {
                let start = Instant::now();
                let answer = call.make();
                (start.elapsed(), answer)
            })
            .with_context(|| format!("{verb} of {name}"))?;
        let answer = answer.with_context(|| format!("{verb} of {name}"))?;
        let result: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let address = result["ips"][0]["address"].as_str();
        let address = address.and_then(|cidr| cidr.split('/').next()?.parse().ok());
        Ok((took, address))
    }
}

/// The most memory that a process ever had resident, in MiB (`VmHWM`).
pub fn peak_mib(pid: u32) -> anyhow::Result<f64> {
    mib_of(&format!("/proc/{pid}/status"), "VmHWM:")
}

/// What the kernel of the whole machine has in slabs that it cannot give back, in MiB:
/// elements of sets are there.
pub fn slab_mib() -> anyhow::Result<f64> {
    mib_of("/proc/meminfo", "SUnreclaim:")
}

/// A line of a file of the kernel, which has KiB.
fn mib_of(path: &str, name: &str) -> anyhow::Result<f64> {
    let text = fs::read_to_string(path).context(path.to_owned())?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kib.with_context(|| format!("{name} in {path}"))? / 1024.0)
}

/// The CPU time of all threads of a process.
pub fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let pid = Pid::from_raw(pid.cast_signed());
    Ok(clock_gettime(ClockId::pid_cpu_clock_id(pid)?)?.into())
}
