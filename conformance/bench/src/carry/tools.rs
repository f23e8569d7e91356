//! The loads: streams and packets by iperf3, requests by sockperf. Their servers
//! run as long as the network; a client runs once for each measurement. The servers
//! have the first CPU, the client the second, where there are two.

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

/// Where both servers listen.
const IPERF_PORT: &str = "5201";
const SOCKPERF_PORT: &str = "11111";
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

/// What one measurement came to.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// In a second of the clock.
    pub rate: f64,
    /// Microseconds of CPU for each unit.
    pub cpu_us: f64,
}

impl Load {
    /// All, in the order of the rows.
    pub const ALL: [Self; 3] = [Self::Stream, Self::Packets, Self::Requests];

    /// The rows of its rate and of its CPU.
    pub fn rows(self) -> [&'static str; 2] {
        match self {
            Self::Stream => ["TCP stream, Gbit/s", "TCP stream, µs of CPU for a MiB"],
            Self::Packets => [
                "UDP packets of 64 bytes, 1,000 a second",
                "UDP packet of 64 bytes, µs of CPU",
            ],
            Self::Requests => [
                "TCP requests with response, 1,000 a second",
                "TCP request with response, µs of CPU",
            ],
        }
    }

    fn client(self, address: &str, quick: bool) -> Vec<&str> {
        let mut words = match self {
            Self::Stream | Self::Packets => {
                vec!["iperf3", "--json", "-c", address, "-p", IPERF_PORT]
            }
            Self::Requests => {
                let at = ["-i", address, "-p", SOCKPERF_PORT];
                let how = ["--tcp", "-t", "1", "-m", "14"];
                return [&["sockperf", "ping-pong"], &at[..], &how[..]].concat();
            }
        };
        if self == Self::Packets {
            words.extend(["-u", "-b", "0", "-l", "64"]);
        }
        words.extend(if quick { ["-n", "1M"] } else { ["-t", "1"] });
        words
    }

    /// Puts this load on the path from `client` to the servers.
    pub fn measure(self, client: &Netns, servers: &Servers, quick: bool) -> anyhow::Result<Sample> {
        let words = self.client(&servers.address, quick);
        let (text, cpu) = wait_until(
            "the server to take a client",
            SERVER_LIMIT,
            || match attempt(client, servers, &words) {
                Ok(Attempt::TurnedAway(said)) => Err(said),
                Ok(Attempt::Measured(text, cpu)) => Ok(Ok((text, cpu))),
                Err(error) => Ok(Err(error)),
            },
        )??;
        let counts = match self {
            Self::Requests => sockperf_counts(&text),
            _ => iperf_counts(&text, self == Self::Packets),
        };
        let counts = counts.with_context(|| format!("no result in {words:?}: {text}"))?;
        Ok(Sample {
            rate: counts.a_second / if self == Self::Stream { 1e9 } else { 1e3 },
            cpu_us: cpu.as_secs_f64() * 1e6 / counts.units,
        })
    }
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
    let ended = client.enter(|| run(&mut pinned(Command::new("taskset"), 1, words)))?;
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
    address: String,
}

impl Servers {
    /// Starts them in `netns`, which has this address.
    pub fn start(netns: &Netns, address: &str) -> anyhow::Result<Self> {
        let folder = netns.lab().folder();
        let start = |words: &[&str]| {
            let log = folder.join(format!("{}-{}.log", words[0], netns.name()));
            let mut command = pinned(netns.command("taskset"), 0, words);
            Background::start(netns.lab(), &mut command, &log)
        };
        let listen = ["-i", address, "-p", SOCKPERF_PORT, "--tcp"];
        let servers = Self {
            iperf: start(&["iperf3", "-s", "-p", IPERF_PORT])?,
            sockperf: start(&[&["sockperf", "server"], &listen[..]].concat())?,
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

/// `taskset` with this program on this CPU, or on the first where there is only one.
fn pinned(mut taskset: Command, cpu: usize, words: &[&str]) -> Command {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    taskset.args(["-c", &cpu.min(cpus - 1).to_string()]);
    taskset.args(words);
    taskset
}

struct Counts {
    /// Bits, packets or requests.
    a_second: f64,
    /// All MiB, packets or requests.
    units: f64,
}

fn iperf_counts(text: &str, packets: bool) -> Option<Counts> {
    let json: Value = serde_json::from_str(text).ok()?;
    let sum = &json["end"][if packets { "sum" } else { "sum_received" }];
    let number = |key: &str| sum[key].as_f64();
    Some(if packets {
        let units = number("packets")? - number("lost_packets")?;
        let a_second = units / number("seconds")?;
        Counts { a_second, units }
    } else {
        Counts {
            a_second: number("bits_per_second")?,
            units: number("bytes")? / MIB,
        }
    })
}

/// Of lines such as `[Valid Duration] RunTime=0.550 sec; SentMessages=16221;
/// ReceivedMessages=16221`. The rate leaves out warming up, the CPU does not.
fn sockperf_counts(text: &str) -> Option<Counts> {
    let number = |line: &str, key: &str| {
        let line = text.lines().find(|text| text.contains(line))?;
        let (_, rest) = line.split_once(key)?;
        let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit());
        rest.get(..end.unwrap_or(rest.len()))?.parse::<f64>().ok()
    };
    let valid = "[Valid Duration]";
    Some(Counts {
        a_second: number(valid, "ReceivedMessages=")? / number(valid, "RunTime=")?,
        units: number("[Total Run]", "ReceivedMessages=")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_requests_is_of_the_valid_part_and_the_units_are_of_all() {
        let text = "sockperf: [Total Run] RunTime=1.000 sec; Warm up time=400 msec; \
                    SentMessages=73644; ReceivedMessages=73643\n\
                    sockperf: [Valid Duration] RunTime=0.550 sec; SentMessages=41821; \
                    ReceivedMessages=41800\n";
        let counts = sockperf_counts(text).unwrap();
        assert_eq!((counts.a_second, counts.units), (76_000.0, 73_643.0));
        assert!(sockperf_counts("sockperf: Test ended").is_none());
    }

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
    fn packets_are_counted_where_they_arrive() {
        let text = r#"{"end": {"sum": {"packets": 110, "lost_packets": 10, "seconds": 0.5},
                       "sum_received": {"bytes": 2097152, "bits_per_second": 5e9}}}"#;
        let counts = iperf_counts(text, true).unwrap();
        assert_eq!((counts.a_second, counts.units), (200.0, 100.0));
        let counts = iperf_counts(text, false).unwrap();
        assert_eq!((counts.a_second, counts.units), (5e9, 2.0));
    }
}
