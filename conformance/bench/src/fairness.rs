//! `tweed-bench fairness`: how long a change waits for one tenant's objects, where these are
//! very many: ports and endpoints of one Service, or rules of policies in one namespace.
//!
//! What is measured is from the event of another Service, or of a policy of another namespace,
//! to the first packet that it lets pass: while those of the tenant come, change and go.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tweed_lab::Underlay;

use crate::Options;
use crate::api::NODES;
use crate::policies::host::Host;
use crate::policies::objects::{self as policies, NAMESPACES, POLICIES};
use crate::policies::{PAUSE, probe::Probe};
use crate::report::{Column, Report, Table};
use crate::services::objects::{self as services, CIDRS, Measured, SERVICES, SLICES};
use crate::stats::millis;

/// What a tenant has.
#[derive(Debug, Clone, Copy)]
enum Tenant {
    /// A Service of so many ports and endpoints, beside so many others.
    Service(u16, usize, u32),
    /// So many policies of so many rules.
    Policies(usize, usize),
}

/// The tenants, and as few of theirs as can be.
const ALL: [Tenant; 3] = [
    Tenant::Service(100, 6000, 10_000),
    Tenant::Policies(100, 100),
    Tenant::Policies(300, 200),
];
const FEW: [Tenant; 3] = [
    Tenant::Service(2, 250, 2),
    Tenant::Policies(2, 2),
    Tenant::Policies(3, 2),
];

/// The tenant's namespace.
const TENANT: &str = "tenant";
/// The Service that comes and goes, and the port of the policy that does.
const COMING: Measured = Measured::udp("coming", 11, 7002);
/// After so long memory that is free was given back.
const MINUTE: Duration = Duration::from_secs(60);

/// Measures all of it.
pub fn measure(options: &Options, underlay: &Underlay, out: PathBuf) -> anyhow::Result<Report> {
    let how = "Each wait is that of a change of somebody else from its event to the packet, while \
               the agent is busy with the tenant's objects; *alone*: while it is not. An edit is \
               one of a slice, or of all rules of a policy.";
    let title = |tenant| match tenant {
        Tenant::Service(ports, endpoints, others) => {
            format!("A Service of {ports} ports × {endpoints} endpoints, beside {others} others")
        }
        Tenant::Policies(policies, rules) => format!("{policies} policies × {rules} rules"),
    };
    let report = Report::new("fairness", out, how);
    let (all, wait) = options.size((ALL, MINUTE), (FEW, Duration::ZERO));
    let columns = ["tweed".to_owned()];
    report.of_sizes(
        options.rounds(1),
        &columns,
        &all,
        title,
        |_, tenant, table| {
            let edits = options.size(
                if matches!(tenant, Tenant::Service(..)) {
                    4
                } else {
                    20
                },
                1,
            );
            one(underlay, tenant, (edits, wait), table)
        },
    )
}

/// What the tenant does with its object of this number: it is there in this state, or gone.
type Act<'a> = dyn Fn(usize, Option<usize>) + 'a;

fn one(
    underlay: &Underlay,
    tenant: Tenant,
    (edits, wait): (usize, Duration),
    table: &mut Table,
) -> anyhow::Result<()> {
    let mut host = Host::new(underlay, 1, 0)?;
    host.stop_agent()?;
    host.set_flags(&["--services", "on"]);
    let (api, node) = (&host.server, host.node.name().to_owned());
    let (address, client) = (host.ends[0].address, host.ends[1].address);
    api.put(CIDRS, [services::cidr()]);
    api.put(NAMESPACES, [policies::namespace(TENANT)]);
    api.put(
        policies::PODS,
        [host.object("client", "friend", Some(client))],
    );
    let (to, count) = match tenant {
        Tenant::Service(_, endpoints, others) => {
            let unused = (0..others).map(services::unused);
            let (services, slices): (Vec<_>, Vec<_>) = unused.map(Into::into).unzip();
            api.put(SERVICES, services);
            api.put(SLICES, slices);
            api.put(SERVICES, [COMING.service()]);
            (COMING.at(), endpoints / services::IN_SLICE)
        }
        Tenant::Policies(policies, _) => {
            api.put(POLICIES, [policies::allow("open", "friend", 1)]);
            api.put(NODES, policies::others(100));
            let pods = (0..100).map(|one| policies::bits(TENANT, one));
            api.put(policies::PODS, pods);
            ((address, COMING.port).into(), policies)
        }
    };
    host.start_agent()?;
    host.namespace = TENANT;
    let _subject = host.attach("tenant", "tenant")?;
    let api = &host.server;
    let act: &Act<'_> = &|number, state| match (tenant, state) {
        (Tenant::Service(ports, ..), Some(state)) => {
            api.put(
                SERVICES,
                [services::huge(ports)]
                    .into_iter()
                    .filter(|_| number == 0 && state == 0),
            );
            api.put(SLICES, [services::slice_of_huge(ports, number, state)]);
        }
        (Tenant::Service(..), None) => {
            api.delete(SERVICES, services::NAMESPACE, "huge");
            api.delete(SLICES, services::NAMESPACE, &format!("huge{number}-1"));
        }
        (Tenant::Policies(_, rules), Some(state)) => {
            api.put(POLICIES, [policies::by_bits(TENANT, number, rules, state)]);
        }
        (Tenant::Policies(..), None) => {
            api.delete(POLICIES, TENANT, &format!("bits{number}"));
        }
    };
    let comes_and_goes = |comes: bool| match tenant {
        Tenant::Service(..) => api.put(SLICES, [COMING.slice(comes.then_some(address), &node)]),
        Tenant::Policies(..) if comes => {
            api.put(POLICIES, [policies::allow("coming", "friend", COMING.port)])
        }
        Tenant::Policies(..) => api.delete(POLICIES, policies::NAMESPACE, "coming"),
    };
    let [server, client] = [&host.ends[0], &host.ends[1]];
    let other = Other {
        host: &host,
        probe: Probe::start_to(client, server, COMING.port, to)?,
        change: &comes_and_goes,
    };
    let column = &mut table.column(0);
    column.record("memory before, MiB", host.resident_mib()?);
    other.waits("alone", 10, &|_| (), column)?;
    let all = |state| (0..count).for_each(|number| act(number, state));
    other.waits("all comes", 1, &|_| all(Some(0)), column)?;
    other.waits(
        "an edit",
        edits,
        &|turn| act(turn % count, Some(1 + turn)),
        column,
    )?;
    let elements = host.metric("tweed_policy_elements")?;
    column.record("elements of policies", elements);
    other.waits("all goes", 1, &|_| all(None), column)?;
    column.record("peak memory, MiB", host.peak_mib()?);
    if matches!(tenant, Tenant::Service(..)) {
        sleep(wait);
        column.record("memory a minute after it, MiB", host.resident_mib()?);
    }
    Ok(())
}

/// Whose changes may have to wait.
struct Other<'a> {
    host: &'a Host,
    probe: Probe,
    /// Has packets pass, or not.
    change: &'a dyn Fn(bool) -> Instant,
}

impl Other<'_> {
    /// Changes it again and again while the agent is busy with each of so many acts.
    fn waits(
        &self,
        what: &str,
        acts: usize,
        act: &dyn Fn(usize),
        column: &mut Column<'_>,
    ) -> anyhow::Result<()> {
        let (mut waits, start) = (Vec::new(), Instant::now());
        for turn in 0..acts {
            act(turn);
            loop {
                // Not always at the same moment of the agent's work.
                sleep(Duration::from_millis(waits.len() as u64 * 37 % 100));
                waits.push(millis(self.probe.wait_open((self.change)(true))?));
                sleep(PAUSE);
                self.probe.wait_shut((self.change)(false))?;
                let queued = ["tweed_policies_queued", "tweed_services_queued"];
                let queued = queued.map(|name| self.host.metric(name));
                let [policies, services] = queued;
                if policies? + services? == 0.0 {
                    break;
                }
            }
        }
        column.record_times(&format!("wait, {what}"), &waits);
        let longest = waits.iter().copied().fold(0.0, f64::max);
        column.record(&format!("wait, {what}, longest, ms"), longest);
        column.record(
            &format!("{what}, each act, s"),
            start.elapsed().as_secs_f64() / acts as f64,
        );
        Ok(())
    }
}
