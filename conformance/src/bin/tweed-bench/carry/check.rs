//! The loads of this bench beside other people's: iperf3 for streams and
//! packets, sockperf for request and response. Both are Debian packages.
//!
//! They run on the same path without overlay, in turn, pinned to the same CPUs.
//! The numbers need not be equal, as the programs differ (iperf3 counts at the
//! sender's pace and sleeps between; sockperf takes time stamps); they should be
//! of one size.

use std::fmt::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;
use tweed_lab::{Netns, Underlay, run, wait_until};

use super::load::{Load, Path, Timing};
use super::stage::{Crowd, Stage};
use super::subject::{Kind, Place};
use crate::report::{Machine, Results, json, spread};
use crate::stats::Spread;

/// Where the other tools' servers listen, from here on: a port that has just
/// been used cannot be listened on for a minute.
const FIRST_PORT: u16 = 5201;
/// The tools count in whole seconds.
const SECONDS: u64 = 1;

/// A load and the tool that does the like.
#[derive(Debug, Clone, Copy)]
enum Tool {
    Iperf(&'static [&'static str]),
    Sockperf(&'static [&'static str]),
}

const PAIRS: [(Load, Tool); 5] = [
    (Load::TcpStream, Tool::Iperf(&["-P", "1"])),
    (Load::TcpStreams, Tool::Iperf(&["-P", "4"])),
    (
        Load::UdpPackets,
        Tool::Iperf(&["-u", "-b", "0", "-l", "64"]),
    ),
    (Load::TcpPing, Tool::Sockperf(&["--tcp"])),
    (Load::UdpPing, Tool::Sockperf(&[])),
];

#[derive(Debug, Serialize)]
struct Row {
    load: Load,
    unit: &'static str,
    tool: &'static str,
    own: Option<Spread>,
    others: Option<Spread>,
    own_by_others: Option<Spread>,
}

/// Measures both in turn and gives a table of both.
pub fn run_beside(
    underlay: &Underlay,
    machine: &Machine,
    timing: Timing,
    rounds: usize,
    mut say: impl FnMut(&str),
) -> anyhow::Result<Results> {
    let nobody = Crowd { pods: 0, nodes: 0 };
    let stage = Stage::new(underlay, Kind::Nodes, 0, nobody)?;
    let path = stage.path(Place::Across)?;
    let mut ports = FIRST_PORT..;
    let mut rows = Vec::new();
    for (load, tool) in PAIRS {
        say(&format!("{} …", load.name()));
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            own.push(load.measure(&path, timing)?.rate);
            let port = ports.next().context("no port is left")?;
            others.push(tool.measure(&path, port)? / load.scale().1);
        }
        rows.push(Row {
            load,
            unit: load.scale().0,
            tool: tool.name(),
            own: Spread::of(&own),
            others: Spread::of(&others),
            own_by_others: Spread::of_ratios(&own, &others),
        });
    }
    let mut markdown = format!("{machine}. {rounds} rounds in turn.\n\n");
    markdown += "| load | in | this bench | other | by | this ÷ other |\n";
    markdown += "|---|---|--:|--:|---|--:|\n";
    for row in &rows {
        // Writing to a string cannot fail.
        let _ = writeln!(
            markdown,
            "| {} | {} | {} | {} | {} | {} |",
            row.load.name(),
            row.unit,
            spread(row.own),
            spread(row.others),
            row.tool,
            spread(row.own_by_others)
        );
    }
    Ok(Results {
        name: "carry-check",
        markdown,
        json: json(&rows)?,
        svg: String::new(),
    })
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Self::Iperf(_) => "iperf3",
            Self::Sockperf(_) => "sockperf",
        }
    }

    /// Bytes, packets or round trips a second.
    fn measure(self, path: &Path<'_>, port: u16) -> anyhow::Result<f64> {
        let address = path.address.to_string();
        let open = format!(":{port}");
        let (port, seconds) = (port.to_string(), SECONDS.to_string());
        match self {
            Self::Iperf(options) => {
                let server = ["iperf3", "-s", "-1", "-p", &port];
                let client = ["iperf3", "-J", "-c", &address, "-p", &port, "-t", &seconds];
                let text = beside(path, &open, &server, &[&client, options].concat())?;
                let json: Value = serde_json::from_str(&text).context("iperf3's answer")?;
                let end = &json["end"];
                let found = if options.contains(&"-u") {
                    let sum = &end["sum"];
                    let packets = |key: &str| sum[key].as_f64();
                    packets("packets")
                        .zip(packets("lost_packets"))
                        .zip(packets("seconds"))
                        .map(|((sent, lost), seconds)| (sent - lost) / seconds)
                } else {
                    end["sum_received"]["bits_per_second"]
                        .as_f64()
                        .map(|bits| bits / 8.0)
                };
                found.with_context(|| format!("no result in iperf3's answer: {text}"))
            }
            Self::Sockperf(options) => {
                let server = ["sockperf", "server", "-i", &address, "-p", &port];
                let client = [
                    "sockperf",
                    "ping-pong",
                    "-i",
                    &address,
                    "-p",
                    &port,
                    "-t",
                    &seconds,
                    "-m",
                    "14",
                ];
                let server = [&server, options].concat();
                let text = beside(path, &open, &server, &[&client, options].concat())?;
                observed(&text).with_context(|| format!("no result in sockperf's answer: {text}"))
            }
        }
    }
}

/// Round trips a second from a line such as `[Valid Duration] RunTime=0.550
/// sec; SentMessages=16221; ReceivedMessages=16221`.
fn observed(text: &str) -> Option<f64> {
    let line = text
        .lines()
        .find(|line| line.contains("[Valid Duration]"))?;
    let number = |key: &str| {
        let (_, rest) = line.split_once(key)?;
        let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit());
        rest.get(..end.unwrap_or(rest.len()))?.parse::<f64>().ok()
    };
    Some(number("ReceivedMessages=")? / number("RunTime=")?)
}

/// Runs a server and a client, each in its namespace and on its CPU, and gives
/// what the client prints.
fn beside(path: &Path<'_>, open: &str, server: &[&str], client: &[&str]) -> anyhow::Result<String> {
    let pinned = |netns: &Netns, cpu: &str, words: &[&str]| {
        let mut command = netns.command("taskset");
        command.args(["-c", cpu]).args(words);
        command
    };
    let mut listening: Command = pinned(path.server, "0", server);
    listening
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut serving = listening.spawn().context("starting the server")?;
    let outcome =
        wait_for(path.server, open).and_then(|()| Ok(run(&mut pinned(path.client, "1", client))?));
    // It may have ended by itself.
    let _ = serving.kill();
    serving.wait().context("waiting for the server")?;
    outcome
}

fn wait_for(netns: &Netns, open: &str) -> anyhow::Result<()> {
    let listening = || match netns.sh("ss -Htuln") {
        Ok(sockets) if sockets.contains(open) => Ok(()),
        Ok(sockets) => Err(sockets),
        Err(error) => Err(error.to_string()),
    };
    wait_until("the server to listen", Duration::from_secs(20), listening)?;
    Ok(())
}
