//! `tweed-bench fairness`: how long a change waits for one tenant's objects, where these are
//! very many: ports and endpoints of one Service, or rules of policies in one namespace.
//!
//! A wait is from the event of another Service, or of a policy of another namespace, to the
//! first packet that it lets pass.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tweed_lab::Underlay;

use crate::Options;
use crate::policies::host::Host;
use crate::policies::objects::{self as policies, NAMESPACE, NAMESPACES, PODS, POLICIES};
use crate::policies::{PAUSE, probe::Probe};
use crate::report::{Column, Report, Table};
use crate::services::objects::{self as services, CIDRS, Measured, SERVICES, SLICES};
use crate::stats::{median, millis};
use tweed_lab_api::NODES;

/// What a tenant has.
#[derive(Debug, Clone, Copy)]
enum Tenant {
    /// A Service, beside many others.
    Service { ports: u16, slices: usize },
    /// Policies, each rule for about half of a hundred pods.
    Policies { policies: usize, rules: usize },
}
use Tenant::{Policies, Service};

#[rustfmt::skip]
const ALL: [Tenant; 3] = [
    Service { ports: 100, slices: 60 },
    Policies { policies: 100, rules: 100 },
    Policies { policies: 600, rules: 200 },
];
#[rustfmt::skip]
const FEW: [Tenant; 2] = [Service { ports: 2, slices: 2 }, Policies { policies: 2, rules: 2 }];

/// The tenant's namespace.
const TENANT: &str = "tenant";
/// The Service that comes and goes, and the port of the policy that does.
const COMING: Measured = Measured::udp("coming", 11, 7002);

/// Measures all of it.
pub fn measure(options: &Options, underlay: &Underlay, out: PathBuf) -> anyhow::Result<Report> {
    let others = options.size(10_000, 2);
    let how = format!(
        "Slices have {} endpoints; beside the tenant's Service there are {others} others. Waits \
         of others *alone*, and while all that the tenant has comes, is edited (a slice, or all \
         rules of a policy) and goes.",
        services::IN_SLICE
    );
    let all = options.size(&ALL[..], &FEW[..]);
    // Free memory is given back within a minute.
    let (edits, minute) = options.size((10, Duration::from_secs(60)), (1, Duration::ZERO));
    let (columns, title) = (["tweed".to_owned()], |tenant| format!("{tenant:?}"));
    let report = Report::new("fairness", out, &how);
    report.of_sizes(
        options.rounds(1),
        &columns,
        all,
        title,
        |_, tenant, table| one(underlay, tenant, others, edits, table, minute),
    )
}

fn one(
    underlay: &Underlay,
    tenant: Tenant,
    others: u32,
    edits: usize,
    table: &mut Table,
    minute: Duration,
) -> anyhow::Result<()> {
    let mut host = Host::new(underlay, 1, 0)?;
    host.stop_agent()?;
    host.set_flags(&["--services", "on"]);
    let (api, node) = (&host.server, host.node.name().to_owned());
    let [address, friend] = [&host.ends[0], &host.ends[1]].map(|end| end.address);
    api.put(CIDRS, [services::cidr()]);
    api.put(NODES, policies::others(100));
    api.put(NAMESPACES, [policies::namespace(TENANT)]);
    api.put(PODS, [host.object("client", "friend", Some(friend))]);
    api.put(PODS, (0..100).map(|pod| policies::bits(TENANT, pod)));
    // There are policies, so the first is none of those that are measured.
    api.put(
        POLICIES,
        [policies::allow("open", "friend", COMING.port - 1)],
    );
    let (to, count) = match tenant {
        Service { slices, .. } => {
            let unused = (0..others).map(services::unused);
            let (all, their_slices): (Vec<_>, Vec<_>) = unused.map(Into::into).unzip();
            api.put(SERVICES, all);
            api.put(SLICES, their_slices);
            api.put(SERVICES, [COMING.service()]);
            api.put(POLICIES, [policies::allow("to", "friend", COMING.port)]);
            (COMING.at(), slices)
        }
        Policies { policies, .. } => ((address, COMING.port).into(), policies),
    };
    host.start_agent()?;
    host.namespace = TENANT;
    let _subject = host.attach("tenant", "tenant")?;
    let api = &host.server;
    let put = |number, state| match tenant {
        Service { ports, .. } => {
            api.put(SERVICES, [services::huge(ports)]);
            api.put(SLICES, [services::slice_of_huge(ports, number, state)]);
        }
        Policies { rules, .. } => {
            api.put(POLICIES, [policies::by_bits(TENANT, number, rules, state)]);
        }
    };
    let delete = |number| match tenant {
        Service { .. } => {
            api.delete(SERVICES, NAMESPACE, "huge");
            api.delete(SLICES, NAMESPACE, &format!("huge{number}-1"));
        }
        Policies { .. } => {
            api.delete(POLICIES, TENANT, &format!("bits{number}"));
        }
    };
    let allow = || policies::allow("coming", "friend", COMING.port);
    let change = |comes: bool| match tenant {
        Service { .. } => api.put(SLICES, [COMING.slice(comes.then_some(address), &node)]),
        Policies { .. } if comes => api.put(POLICIES, [allow()]),
        Policies { .. } => api.delete(POLICIES, NAMESPACE, "coming"),
    };
    let probe = Probe::start_to(&host.ends[1], &host.ends[0], COMING.port, to)?;
    let column = &mut table.column(0);
    column.record("memory before, MiB", host.resident_mib()?);
    let mut waits = |what, acts: usize, act: &dyn Fn(usize)| {
        waits(&host, &probe, &change, what, (0..acts).map(act), column)
    };
    waits("alone", edits, &|_| ())?;
    waits("it comes", 1, &|_| {
        (0..count).for_each(|number| put(number, 0))
    })?;
    waits("an edit", edits, &|turn| put(turn % count, 1 + turn))?;
    let elements = host.metric("tweed_policy_elements")?;
    waits("it goes", 1, &|_| (0..count).for_each(delete))?;
    column.record("elements of policies", elements);
    column.record("peak memory, MiB", host.peak_mib()?);
    sleep(minute);
    column.record("memory after it, MiB", host.resident_mib()?);
    Ok(())
}

/// Has somebody else's object come and go again and again while the agent is busy with each of
/// the acts.
fn waits(
    host: &Host,
    probe: &Probe,
    change: &dyn Fn(bool) -> Instant,
    what: &str,
    acts: impl Iterator<Item = ()>,
    column: &mut Column<'_>,
) -> anyhow::Result<()> {
    let mut waits = Vec::new();
    for () in acts {
        loop {
            // Not always at the same moment of the agent's work.
            sleep(Duration::from_millis(waits.len() as u64 * 37 % 100));
            waits.push(millis(probe.wait_open(change(true))?));
            sleep(PAUSE);
            probe.wait_shut(change(false))?;
            let queued = ["tweed_policies_queued", "tweed_services_queued"];
            let [policies, services] = queued.map(|name| host.metric(name));
            if policies? + services? == 0.0 {
                break;
            }
        }
    }
    let longest = waits.iter().copied().fold(0.0, f64::max);
    column.record(&format!("{what}, median, ms"), median(&waits));
    column.record(&format!("{what}, longest, ms"), longest);
    Ok(())
}
