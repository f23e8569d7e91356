//! `tweed-bench carry`: what passes between two pods, beside what passes between
//! two nodes without an overlay, over an overlay made by hand, and over `ptp`.
//!
//! ```text
//! network    nodes of their own for each network, a cable between them
//! handmade   what flannel sets up
//! fast       with policies and Services: the fast path beside the kernel's
//! tools      the loads: iperf3 and sockperf
//! ```
//!
//! All networks of a table stand while any is measured. Rounds are many and short: what
//! disturbs one round disturbs only that one.

mod fast;
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
use network::{Network, NetworkKind, Place};
use tools::Load;

const KINDS: [NetworkKind; 4] = [
    NetworkKind::Tweed,
    NetworkKind::HandMade,
    NetworkKind::Nodes,
    NetworkKind::Ptp,
];

/// A column: its name, and the network that is measured.
type Subject = (&'static str, NetworkKind);

/// The tables: where the ends are, and the columns.
const TABLES: [(Place, &str, &[Subject]); 2] = [
    (
        Place::Across,
        "From node to node",
        &[
            ("tweed", NetworkKind::Tweed),
            ("VXLAN made by hand", NetworkKind::HandMade),
            ("no overlay, node to node", NetworkKind::Nodes),
        ],
    ),
    (
        Place::Same,
        "On one node",
        &[
            ("tweed", NetworkKind::Tweed),
            ("ptp, no rules", NetworkKind::Ptp),
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
         that the kernel does on the path; times are measured without CPUs of their own.{}",
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
            let built = Network::new(underlay, kind, number);
            let network = built.with_context(|| format!("building the network {kind:?}"))?;
            Ok((kind, network))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    for (_, title, subjects) in TABLES {
        let columns: Vec<_> = subjects.iter().map(|(name, _)| *name).collect();
        report.tables.push(Table::new(title, &columns));
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
                    let (name, kind) = &subjects[at];
                    let network = networks.iter().find(|(own, _)| own == kind);
                    let (_, network) = network.with_context(|| format!("no {kind:?}"))?;
                    let servers = network.servers(*place)?;
                    let cpu = load
                        .measure(network.client()?, servers, options.quick)
                        .with_context(|| format!("{load:?} over {name}, {place:?}"))?;
                    table.record(load.row(), at, cpu);
                }
            }
        }
        report.save()?;
    }
    drop(networks);
    fast::measure(options, rounds, underlay, &mut report)?;
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
