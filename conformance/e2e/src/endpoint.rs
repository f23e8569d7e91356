//! The ends of a path: a pod, a node, the host outside.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::sched::{CloneFlags, setns};
use serde_json::Value;
use tweed_lab::{OUTSIDE, run};
use tweed_lab_kubernetes::{Cluster, Machine};

/// A network namespace and its address.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Its name, for messages.
    pub name: String,
    /// The address at which others reach it.
    pub address: IpAddr,
    /// A pod's address of IPv6, beside that.
    pub ipv6: Option<IpAddr>,
    netns: PathBuf,
}

impl Endpoint {
    /// A running pod, as the API shows it.
    pub fn pod(pod: &Value) -> Result<Self> {
        let name = text(pod, "/metadata/name")?;
        let address = text(pod, "/status/podIP")?;
        let process = process_of(text(pod, "/metadata/uid")?)
            .with_context(|| format!("looking for a process of the pod {name}"))?;
        Ok(Self {
            name: name.to_owned(),
            address: address.parse().with_context(|| address.to_owned())?,
            ipv6: ipv6(pod),
            netns: PathBuf::from(format!("/proc/{process}/ns/net")),
        })
    }

    /// A node.
    pub fn node(machine: &Machine) -> Self {
        Self {
            name: machine.name().to_owned(),
            address: machine.spec().address.into(),
            ipv6: None,
            netns: machine.netns().path(),
        }
    }

    /// The host outside the cluster.
    pub fn outside(cluster: &Cluster) -> Self {
        Self {
            name: "outside".to_owned(),
            address: OUTSIDE.into(),
            ipv6: None,
            netns: cluster.underlay().outside().path(),
        }
    }

    /// A command that runs in its namespace, with the machine's files.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.netns.display()));
        command.arg(program);
        command
    }

    /// Pings another endpoint. It is an error if any request is not answered.
    pub fn ping(&self, to: &Self, count: u32) -> Result<()> {
        self.ping_address(&to.name, to.address, count)
    }

    /// Checks that a ping of another endpoint gets no reply within two seconds.
    pub fn expect_no_ping_reply(&self, to: &Self) -> Result<()> {
        let mut command = self.command("ping");
        command.args(["-n", "-q", "-c", "1", "-W", "2"]);
        let ended = command.arg(to.address.to_string()).output();
        let output = ended.with_context(|| format!("pinging {} from {}", to.name, self.name))?;
        let report = String::from_utf8_lossy(&output.stdout);
        ensure!(
            report.contains(" 100% packet loss"),
            "{} must not reply to {}: {report}{}",
            to.name,
            self.name,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// Pings an address; `name` is for messages.
    pub fn ping_address(&self, name: &str, to: IpAddr, count: u32) -> Result<()> {
        let count = count.to_string();
        let mut command = self.command("ping");
        // `ping` waits as long as `-W` says only if no answer came before its last request.
        // Otherwise it waits twice the longest round trip, which is no time on a busy
        // machine. `-l` sends all requests before it looks for answers.
        command.args(["-n", "-q", "-W", "20", "-c", &count, "-l", &count]);
        command.arg(to.to_string());
        let failed = || format!("pinging {name} from {}", self.name);
        let report = run(&mut command).with_context(failed)?;
        // It exits with 0 if any request was answered.
        ensure!(report.contains(" 0% packet loss"), "{}: {report}", failed());
        Ok(())
    }

    /// Runs a closure on a new thread in its namespace. Sockets that it opens belong to
    /// that namespace.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let failed = || format!("entering the network namespace of {}", self.name);
        let netns = File::open(&self.netns).with_context(failed)?;
        let entered = std::thread::scope(|scope| {
            scope
                .spawn(move || setns(netns, CloneFlags::CLONE_NEWNET).map(|()| work()))
                .join()
        });
        match entered {
            Ok(outcome) => outcome.with_context(failed),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> Result<&'a str> {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.with_context(|| format!("{pointer} is missing in {object}"))
}

/// A pod's address of IPv6, if it has one.
fn ipv6(pod: &Value) -> Option<IpAddr> {
    let mut all = pod["status"]["podIPs"].as_array()?.iter();
    all.find_map(|one| one["ip"].as_str()?.parse().ok().filter(IpAddr::is_ipv6))
}

/// The ID of any process of a pod, in the machine's PID namespace. The name of a pod's
/// cgroup contains the pod's UID.
fn process_of(uid: &str) -> Result<u32> {
    let group = format!("pod{uid}/");
    let processes = fs::read_dir("/proc").context("/proc")?;
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .find(|process| {
            // A process that has ended meanwhile is skipped.
            fs::read_to_string(format!("/proc/{process}/cgroup"))
                .is_ok_and(|groups| groups.contains(&group))
        })
        .with_context(|| format!("no process is in a cgroup {group}"))
}
