//! `tweed-bench services`: Services from an API server to the kernel and what they cost,
//! by their number, beside kube-proxy.
//!
//! ```text
//! connections   of TCP, until one is refused
//! objects       Services as the API has them
//! ```
//!
//! The nodes, their API server, subjects and probes are those of [`crate::policies`]. All
//! subjects take turns within a round; that a Service works is seen by packets.

pub mod connections;
pub mod objects;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use tweed_lab::{Programs, Underlay};

use crate::policies::probe::Probe;
use crate::policies::subject::{Contender, Subject, Who};
use crate::policies::{PAUSE, costs};
use crate::report::{Column, Report, Table};
use crate::stats::millis;
use crate::{Options, cost};
use connections::UntilRefused;
use objects::{CIDRS, CLUSTER_IPS, Measured, SERVICES, SLICES};

/// Numbers of Services.
const SIZES: [u32; 3] = [1000, 10_000, 60_000];
/// For a look at whether all works.
const FEW: [u32; 3] = [1, 2, 3];
/// Above so many kube-proxy is left out: its start alone takes many minutes.
const MOST_OF_KUBE_PROXY: u32 = 10_000;
/// Each of its changes takes seconds.
const MOST_CHANGES_OF_KUBE_PROXY: u32 = 5;
/// After so long kube-proxy has mostly written a change: it waits up to a second before it
/// begins.
const SETTLED: Duration = Duration::from_secs(3);

/// The Service by which it is seen that all are loaded.
const LOADED: Measured = Measured::udp("loaded", 10, 7001);
/// The Service whose endpoint comes and goes.
const COMING: Measured = Measured::udp("coming", 11, 7002);
/// The Service whose connections are refused when its endpoint goes.
const GOING: Measured = Measured::tcp("going", 14, 7005);
/// The Service by which the cost of a packet is measured.
const COST: Measured = Measured::udp("cost", 12, 7003);

const KUBE_PROXY: [&str; 5] = [
    "--cluster-cidr=10.250.0.0/16",
    "--config-sync-period=1h",
    // These sysctls cannot be written in a network namespace.
    "--conntrack-max-per-core=0",
    "--conntrack-tcp-timeout-close-wait=0s",
    "--conntrack-tcp-timeout-established=0s",
];

/// Measures all of it.
pub fn measure(options: &Options, underlay: &Underlay, out: PathBuf) -> anyhow::Result<Report> {
    let rounds = options.rounds(3);
    let sizes = options.size(SIZES, FEW);
    let (changes, batches) = options.size((50, 100), (2, 2));
    let most_of_kube_proxy = options.size(MOST_OF_KUBE_PROXY, FEW[0]);
    let how = format!(
        "{rounds} rounds. Each Service has two endpoints on other nodes, but for those that are \
         measured, whose endpoint is a pod of the node, as is the client. {changes} changes, \
         {} of kube-proxy, which reads JSON, as the server of this benchmark has nothing else. \
         Above {most_of_kube_proxy} Services it is left out, and where `conformance/setup.sh \
         e2e` has not built it.",
        changes.min(MOST_CHANGES_OF_KUBE_PROXY),
    );
    let columns = subjects(false)?.map(|subject| subject.name);
    let title = |size| format!("{size} Services");
    let report = Report::new("services", out, &how);
    report.of_sizes(rounds, &columns, &sizes, title, |number, size, table| {
        let subjects = subjects(size <= most_of_kube_proxy)?;
        let round = Round {
            number,
            size,
            changes,
            batches,
            rest: options.size(SETTLED, PAUSE),
        };
        round.measure(underlay, &subjects, table)
    })
}

/// Who serves, and the server's own address without any Service.
fn subjects(with_kube_proxy: bool) -> anyhow::Result<[Subject; 4]> {
    let path = Programs::find()?
        .target()
        .join("tools/kubernetes/bin/kube-proxy");
    let kube_proxy = |mode: &str| Subject {
        name: format!("kube-proxy, {mode}"),
        who: Who::Peer {
            program: (with_kube_proxy && path.exists()).then(|| path.clone()),
            flags: (KUBE_PROXY.iter().map(ToString::to_string))
                .chain([format!("--proxy-mode={mode}")])
                .collect(),
            agent: &[],
        },
    };
    let subject = |name: &str, who| Subject {
        name: name.to_owned(),
        who,
    };
    Ok([
        subject("tweed", Who::Tweed(&["--services", "on"])),
        kube_proxy("nftables"),
        kube_proxy("iptables"),
        subject("without Services", Who::Nobody),
    ])
}

/// One round of one number of Services.
struct Round {
    /// Which round it is: it decides in which order the subjects begin.
    number: usize,
    size: u32,
    changes: u32,
    batches: u32,
    /// After so long all that belongs to a start is over.
    rest: Duration,
}

impl Round {
    fn measure(
        &self,
        underlay: &Underlay,
        subjects: &[Subject],
        table: &mut Table,
    ) -> anyhow::Result<()> {
        let is_proxy = |one: &Contender<'_>| !matches!(one.subject.who, Who::Nobody);
        let mut contenders = Contender::all(underlay, subjects, (self.number, 0), |one| {
            self.load(one, &mut table.column(one.column))
        })?;
        for one in contenders.iter().filter(|one| is_proxy(one)) {
            let column = &mut table.column(one.column);
            self.changes(one, column)
                .with_context(|| one.subject.name.clone())?;
            column.record("peak memory, MiB", one.host.peak_mib()?);
        }
        let to = |one: &Contender<'_>| match one.subject.who {
            Who::Nobody => SocketAddr::new(one.server().address, COST.port),
            _ => COST.at(),
        };
        costs::packets(&contenders, self.batches, COST.port, to, table)?;
        for one in contenders.iter_mut().filter(|one| is_proxy(one)) {
            let freed = remove_rules(one).with_context(|| one.subject.name.clone())?;
            table.record("kernel memory, MiB", one.column, freed);
        }
        Ok(())
    }

    /// From the start of who serves to the first packet that comes through a Service.
    fn load(&self, one: &mut Contender<'_>, column: &mut Column<'_>) -> anyhow::Result<()> {
        // A packet to a Service that nobody translates goes nowhere, and conntrack keeps
        // nothing of it.
        let netns = one.host.node.netns();
        netns.ip([format!("route add unreachable {CLUSTER_IPS}")])?;
        let server = Some(one.server().address);
        let name = one.host.node.name().to_owned();
        let api = &one.host.server;
        api.put(CIDRS, [objects::cidr()]);
        let measured = [LOADED, COMING, GOING, COST];
        let unused = (0..self.size).map(objects::unused);
        let (services, slices): (Vec<_>, Vec<_>) =
            unused.map(|[service, slice]| (service, slice)).unzip();
        api.put(SERVICES, services);
        api.put(SLICES, slices);
        api.put(SERVICES, measured.map(Measured::service));
        api.put(SLICES, measured.map(|one| one.slice(server, &name)));
        if matches!(one.subject.who, Who::Nobody) {
            return Ok(());
        }
        let probe = Probe::start_to(one.client(), one.server(), LOADED.port, LOADED.at())?;
        let start = one.start()?;
        let took = probe.wait_open(start)?;
        column.record("start to the first packet, ms", millis(took));
        Ok(())
    }

    /// An endpoint comes and goes, which is the only one of its Service.
    fn changes(&self, one: &Contender<'_>, column: &mut Column<'_>) -> anyhow::Result<()> {
        let (client, server) = (one.client(), one.server());
        let (api, node) = (&one.host.server, one.host.node.name());
        let slices =
            |service: Measured| [Some(server.address), None].map(|to| service.slice(to, node));
        let [with, without] = slices(COMING);
        let [with_connections, without_connections] = slices(GOING);
        let (changes, rest) = if one.subject.is_peer() {
            (self.changes.min(MOST_CHANGES_OF_KUBE_PROXY), SETTLED)
        } else {
            (self.changes, PAUSE)
        };
        let (mut comes, mut refused, mut silent) = (Vec::new(), Vec::new(), Vec::new());
        std::thread::sleep(self.rest);
        for _ in 0..changes {
            let made = UntilRefused::start(client, server, GOING.port, GOING.at())?;
            std::thread::sleep(rest);
            let start = api.put(SLICES, [without_connections.clone()]);
            refused.push(millis(made.wait(start)?));
            // The next change comes when nothing of this one is left to do.
            std::thread::sleep(rest);
            api.put(SLICES, [with_connections.clone()]);
        }
        std::thread::sleep(rest);
        for _ in 0..changes {
            // kube-proxy leaves the flows of a Service alone that has no endpoints any more,
            // so they go on: what is asked afterwards are new ones.
            let probe = if one.subject.is_peer() {
                api.put(SLICES, [without.clone()]);
                std::thread::sleep(rest);
                Probe::start_refused(client, server, COMING.port, COMING.at())?
            } else {
                let probe = Probe::start_to(client, server, COMING.port, COMING.at())?;
                std::thread::sleep(rest);
                let start = api.put(SLICES, [without.clone()]);
                silent.push(millis(probe.wait_shut(start)?));
                std::thread::sleep(rest);
                probe
            };
            let start = api.put(SLICES, [with.clone()]);
            comes.push(millis(probe.wait_open(start)?));
        }
        column.record_times("an endpoint comes, event to packet", &comes);
        column.record_times("an endpoint goes, event to packet", &refused);
        let row = "an endpoint goes, with its UDP flows, event to packet";
        column.record_times(row, &silent);
        Ok(())
    }
}

/// Ends who serves and removes all rules and sets of the node; gives by how much the
/// kernel's memory fell, in MiB. Entries of conntrack are removed before, so that none
/// of them ends meanwhile.
fn remove_rules(one: &mut Contender<'_>) -> anyhow::Result<f64> {
    one.host.stop_peer()?;
    one.host.stop_agent()?;
    let netns = one.host.node.netns();
    netns.sh("conntrack -F")?;
    let with = settled_mib()?;
    netns.nft("flush ruleset\n")?;
    Ok(with - settled_mib()?)
}

/// The kernel's memory once it has stopped to fall, or after half a minute: the kernel frees
/// elements of sets after it has answered, and large maps for seconds.
fn settled_mib() -> anyhow::Result<f64> {
    let mut last = cost::slab_mib()?;
    for _ in 0..60 {
        std::thread::sleep(Duration::from_millis(500));
        let now = cost::slab_mib()?;
        if now > last - 0.1 {
            return Ok(now);
        }
        last = now;
    }
    Ok(last)
}
