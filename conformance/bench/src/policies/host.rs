//! A node with an agent over an API server of its own, and pods on it.

use std::ffi::OsStr;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tweed_lab::{Agent, AgentOptions, Background, Node, NodeSpec, Pod, Underlay};

use super::objects::{NAMESPACE, NAMESPACES, PODS, namespace, pod};
use crate::attach::call::Call;
use crate::cost;
use tweed_lab_api::{NODES, Server, Serves};

/// A pod, and its address.
pub struct Attached {
    pub pod: Pod,
    pub address: IpAddr,
    /// When its ADD had ended.
    pub since: Instant,
}

/// A node. Its server has its Node and the namespace, and what is put into it.
pub struct Host {
    // In the order in which they end.
    peer: Option<Background>,
    agent: Option<Agent>,
    pub server: Server,
    options: AgentOptions,
    /// How programs on the node reach the server.
    pub kubeconfig: PathBuf,
    pub node: Node,
    /// That of the pods that are attached from now on.
    pub namespace: &'static str,
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
        let server = Server::start(&node, Serves::All, None, [])?;
        server.put(NODES, [node.manifest().to_json()]);
        server.put(NAMESPACES, [namespace(NAMESPACE)]);
        let kubeconfig = server.kubeconfig(&node)?;
        let mut host = Self {
            peer: None,
            agent: None,
            server,
            options: AgentOptions::kubernetes(&kubeconfig),
            kubeconfig,
            node,
            namespace: NAMESPACE,
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

    /// Starts a program of others, whose cost is measured from now on in place of the
    /// agent's; gives the moment before.
    pub fn start_peer<S: AsRef<OsStr>>(
        &mut self,
        program: &Path,
        arguments: impl IntoIterator<Item = S>,
    ) -> anyhow::Result<Instant> {
        let name = program.file_name().context("a program has a name")?;
        let log = self.node.folder().join(name).with_extension("log");
        let mut command = self.node.netns().command(program);
        command.args(arguments);
        let start = Instant::now();
        let peer = Background::start(self.node.lab(), &mut command, &log);
        self.peer = Some(peer.with_context(|| program.display().to_string())?);
        Ok(start)
    }

    /// Kills the program of others; the kernel keeps what it has.
    pub fn stop_peer(&mut self) -> anyhow::Result<()> {
        if let Some(mut peer) = self.peer.take() {
            peer.stop(Signal::SIGKILL)?;
        }
        Ok(())
    }

    /// What the program of others has said last.
    pub fn last_lines_of_peer(&self) -> String {
        let lines = |peer: &Background| format!("; its log ends:\n{}", peer.last_lines(10));
        self.peer.as_ref().map(lines).unwrap_or_default()
    }

    /// Whose cost is measured.
    fn pid(&self) -> anyhow::Result<u32> {
        let agent = self.agent.as_ref().map(Agent::pid);
        let pid = self.peer.as_ref().map(Background::pid).or(agent);
        pid.context("no program whose cost is measured")
    }

    /// The most memory that the program ever had resident, in MiB (`VmHWM`), without its
    /// children.
    pub fn peak_mib(&self) -> anyhow::Result<f64> {
        cost::memory_mib(self.pid()?, "VmHWM:")
    }

    /// What the program has resident now, in MiB.
    pub fn resident_mib(&self) -> anyhow::Result<f64> {
        cost::memory_mib(self.pid()?, "VmRSS:")
    }

    /// The value of a metric of the agent, 0 if it has none of this name.
    pub fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let agent = self.agent.as_ref().context("no agent")?;
        Ok(agent.metric(name)?.unwrap_or_default())
    }

    /// The CPU time of the program, and of its children that have ended.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        let pid = self.pid()?;
        Ok(cost::cpu(pid)? + cost::cpu_of_children(pid)?)
    }

    /// A pod of this node as the API has it.
    pub fn object(&self, name: &str, app: &str, address: Option<IpAddr>) -> Value {
        let mut object = pod(&self.full(name), self.node.name(), app, address);
        object["metadata"]["namespace"] = self.namespace.into();
        object["status"]["hostIP"] = json!(self.node.address());
        object["status"]["hostIPs"] = json!([{ "ip": self.node.address() }]);
        object
    }

    /// The name of a pod: no other node has it.
    pub fn full(&self, name: &str) -> String {
        format!("{}-{name}", self.node.name())
    }

    /// A pod on this node with this label, whose address the API server is told as soon as
    /// it is known.
    pub fn attach(&self, name: &str, app: &str) -> anyhow::Result<Attached> {
        self.server.put(PODS, [self.object(name, app, None)]);
        let pod = Pod::new(self.node.lab(), &self.full(name))?;
        let (_, given) = self.call("ADD", &pod, &self.full(name))?;
        let since = Instant::now();
        let address = given.context("ADD gives no address")?;
        self.server
            .put(PODS, [self.object(name, app, Some(address))]);
        Ok(Attached {
            pod,
            address,
            since,
        })
    }

    /// Takes a pod away again.
    pub fn detach(&self, name: &str, attached: &Attached) -> anyhow::Result<()> {
        self.call("DEL", &attached.pod, &self.full(name))?;
        self.server.delete(PODS, NAMESPACE, &self.full(name));
        Ok(())
    }

    /// One ADD of a pod, and its DEL; the time of the ADD.
    pub fn add_and_del(&self, pod: &Pod, name: &str) -> anyhow::Result<Duration> {
        let name = self.full(name);
        let (took, _) = self.call("ADD", pod, &name)?;
        self.call("DEL", pod, &name)?;
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
                    format!(
                        "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={name}",
                        self.namespace
                    ),
                ),
            ],
            stdin: config,
        };
        // A program that entered the namespace would be part of the time.
        let (took, made) = (self.node.netns())
            .enter(|| {
                let start = Instant::now();
                let answer = call.make();
                (start.elapsed(), answer)
            })
            .with_context(|| format!("{verb} of {name}"))?;
        let answer = made.with_context(|| format!("{verb} of {name}"))?;
        let result: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let given = result["ips"][0]["address"].as_str();
        let address = given.and_then(|cidr| cidr.split('/').next()?.parse().ok());
        Ok((took, address))
    }
}
