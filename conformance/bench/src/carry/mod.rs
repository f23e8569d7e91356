//! `tweed-bench carry`: what passes between two pods, beside what passes between
//! two nodes without an overlay, over an overlay made by hand, and over `ptp`; and
//! what the table `inet tweed` costs.
//!
//! ```text
//! network    nodes of their own for each network, a cable between them
//! handmade   what flannel sets up
//! tools      the loads: iperf3 and sockperf
//! ```
//!
//! All networks stand while any is measured. Rounds are many and short: what
//! disturbs one round disturbs only that one.

mod handmade;
mod network;
mod tools;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use tweed_lab::Underlay;

use crate::Options;
use crate::report::{Report, Table, progress};
use crate::stats::turns;
use network::{Network, NetworkKind, Place, Rules};
use tools::Load;

const KINDS: [NetworkKind; 4] = [
    NetworkKind::Tweed,
    NetworkKind::HandMade,
    NetworkKind::Nodes,
    NetworkKind::Ptp,
];

/// One column: which network, with which rules.
struct Subject {
    name: &'static str,
    kind: NetworkKind,
    rules: Option<Rules>,
}

const fn subject(name: &'static str, kind: NetworkKind, rules: Option<Rules>) -> Subject {
    Subject { name, kind, rules }
}

const TWEED: Subject = subject("tweed", NetworkKind::Tweed, Some(Rules::Whole));
/// The same measured once more: what differs is noise.
const AGAIN: Subject = subject("tweed, again", NetworkKind::Tweed, Some(Rules::Whole));
const ONLY_MASQUERADE: Subject = subject(
    "tweed, only masquerading",
    NetworkKind::Tweed,
    Some(Rules::OnlyMasquerade),
);
const NO_RULES: Subject = subject("tweed, no rules", NetworkKind::Tweed, Some(Rules::None));

/// The tables: where the ends are, and the columns.
const TABLES: [(Place, &str, &[Subject]); 2] = [
    (
        Place::Across,
        "From node to node",
        &[
            TWEED,
            AGAIN,
            ONLY_MASQUERADE,
            NO_RULES,
            subject("VXLAN made by hand", NetworkKind::HandMade, None),
            subject("no overlay, node to node", NetworkKind::Nodes, None),
        ],
    ),
    (
        Place::Same,
        "On one node",
        &[
            TWEED,
            AGAIN,
            ONLY_MASQUERADE,
            NO_RULES,
            subject("ptp, no rules", NetworkKind::Ptp, None),
        ],
    ),
];

/// Measures all of it.
pub fn measure(options: &Options, underlay: &Underlay, out: PathBuf) -> anyhow::Result<Report> {
    tools::check_installed()?;
    let rounds = options.rounds(12);
    let awake = stay_awake();
    let how = format!(
        "{rounds} rounds of one second for each cell. CPU is that of both ends, with nearly all \
         that the kernel does on the path.{}",
        match awake {
            Ok(_) => "",
            Err(_) => " Idle CPUs could not be kept from sleeping.",
        }
    );
    let mut report = Report::new("carry", out, &how);
    progress(&format!("{} networks …", KINDS.len()));
    let networks = KINDS
        .into_iter()
        .zip(0..)
        .map(|(kind, number)| {
            let network = Network::new(underlay, kind, number);
            let network = network.with_context(|| format!("building the network {kind:?}"))?;
            Ok((kind, network))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    for (_, title, subjects) in TABLES {
        let columns = subjects.iter().map(|subject| subject.name);
        report.tables.push(Table::new(title, columns));
    }
    for round in 0..rounds {
        progress(&format!("round {} of {rounds} …", round + 1));
        for load in Load::ALL {
            for ((place, _, subjects), table) in TABLES.iter().zip(&mut report.tables) {
                for at in turns(round, subjects.len()) {
                    // sockperf sleeps for two seconds each time.
                    if options.quick && load == Load::Requests && at > 0 {
                        continue;
                    }
                    let Subject { name, kind, rules } = &subjects[at];
                    let network = networks.iter().find(|(own, _)| own == kind);
                    let (_, network) = network.with_context(|| format!("no {kind:?}"))?;
                    if let Some(rules) = rules {
                        network.put(*rules)?;
                    }
                    let servers = network.servers(*place)?;
                    let sample = load
                        .measure(network.client()?, servers, options.quick)
                        .with_context(|| format!("{load:?} over {name}, {place:?}"))?;
                    let [rate, cpu] = load.rows();
                    table.record(rate, at, sample.rate);
                    table.record(cpu, at, sample.cpu_us);
                }
            }
        }
        report.save()?;
    }
    drop(awake);
    Ok(report)
}

/// Keeps idle CPUs from sleeping until the file is closed
/// (`Documentation/power/pm_qos_interface.rst`): to wake one takes as long as a
/// round trip. A kernel without power management has no such file and no need.
fn stay_awake() -> io::Result<File> {
    let mut file = OpenOptions::new()
        .write(true)
        .open("/dev/cpu_dma_latency")?;
    file.write_all(&0_i32.to_ne_bytes())?;
    Ok(file)
}
