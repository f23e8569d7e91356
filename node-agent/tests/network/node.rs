//! A node to run the agent on: a network namespace of the test's own, and the
//! whole agent in a thread of it.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Parser;
use nix::sched::{CloneFlags, unshare};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tweed_agent::agent::{self, Ending};
use tweed_agent::config::{Config, Flags};
use tweed_agent::serve::http;
use tweed_agent::serve::metrics::Metrics;
use tweed_agent::serve::status::StatusBoard;
use tweed_agent::sources::{ManifestFile, Sources};
use tweed_agent::tasks::Tasks;
use tweed_ctl::args::Cli;
use tweed_ctl::exit::Exit;
use tweed_ctl::output::Page;

/// How long anything may take here before it is taken for broken. What is
/// promised within 2 s is measured by the lab, on a machine that is not busy
/// with tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// A namespace with an underlay interface, and folders for the agent.
pub struct Node {
    folder: TempDir,
}

/// The agent, running on a node. Dropped, it stops.
pub struct Agent {
    stop: CancellationToken,
    thread: Option<JoinHandle<Ending>>,
    board: Arc<StatusBoard>,
    registry: Registry,
}

impl Node {
    /// Moves the calling thread into a new namespace, in which `eth0` has
    /// 192.0.2.1/24. Every test has a thread of its own.
    pub fn new() -> Self {
        unshare(CloneFlags::CLONE_NEWNET)
            .expect("cannot make a network namespace: these tests need root");
        let node = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        ip("link set lo up");
        ip("link add eth0 type veth peer name wire");
        ip("link set wire up");
        ip("link set eth0 up");
        ip("address add 192.0.2.1/24 dev eth0");
        node
    }

    /// The same with a way to more nodes than `eth0` is connected to.
    pub fn routed() -> Self {
        let node = Self::new();
        ip("route add 172.16.0.0/12 via 192.0.2.254");
        node
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the node file, by rename: each node's number, and with it its
    /// name, address and pod CIDR.
    pub fn list(&self, nodes: impl IntoIterator<Item = u32>) {
        self.write_nodes(&nodes.into_iter().map(manifest).collect::<String>());
    }

    pub fn write_nodes(&self, text: &str) {
        let new = self.path("nodes.new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.path("nodes.yaml")).unwrap();
    }

    /// Waits until a file of the agent's holds `text`.
    pub fn publishes(&self, name: &str, text: &str) {
        eventually(|| match fs::read_to_string(self.path(name)) {
            Ok(content) if content.contains(text) => Ok(()),
            other => Err(format!("{name} is {other:?}")),
        });
    }

    /// Gives `eth0` another address in place of 192.0.2.1, and the own Node too.
    pub fn moves_to(&self, address: &str) {
        ip("address delete 192.0.2.1/24 dev eth0");
        ip(&format!("address add {address}/24 dev eth0"));
        let own = manifest(1).replace("192.0.2.1}", &format!("{address}}}"));
        self.write_nodes(&[own, manifest(2)].concat());
    }

    /// The config of the agent as `n1`, with more flags.
    pub fn config(&self, flags: &[&str]) -> Config {
        let text = |name: &str| self.path(name).display().to_string();
        let (nodes, run, conf, bin) = (text("nodes.yaml"), text("run"), text("net.d"), text("bin"));
        fs::create_dir_all(&conf).unwrap();
        fs::create_dir_all(&bin).unwrap();
        let mut all = vec!["tweed-agent", "--node-name", "n1", "--nodes", &nodes];
        all.extend(["--cni-conf-dir", &conf, "--cni-bin-dir", &bin]);
        if !flags.contains(&"--run-dir") {
            all.extend(["--run-dir", &run]);
        }
        // The other nodes of these tests are not there.
        if !flags.iter().any(|flag| flag.starts_with("--probe-peers")) {
            all.push("--probe-peers=off");
        }
        all.extend(flags);
        Flags::try_parse_from(all)
            .unwrap()
            .resolve(|| unreachable!("the name is given"))
            .unwrap()
    }

    /// Runs the agent over other sources, until it ends; one that does not is stopped.
    pub fn run_over(&self, sources: impl Sources) -> anyhow::Result<Ending> {
        let metrics = Metrics::register().1;
        let board = Arc::new(StatusBoard::new(Instant::now()));
        let stop = CancellationToken::new();
        let late = stop.clone();
        std::thread::spawn(move || {
            std::thread::sleep(PATIENCE);
            late.cancel();
        });
        run_agent(self.config(&[]), sources, board, metrics, stop)
    }

    /// Runs `--once` over other sources, and gives it so long.
    pub fn once_within(&self, once_limit: Duration, sources: impl Sources) -> Ending {
        let config = Config {
            once_limit,
            ..self.config(&["--once"])
        };
        let board = Arc::new(StatusBoard::new(Instant::now()));
        let (_, metrics) = Metrics::register();
        run_agent(config, sources, board, metrics, CancellationToken::new()).unwrap()
    }

    /// Starts the agent as `n1`, with more flags.
    pub fn start(&self, flags: &[&str]) -> Agent {
        let sources = ManifestFile {
            path: self.path("nodes.yaml"),
            own_node: "n1".to_owned(),
        };
        self.start_over(flags, sources)
    }

    /// The same over other sources.
    pub fn start_over(&self, flags: &[&str], sources: impl Sources) -> Agent {
        let config = self.config(flags);
        let (registry, metrics) = Metrics::register();
        let board = Arc::new(StatusBoard::new(Instant::now()));
        let stop = CancellationToken::new();
        let (for_thread, token) = (Arc::clone(&board), stop.clone());
        let thread = std::thread::spawn(move || {
            run_agent(config, sources, for_thread, metrics, token).unwrap()
        });
        Agent {
            stop,
            thread: Some(thread),
            board,
            registry,
        }
    }
}

fn run_agent(
    config: Config,
    sources: impl Sources,
    board: Arc<StatusBoard>,
    metrics: Metrics,
    stop: CancellationToken,
) -> anyhow::Result<Ending> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let tasks = Tasks::default();
    let registries = Vec::new();
    let served = Arc::new(http::Sources {
        board,
        metrics,
        registries,
    });
    let run = agent::run(Arc::new(config), sources, served, tasks, stop);
    runtime.block_on(run)
}

impl Agent {
    /// Waits until the agent says ready.
    pub fn ready(&self) {
        eventually(|| match self.problems() {
            problems if problems.is_empty() => Ok(()),
            problems => Err(problems.join("\n")),
        });
    }

    /// Waits until the agent is ready, whatever it warns of.
    pub fn serves(&self) {
        eventually(|| match self.board.status(Instant::now()) {
            status if status.ready() => Ok(()),
            status => Err(format!("{:?}", status.problems)),
        });
    }

    /// Whether the agent says ready now, whatever it warns of.
    pub fn is_ready(&self) -> bool {
        self.board.status(Instant::now()).ready()
    }

    /// What the board says, without what these tests leave out on purpose: the
    /// plugins.
    pub fn problems(&self) -> Vec<String> {
        let status = self.board.status(Instant::now());
        let problems = status.problems.iter();
        problems
            .filter(|problem| {
                let kind = problem.kind.word();
                !kind.starts_with("plugin") && kind != "portmap-missing"
            })
            .map(|problem| format!("{}: {problem}", problem.kind))
            .collect()
    }

    /// Waits until a problem of this kind is reported, and gives its text.
    pub fn complains(&self, kind: &str) -> String {
        let mut found = String::new();
        eventually(|| {
            let problems = self.problems();
            found = problems
                .iter()
                .find(|problem| problem.starts_with(kind))
                .ok_or_else(|| format!("no {kind} among {problems:?}"))?
                .clone();
            Ok(())
        });
        found
    }

    /// Waits until no problem of this kind is reported.
    pub fn resolves(&self, kind: &str) {
        eventually(|| {
            let problems = self.problems();
            if problems.iter().any(|problem| problem.starts_with(kind)) {
                Err(format!("{problems:?}"))
            } else {
                Ok(())
            }
        });
    }

    /// A metric's value; a counter that never counted is 0.
    pub fn metric(&self, name: &str) -> u64 {
        self.text()
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
            .map_or(0, |value| value.parse().unwrap())
    }

    /// How often anything was put back.
    pub fn drift_repaired(&self) -> u64 {
        self.text()
            .lines()
            .filter(|line| line.starts_with("tweed_drift_repaired_total{"))
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
            .sum()
    }

    /// All metrics, as `/metrics` gives them.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }

    /// Waits for the end of one whole pass that begins after this call.
    pub fn passes(&self) {
        let passes = || self.metric("tweed_reconcile_duration_seconds_count");
        let before = passes();
        eventually(|| match passes() {
            now if now >= before + 2 => Ok(()),
            now => Err(format!("{now} passes")),
        });
    }

    /// Stops it as SIGTERM does.
    pub fn stop(mut self) {
        assert_eq!(self.end(), Some(Ending::Stopped));
    }

    /// Stops it as SIGTERM does, and gives what the board said last.
    pub fn last_words(mut self) -> Vec<String> {
        assert_eq!(self.end(), Some(Ending::Stopped));
        self.problems()
    }

    /// Waits for the end of `--once`.
    pub fn ending(mut self) -> Ending {
        let thread = self.thread.take().unwrap();
        thread.join().unwrap()
    }

    /// Tells it to end as SIGTERM does, and does not wait for that.
    pub fn cancel(&self) {
        self.stop.cancel();
    }

    fn end(&mut self) -> Option<Ending> {
        self.cancel();
        self.thread.take().and_then(|thread| thread.join().ok())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

pub fn manifest(n: u32) -> String {
    format!(
        "---\napiVersion: v1\nkind: Node\nmetadata: {{name: n{n}}}\n\
         spec: {{podCIDRs: [{}]}}\n\
         status: {{addresses: [{{type: InternalIP, address: {}}}]}}\n",
        pod_cidr(n),
        address(n)
    )
}

/// The pod CIDR of node `n`: 10.0.1.0/24 for the first.
pub fn pod_cidr(n: u32) -> String {
    format!("10.{}.{}.0/24", n / 256, n % 256)
}

/// The address of node `n`: 192.0.2.1 for the first, then elsewhere too.
pub fn address(n: u32) -> String {
    match n {
        0..=250 => format!("192.0.2.{n}"),
        _ => format!("172.{}.{}.1", 16 + n / 256, n % 256),
    }
}

/// Runs `ip`, in the calling thread's namespace, and gives what it prints.
pub fn ip(arguments: &str) -> String {
    run("ip", arguments)
}

/// Runs a program that must succeed.
pub fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program)
        .args(arguments.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; these tests need iproute2"));
    assert!(
        output.status.success(),
        "{program} {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether a program succeeds, for what may fail.
pub fn succeeds(program: &str, arguments: &str) -> bool {
    let output = Command::new(program)
        .args(arguments.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    output.status.success()
}

/// Runs all of it in one `ip`, which goes on after what fails.
pub fn batch(lines: &str) {
    let mut ip = Command::new("ip")
        .args(["-force", "-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = ip.stdin.take().unwrap();
    input.write_all(lines.as_bytes()).unwrap();
    drop(input);
    ip.wait().unwrap();
}

/// How `tweedctl` ends on this node, and what it prints: to stdout, or why it fails.
pub fn tweedctl(node: &Node, arguments: &[&str]) -> (Exit, String) {
    let run_dir = node.path("run");
    let flags = ["--run-dir", run_dir.to_str().unwrap()];
    let typed = ["tweedctl"].iter().chain(arguments).chain(&flags);
    let cli = Cli::try_parse_from(typed).unwrap();
    let mut out = Vec::new();
    let done = tweed_ctl::run(&cli, &mut Page::new(&mut out, cli.common.output));
    let exit = done.unwrap_or_else(|error| {
        out = format!("{error:#}").into_bytes();
        Exit::Undetermined
    });
    (exit, String::from_utf8(out).unwrap())
}

/// Waits until `look` finds what it looks for.
pub fn eventually(look: impl FnMut() -> Result<(), String>) {
    eventually_within(PATIENCE, look);
}

/// As [`eventually`], with another limit.
pub fn eventually_within(limit: Duration, mut look: impl FnMut() -> Result<(), String>) {
    let begin = Instant::now();
    loop {
        match look() {
            Ok(()) => return,
            Err(why) if begin.elapsed() > limit => panic!("in vain: {why}"),
            // Most looks run programs, which take processor time from the agent.
            Err(_) => {
                let pause = (begin.elapsed() / 8).min(Duration::from_millis(250));
                std::thread::sleep(pause.max(Duration::from_millis(10)));
            }
        }
    }
}

/// All that is tweed's in this namespace, with the eyes of `ip` and `bridge`:
/// without indices and counters, so that it can be compared.
pub fn picture() -> String {
    let shown = ip("-d -o link show type vxlan");
    let links: Vec<String> = shown
        .lines()
        .map(|line| {
            line.split_once(": ")
                .map_or(line, |(_, rest)| rest)
                .to_owned()
        })
        .collect();
    [
        links.join("\n"),
        ip("-4 -br address show dev tweed.1"),
        ip("route show proto 116"),
        sorted(&run("bridge", "fdb show dev tweed.1")),
        sorted(&ip("neighbour show dev tweed.1 nud permanent")),
    ]
    .join("\n")
}

fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}
