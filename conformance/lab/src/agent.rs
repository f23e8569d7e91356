//! The agent of one node.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::background::Background;
use crate::error::LabError;
use crate::manifest::NodesFile;
use crate::netns::Netns;
use crate::node::Node;
use crate::run::wait_until;
use crate::strace::Strace;

/// The address that every agent listens on: each node has its own loopback.
const METRICS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9116);

/// Maximum time until an agent is ready; long enough for a machine that compiles
/// at the same time.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// Maximum time for an answer, for the same reason.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// How an agent is started.
#[derive(Debug, Clone, Default)]
pub struct AgentOptions {
    /// The arguments that name the source of Nodes.
    source: Vec<OsString>,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    strace: Option<Strace>,
    script: Option<String>,
}

impl AgentOptions {
    /// An agent that reads this node file, with defaults for everything else.
    #[must_use]
    pub fn new(nodes: &NodesFile) -> Self {
        Self {
            source: vec!["--nodes".into(), nodes.path().into()],
            ..Self::default()
        }
    }

    /// An agent that watches the API server of this kubeconfig.
    #[must_use]
    pub fn kubernetes(kubeconfig: impl Into<OsString>) -> Self {
        Self {
            source: vec!["--kubeconfig".into(), kubeconfig.into()],
            ..Self::default()
        }
    }

    /// Adds an argument, after the lab's own.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Starts it by a script of `sh`, which ends with `exec "$@"`: what that mounts, or
    /// gives up of its rights, is the agent's alone. Not together with [`AgentOptions::under`].
    #[must_use]
    pub fn by_script(mut self, script: impl Into<String>) -> Self {
        self.script = Some(script.into());
        self
    }

    /// Runs it beside `strace`.
    #[must_use]
    pub fn under(mut self, strace: &Strace) -> Self {
        self.strace = Some(strace.clone());
        self
    }
}

/// A running `tweed-agent`; killed on drop.
#[derive(Debug)]
pub struct Agent {
    node: String,
    process: Background,
    netns: String,
    conflist: PathBuf,
}

/// With `TWEED_LAB_FAST_PATH` all agents have the fast path that it names: every test of the
/// lab is then one of that too.
fn fast_path_of_all() -> Option<(&'static str, OsString)> {
    let mode = std::env::var_os("TWEED_LAB_FAST_PATH")?;
    Some(("TWEED_FAST_PATH", mode))
}

/// Whether all agents have the fast path, by `TWEED_LAB_FAST_PATH`.
#[must_use]
pub fn all_have_fast_path() -> bool {
    fast_path_of_all().is_some_and(|(_, mode)| mode != "off")
}

impl Agent {
    pub(crate) fn start(node: &Node, options: &AgentOptions) -> Result<Self, LabError> {
        let lab = node.lab();
        let program = lab.programs().own("tweed-agent")?;
        let mut command = match (&options.strace, &options.script) {
            (Some(strace), _) => strace.beside(node.netns(), program),
            (None, Some(script)) => {
                let mut command = node.netns().command("sh");
                command.args(["-c", script, "sh"]).arg(program);
                command
            }
            (None, None) => node.netns().command(program),
        };
        command
            .args(["--node-name", node.name()])
            .args(&options.source)
            .arg("--run-dir")
            .arg(node.run_dir())
            .arg("--cni-conf-dir")
            .arg(node.cni_conf_dir())
            .arg("--cni-bin-dir")
            .arg(node.cni_bin_dir())
            .args(["--metrics-addr", &METRICS.to_string()])
            .arg("--bpf-dir")
            .arg(node.bpf_dir()?)
            .args(&options.args)
            // What tests count and compare is not to depend on what nodes that have no agent
            // do not answer; those of probes switch them on.
            .env("TWEED_PROBE_PEERS", "off")
            .envs(fast_path_of_all())
            .envs(options.env.iter().map(|(key, value)| (key, value)));
        let process = Background::start(lab, &mut command, &node.folder().join("agent.log"))?;
        Ok(Self {
            node: node.name().to_owned(),
            process,
            netns: node.netns().name().to_owned(),
            conflist: node.cni_conf_dir().join("10-tweed.conflist"),
        })
    }

    /// The number of its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Waits until `/readyz` answers 200 and the CNI config exists: a runtime
    /// needs both before its first ADD.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] after 30 s, or as soon as the agent has ended,
    /// with its last answer and the last lines of its log.
    pub fn wait_ready(&mut self) -> Result<(), LabError> {
        let what = format!("the agent of {} to be ready", self.node);
        wait_until(&what, READY_LIMIT, || {
            let answer = match self.get("/readyz") {
                Ok((200, _)) if self.conflist.exists() => return Ok(Ok(())),
                Ok((200, _)) => format!("no {} yet", self.conflist.display()),
                Ok((code, body)) => format!("/readyz answers {code}: {}", body.trim()),
                Err(error) => error.chain(),
            };
            let log = self.process.last_lines(20);
            match self.process.exit_status() {
                // It cannot become ready any more: stop waiting.
                Ok(Some(status)) => Ok(Err(LabError::TimedOut {
                    what: what.clone(),
                    seconds: 0,
                    last: format!("it ended ({status}); its log ends with:\n{log}"),
                })),
                _ => Err(format!("{answer}; its log ends with:\n{log}")),
            }
        })?
    }

    /// Requests a path of the agent's HTTP server; returns status and body.
    ///
    /// # Errors
    /// [`LabError::Namespace`] if nobody answers within 30 s.
    pub fn get(&self, path: &str) -> Result<(u16, String), LabError> {
        self.get_within(path, ANSWER_LIMIT)
    }

    /// As [`Agent::get`], with another limit for each step of the exchange: an agent whose
    /// system calls fail may leave a request without an answer.
    ///
    /// # Errors
    /// [`LabError::Namespace`] if nobody answers in time.
    pub fn get_within(&self, path: &str, limit: Duration) -> Result<(u16, String), LabError> {
        let request =
            format!("GET {path} HTTP/1.0\r\nHost: {METRICS}\r\nConnection: close\r\n\r\n");
        let exchange = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&METRICS, limit)?;
            stream.set_read_timeout(Some(limit))?;
            stream.write_all(request.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let failed = |source| LabError::Namespace {
            action: "ask the agent",
            namespace: self.netns.clone(),
            source,
        };
        let answer = Netns::enter_named(&self.netns, exchange)?.map_err(failed)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let code = head.split_whitespace().nth(1).and_then(|c| c.parse().ok());
        match code {
            Some(code) => Ok((code, body.to_owned())),
            None => Err(failed(std::io::Error::other(format!(
                "not an HTTP answer: {head:?}"
            )))),
        }
    }

    /// The value of a metric, by its full name with labels as printed.
    ///
    /// # Errors
    /// As [`Agent::get`].
    pub fn metric(&self, name: &str) -> Result<Option<f64>, LabError> {
        let (_, body) = self.get("/metrics")?;
        Ok(body.lines().find_map(|line| {
            let (key, value) = line.rsplit_once(' ')?;
            (key == name).then(|| value.parse().ok())?
        }))
    }

    /// Ends it with SIGTERM and waits.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] if it does not end within 30 s.
    pub fn stop(mut self) -> Result<ExitStatus, LabError> {
        self.process.stop(Signal::SIGTERM)
    }

    /// Ends it with SIGKILL and waits.
    ///
    /// # Errors
    /// As [`Agent::stop`].
    pub fn kill9(mut self) -> Result<ExitStatus, LabError> {
        self.process.stop(Signal::SIGKILL)
    }

    /// The process: its number, its log, other signals.
    #[must_use]
    pub fn process(&mut self) -> &mut Background {
        &mut self.process
    }

    /// The whole log, including that of earlier agents of this node.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.output()
    }
}

impl Drop for Agent {
    #[expect(
        clippy::print_stderr,
        reason = "the end of the agents' logs explains most failed tests"
    )]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.process.last_lines(15);
            eprintln!("the agent's log on {} ends with:\n{log}\n", self.node);
        }
    }
}
