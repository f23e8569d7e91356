//! The loads: streams and packets by iperf3, requests by sockperf. Their servers
//! run as long as the network; a client runs once for each measurement. The servers
//! have the first CPU, the client the second, where there are two and CPU is measured.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use serde_json::Value;
use tweed_lab::{Background, LabError, Netns, run, wait_until};

use crate::cost;

/// Where both servers listen if nothing else is said.
pub const IPERF_PORT: u16 = 5201;
pub const SOCKPERF_PORT: u16 = 11_111;
const MIB: f64 = 1_048_576.0;
/// Maximum time until a server that has started or has served a client takes the next one.
const SERVER_LIMIT: Duration = Duration::from_secs(30);

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// One TCP stream.
    Stream,
    /// UDP packets with 64 bytes in them, as fast as the sender can.
    Packets,
    /// Request and response of 14 bytes on one TCP connection.
    Requests,
}

/// Checks that the programs are there which this module runs.
pub fn check_installed() -> anyhow::Result<()> {
    for program in ["iperf3", "sockperf", "taskset", "ss"] {
        let mut found = Command::new("which");
        run(found.arg(program)).with_context(|| {
            format!("{program} is missing: `conformance/setup.sh bench` installs it")
        })?;
    }
    Ok(())
}

impl Load {
    /// All, in the order of the rows.
    pub const ALL: [Self; 3] = [Self::Stream, Self::Packets, Self::Requests];

    /// Its row.
    pub fn row(self) -> &'static str {
        match self {
            Self::Stream => "TCP stream, µs of CPU for a MiB",
            Self::Packets => "UDP packet of 64 bytes, µs of CPU",
            Self::Requests => "TCP request with response, µs of CPU",
        }
    }

    /// The command line of its client.
    pub fn client(self, address: &str, quick: bool) -> Vec<&str> {
        let mut words = match self {
            Self::Stream | Self::Packets => {
                vec!["iperf3", "--json", "-c", address]
            }
            Self::Requests => {
                let how = ["--tcp", "-t", "1", "-m", "14"];
                return [&["sockperf", "ping-pong", "-i", address], &how[..]].concat();
            }
        };
        if self == Self::Packets {
            words.extend(["-u", "-b", "0", "-l", "64"]);
        }
        words.extend(if quick { ["-n", "1M"] } else { ["-t", "1"] });
        words
    }

    /// Puts this load on the path from `client` to the servers; gives the microseconds of
    /// CPU for a MiB, a packet, or a request.
    pub fn measure(self, client: &Netns, servers: &Servers, quick: bool) -> anyhow::Result<f64> {
        let words = self.client(&servers.address, quick);
        let (text, cpu) = talk(client, servers, &words)?;
        let found = match self {
            Self::Requests => requests(&text),
            _ => received(&text, self == Self::Packets),
        };
        let count = found.with_context(|| format!("no result in {words:?}: {text}"))?;
        Ok(cpu.as_secs_f64() * 1e6 / count)
    }
}

/// Runs a client, once the server takes it; gives what it printed, and the CPU of both.
pub fn talk(
    client: &Netns,
    servers: &Servers,
    words: &[&str],
) -> anyhow::Result<(String, Duration)> {
    let limit = SERVER_LIMIT;
    wait_until("the server to take a client", limit, || {
        match attempt(client, servers, words) {
            Ok(Attempt::TurnedAway(said)) => Err(said),
            Ok(Attempt::Measured(text, cpu)) => Ok(Ok((text, cpu))),
            Err(error) => Ok(Err(error)),
        }
    })?
}

/// What became of one run of a client.
enum Attempt {
    /// What it printed, and the CPU that it and the servers took.
    Measured(String, Duration),
    /// What it printed when the server did not take it.
    TurnedAway(String),
}

fn attempt(client: &Netns, servers: &Servers, words: &[&str]) -> anyhow::Result<Attempt> {
    let before = servers.cpu()?;
    let cpu = servers.is_pinned.then_some(1);
    let ended = client.enter(|| run(&mut on_cpu(Command::new("taskset"), cpu, words)))?;
    match ended {
        // With `--json` iperf3 exits with 0 all the same.
        Ok(said) | Err(LabError::Failed { output: said, .. }) if is_turned_away(&said) => {
            Ok(Attempt::TurnedAway(said))
        }
        Ok(text) => Ok(Attempt::Measured(text, servers.cpu()? - before)),
        Err(error) => Err(error.into()),
    }
}

/// The server of iperf3 serves one client at a time. After each it closes its socket and
/// opens another one, and until then it turns away the next client, which may come before
/// it has noticed that the last one has ended.
fn is_turned_away(output: &str) -> bool {
    let said = [
        "the server is busy running a test",
        "Connection refused",
        "Connection reset by peer",
        "Broken pipe",
        "control socket has closed unexpectedly",
    ];
    said.iter().any(|words| output.contains(words))
}

/// The servers at one end of a path.
pub struct Servers {
    iperf: Background,
    sockperf: Background,
    is_pinned: bool,
    /// Where they listen.
    pub address: String,
}

impl Servers {
    /// Starts them in `netns`, which has this address: they and their clients on a CPU each,
    /// or on any.
    pub fn start(netns: &Netns, address: &str, is_pinned: bool) -> anyhow::Result<Self> {
        let folder = netns.lab().folder();
        let start = |words: &[&str]| {
            let log = folder.join(format!("{}-{}.log", words[0], netns.name()));
            let cpu = is_pinned.then_some(0);
            let mut command = on_cpu(netns.command("taskset"), cpu, words);
            Background::start(netns.lab(), &mut command, &log)
        };
        let servers = Self {
            iperf: start(&["iperf3", "-s"])?,
            sockperf: start(&["sockperf", "server", "-i", address, "--tcp"])?,
            is_pinned,
            address: address.to_owned(),
        };
        for port in [IPERF_PORT, SOCKPERF_PORT] {
            wait_until("a server to listen", SERVER_LIMIT, || {
                let sockets = netns.sh("ss -Htln").map_err(|error| error.to_string())?;
                if sockets.contains(&format!(":{port}")) {
                    Ok(())
                } else {
                    Err(sockets)
                }
            })?;
        }
        Ok(servers)
    }

    /// CPU time of the servers, of all programs that this one has waited for, and
    /// of the kernel's threads that handle packets where the programs do not.
    fn cpu(&self) -> anyhow::Result<Duration> {
        let mut all = Duration::ZERO;
        for server in [&self.iperf, &self.sockperf] {
            all += cost::cpu(server.pid())?;
        }
        let children = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        let time = |time: TimeVal| Duration::from_micros(time.num_microseconds().unsigned_abs());
        Ok(all + time(children.user_time()) + time(children.system_time()) + ksoftirqd()?)
    }
}

/// CPU time of all `ksoftirqd` threads.
fn ksoftirqd() -> anyhow::Result<Duration> {
    let mut all = Duration::ZERO;
    for entry in fs::read_dir("/proc").context("/proc")? {
        let folder: PathBuf = entry.context("/proc")?.path();
        // A process may end meanwhile.
        let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
        if name.starts_with("ksoftirqd/") {
            let schedule = fs::read_to_string(folder.join("schedstat")).unwrap_or_default();
            let nanoseconds = schedule.split(' ').next().and_then(|n| n.parse().ok());
            all += Duration::from_nanos(nanoseconds.unwrap_or_default());
        }
    }
    Ok(all)
}

/// `taskset` with this program on this CPU, or on the first where there is only one; on any
/// without one.
fn on_cpu(mut taskset: Command, cpu: Option<usize>, words: &[&str]) -> Command {
    let last = std::thread::available_parallelism().map_or(1, usize::from) - 1;
    let cpus = cpu.map_or(format!("0-{last}"), |cpu| cpu.min(last).to_string());
    taskset.args(["-c", &cpus]);
    taskset.args(words);
    taskset
}

/// The packets that arrived, or all MiB, of iperf3's report.
fn received(text: &str, packets: bool) -> Option<f64> {
    let json: Value = serde_json::from_str(text).ok()?;
    if packets {
        let sum = &json["end"]["sum"];
        return Some(sum["packets"].as_f64()? - sum["lost_packets"].as_f64()?);
    }
    Some(json["end"]["sum_received"]["bytes"].as_f64()? / MIB)
}

/// All requests, of a line such as `[Total Run] RunTime=1.000 sec; SentMessages=16221;
/// ReceivedMessages=16221`.
fn requests(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains("[Total Run]"))?;
    let (_, count) = line.rsplit_once("ReceivedMessages=")?;
    count.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_turned_away_by_a_server_that_is_not_ready_and_fails_otherwise() {
        for said in [
            "the server is busy running a test. try again later",
            "unable to connect to server: Connection refused",
        ] {
            assert!(is_turned_away(said), "{said}");
        }
        let failed = "unable to connect to server: No route to host";
        assert!(!is_turned_away(failed));
    }

    #[test]
    fn what_has_arrived_is_counted() {
        let text = r#"{"end": {"sum": {"packets": 110, "lost_packets": 10},
                       "sum_received": {"bytes": 2097152}}}"#;
        assert_eq!(
            (received(text, true), received(text, false)),
            (Some(100.0), Some(2.0))
        );
        let text = "sockperf: [Total Run] RunTime=1.000 sec; Warm up time=400 msec; \
                    SentMessages=73644; ReceivedMessages=73643\n\
                    sockperf: [Valid Duration] RunTime=0.550 sec; ReceivedMessages=41800\n";
        assert_eq!(requests(text), Some(73_643.0));
        assert_eq!(requests("sockperf: Test ended"), None);
    }
}
