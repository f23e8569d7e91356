//! `tweed-bench services`: Services from an API server to the kernel and what they cost,
//! by their number, beside kube-proxy.
//!
//! ```text
//! connections   of TCP: how many in a second, until when
//! objects       Services as the API has them
//! subject       who serves them: tweed, kube-proxy, a rule made by hand, nobody
//! ```
//!
//! The nodes, their API server and the probes are those of [`crate::policies`]. All
//! subjects take turns within a round; that a Service works is seen by packets.

mod connections;
mod objects;
mod subject;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use tweed_lab::Underlay;

use crate::Options;
use crate::policies::probe::{self, Probe};
use crate::policies::{PAUSE, record_all};
use crate::report::{Report, Table, progress};
use crate::stats::{millis, percentile, turns};
use connections::UntilRefused;
use objects::{CIDRS, Measured, SERVICES, SLICES};
use subject::{Served, Subject};

/// Numbers of Services.
const SIZES: [u32; 4] = [1, 1000, 10_000, 60_000];
/// For a look at whether all works.
const FEW: [u32; 4] = [1, 2, 3, 4];
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
/// The Services by which costs are measured.
const COST: Measured = Measured::udp("cost", 12, 7003);
const CONNECT: Measured = Measured::tcp("connect", 13, 7004);

/// Measures all of it.
pub fn measure(options: &Options, underlay: &Underlay, out: PathBuf) -> anyhow::Result<Report> {
    let rounds = options.rounds(3);
    let sizes = options.size(SIZES, FEW);
    let (changes, batches) = options.size((50, 100), (2, 2));
    let how = format!(
        "{rounds} rounds. Each Service has two endpoints on other nodes, but for those that are \
         measured, whose endpoint is a pod of the node, as is the client. {changes} changes, \
         {} of kube-proxy. {}",
        changes.min(MOST_CHANGES_OF_KUBE_PROXY),
        match subject::kube_proxy()? {
            Some(_) => format!(
                "kube-proxy reads JSON, as the server of this benchmark has nothing else; above \
                 {MOST_OF_KUBE_PROXY} Services it is left out."
            ),
            None => "kube-proxy is left out: `conformance/setup.sh e2e` builds it.".to_owned(),
        }
    );
    let most_of_kube_proxy = match subject::kube_proxy()? {
        Some(_) => options.size(MOST_OF_KUBE_PROXY, FEW[0]),
        None => 0,
    };
    let mut report = Report::new("services", out, &how);
    let columns = || Subject::ALL.map(Subject::name);
    report.tables = (sizes.iter())
        .map(|size| Table::new(&format!("{size} Services"), columns()))
        .collect();
    for round in 0..rounds {
        for (table, size) in sizes.into_iter().enumerate() {
            progress(&format!(
                "round {} of {rounds}: {size} Services …",
                round + 1
            ));
            let table = &mut report.tables[table];
            let round = Round {
                number: round,
                size,
                changes,
                batches,
                rest: options.size(SETTLED, PAUSE),
                most_of_kube_proxy,
            };
            round
                .measure(underlay, table)
                .with_context(|| format!("{size} Services"))?;
            report.save()?;
        }
    }
    Ok(report)
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
    /// With more Services kube-proxy is left out.
    most_of_kube_proxy: u32,
}

impl Round {
    fn measure(&self, underlay: &Underlay, table: &mut Table) -> anyhow::Result<()> {
        let mut nodes = Vec::new();
        for at in turns(self.number, Subject::ALL.len()) {
            let subject = Subject::ALL[at];
            if matches!(subject, Subject::KubeProxy(_)) && self.size > self.most_of_kube_proxy {
                continue;
            }
            let mut served = Served::new(underlay, at as u8 + 1, subject)?;
            let mut record = |row: &str, value| table.record(row, at, value);
            self.load(&mut served, &mut record)
                .with_context(|| subject.name())?;
            nodes.push((at, served));
        }
        for (at, served) in &nodes {
            if served.subject.is_proxy() {
                let mut record = |row: &str, value| table.record(row, *at, value);
                self.changes(served, &mut record)
                    .with_context(|| served.subject.name())?;
                record("peak memory, MiB", served.host.peak_mib()?);
            }
        }
        self.packets(&nodes, table)?;
        self.connections(&nodes, table)?;
        for (at, served) in &mut nodes {
            if served.subject.is_proxy() {
                let freed = served
                    .remove_rules()
                    .with_context(|| served.subject.name())?;
                table.record("kernel memory, MiB", *at, freed);
            }
        }
        Ok(())
    }

    /// From the start of who serves to the first packet that comes through a Service.
    fn load(&self, served: &mut Served, record: Record<'_>) -> anyhow::Result<()> {
        let server = Some(served.host.ends[0].address);
        let name = served.host.node.name().to_owned();
        let api = &served.host.server;
        api.put(CIDRS, [objects::cidr()]);
        let measured = [LOADED, COMING, GOING, COST, CONNECT];
        let unused = (0..self.size).map(objects::unused);
        let (services, slices): (Vec<_>, Vec<_>) =
            unused.map(|[service, slice]| (service, slice)).unzip();
        api.put(SERVICES, services);
        api.put(SLICES, slices);
        api.put(SERVICES, measured.map(Measured::service));
        api.put(SLICES, measured.map(|one| one.slice(server, &name)));
        match served.subject {
            Subject::Direct => return Ok(()),
            Subject::OneRule => return one_rule(served),
            Subject::Tweed | Subject::KubeProxy(_) => {}
        }
        let ends = &served.host.ends;
        let probe = Probe::start_to(&ends[1], &ends[0], LOADED.port, LOADED.at())?;
        let start = served.start()?;
        record(
            "start to the first packet, ms",
            millis(probe.wait_open(start)?),
        );
        record("CPU of the start, ms", millis(served.host.cpu()?));
        Ok(())
    }

    /// An endpoint comes and goes, which is the only one of its Service.
    fn changes(&self, served: &Served, record: Record<'_>) -> anyhow::Result<()> {
        let ends = &served.host.ends;
        let (api, node) = (&served.host.server, served.host.node.name());
        let slices = |service: Measured| {
            [Some(ends[0].address), None].map(|endpoint| service.slice(endpoint, node))
        };
        let [with, without] = slices(COMING);
        let [with_connections, without_connections] = slices(GOING);
        let (changes, rest) = match served.subject {
            Subject::KubeProxy(_) => (self.changes.min(MOST_CHANGES_OF_KUBE_PROXY), SETTLED),
            _ => (self.changes, PAUSE),
        };
        let (mut comes, mut refused, mut silent) = (Vec::new(), Vec::new(), Vec::new());
        std::thread::sleep(self.rest);
        for _ in 0..changes {
            let (port, to) = (GOING.port, GOING.at());
            let made = UntilRefused::start(&ends[1], &ends[0], port, to)?;
            std::thread::sleep(rest);
            let start = api.put(SLICES, [without_connections.clone()]);
            refused.push(millis(made.wait(start)?));
            // The next change comes when nothing of this one is left to do.
            std::thread::sleep(rest);
            api.put(SLICES, [with_connections.clone()]);
        }
        std::thread::sleep(rest);
        if served.subject == Subject::Tweed {
            let probe = Probe::start_to(&ends[1], &ends[0], COMING.port, COMING.at())?;
            for _ in 0..changes {
                std::thread::sleep(rest);
                let start = api.put(SLICES, [without.clone()]);
                silent.push(millis(probe.wait_shut(start)?));
                std::thread::sleep(rest);
                let start = api.put(SLICES, [with.clone()]);
                comes.push(millis(probe.wait_open(start)?));
            }
        } else {
            // kube-proxy leaves the flows of a Service alone that has no endpoints any more,
            // so they go on: what is asked afterwards are new ones.
            for _ in 0..changes {
                api.put(SLICES, [without.clone()]);
                std::thread::sleep(rest);
                let probe = Probe::start_refused(&ends[1], &ends[0], COMING.port, COMING.at())?;
                let start = api.put(SLICES, [with.clone()]);
                comes.push(millis(probe.wait_open(start)?));
            }
        }
        record_all("an endpoint comes", &mut comes, record);
        record_all("an endpoint goes", &mut refused, record);
        record_all("an endpoint goes, with its UDP flows", &mut silent, record);
        Ok(())
    }

    /// What a packet costs, batch by batch on each node in turn.
    fn packets(&self, nodes: &[(usize, Served)], table: &mut Table) -> anyhow::Result<()> {
        let mut times = vec![[Vec::new(), Vec::new()]; nodes.len()];
        for batch in 0..self.batches as usize {
            for turn in turns(batch, nodes.len()) {
                let ((_, served), times) = (&nodes[turn], &mut times[turn]);
                let ends = &served.host.ends;
                let one = probe::cost(&ends[1], &ends[0], COST.port, served.leads_to(COST))?;
                for (all, one) in times.iter_mut().zip(one) {
                    all.push(one);
                }
            }
        }
        for ((at, _), times) in nodes.iter().zip(&mut times) {
            for (what, times) in ["a new flow", "an established flow"].iter().zip(times) {
                times.sort_by(f64::total_cmp);
                let median = percentile(times, 0.5).unwrap_or_default();
                table.record(&format!("packet of {what}, ns"), *at, median);
            }
        }
        Ok(())
    }

    /// How many connections one client makes in a second, on each node in turn.
    fn connections(&self, nodes: &[(usize, Served)], table: &mut Table) -> anyhow::Result<()> {
        let mut rates = vec![Vec::new(); nodes.len()];
        for batch in 0..self.batches.div_ceil(10) as usize {
            for turn in turns(batch, nodes.len()) {
                let ((_, served), rates) = (&nodes[turn], &mut rates[turn]);
                let ends = &served.host.ends;
                let to = served.leads_to(CONNECT);
                rates.push(connections::rate(&ends[1], &ends[0], CONNECT.port, to)?);
            }
        }
        for ((at, _), rates) in nodes.iter().zip(&mut rates) {
            rates.sort_by(f64::total_cmp);
            let median = percentile(rates, 0.5).unwrap_or_default();
            table.record("connections a second", *at, median);
        }
        Ok(())
    }
}

type Record<'a> = &'a mut dyn FnMut(&str, f64);

impl Served {
    /// Where a client sends to.
    fn leads_to(&self, service: Measured) -> SocketAddr {
        match self.subject {
            Subject::Direct => SocketAddr::new(self.host.ends[0].address, service.port),
            _ => service.at(),
        }
    }
}

fn one_rule(served: &Served) -> anyhow::Result<()> {
    let server = served.host.ends[0].address;
    let rules = [(COST, "udp"), (CONNECT, "tcp")].map(|(service, protocol)| {
        let at = service.at();
        let (ip, port) = (at.ip(), at.port());
        format!("ip daddr {ip} {protocol} dport {port} dnat to {server}:{port}\n")
    });
    let table = format!(
        "table ip floor {{ chain prerouting {{ type nat hook prerouting priority -100\n{}}}\n}}\n",
        rules.concat()
    );
    Ok(served.host.node.netns().nft(&table)?)
}
