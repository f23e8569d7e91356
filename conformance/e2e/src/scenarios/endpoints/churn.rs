//! A thousand endpoint changes a second, under new connections to a Service whose own
//! endpoints change among servers that live: none fails, because conntrack keeps a
//! connection at its server whatever the endpoints are.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tweed_lab::{Transport, wait_until};
use tweed_lab_kubernetes::{CONTROL, Machine};

use super::api::Api;
use super::{Clients, LIMIT, cluster_ip, node_port, service};
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;
use crate::load::Load;
use crate::netexec::Connection;
use crate::tier::Tier;

/// Services beside the one under test, each with a slice of its own.
const OTHERS: usize = 20;

/// Endpoints in each of these slices. Each patch replaces all of them.
const ENDPOINTS: usize = 50;

/// Pause between two patches of those slices: 20 a second, which replace 1,000 endpoints.
const INTERVAL: Duration = Duration::from_millis(50);

/// After this many such patches the Service under test gets other endpoints: ten times a
/// second.
const OWN_EVERY: usize = 2;

/// Answers in a row that must come from the only endpoint at the end. The probability that
/// they do so by chance is 2^-20.
const LAST_ANSWERS: usize = 20;

pub fn run(fixture: &mut Fixture<'_>, clients: &Clients) -> Result<()> {
    let time = match fixture.tier {
        Tier::Ci => Duration::from_secs(10),
        Tier::Full => Duration::from_secs(120),
    };
    let servers = fixture.wait_all_ready("app=stable", 2, LIMIT)?;
    let servers: Vec<Endpoint> = servers.iter().map(Endpoint::pod).collect::<Result<_>>()?;
    let churn = Churn {
        api: Api::start(fixture)?,
        slices: format!(
            "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
            fixture.namespace()
        ),
        addresses: servers.iter().map(|one| one.address.to_string()).collect(),
    };
    fixture.apply(&churn.objects().to_string())?;
    let target = service(fixture, "churned")?;
    let address = cluster_ip(&target)?;
    wait_until("an answer of the Service", LIMIT, || {
        let answer = Connection::open(&clients.pod, Transport::Tcp, address);
        let answer = answer.and_then(|mut connection| connection.ask());
        answer.map(drop).map_err(|error| format!("{error:#}"))
    })?;

    let before = unsettled(fixture)?;
    let node = fixture.cluster.node(CONTROL)?.spec().address.into();
    let loads = [
        Load::start("a pod, by ClusterIP", &clients.pod, &address.into()),
        Load::start("outside, by node port", &clients.outside, &node_port(&target, node)?.into()),
    ];
    let changes = churn.api.here.enter(|| churn.run(time))??;
    let [last, ..] = servers.as_slice() else {
        unreachable!("two servers are Ready")
    };
    let settled = Instant::now();
    wait_until("the last endpoints to be in force", LIMIT, || {
        let servers = answers(&clients.pod, address).map_err(|error| format!("{error:#}"))?;
        match servers.len() == 1 && servers.contains(&last.name) {
            true => Ok(()),
            false => Err(format!("{servers:?} answer, and not only {}", last.name)),
        }
    })?;
    let settled = settled.elapsed().as_secs_f64();
    let mut answered = 0;
    for load in loads {
        let tally = load.stop()?;
        ensure!(
            tally.servers.len() == servers.len(),
            "only {:?} answered",
            tally.servers
        );
        answered += tally.answered;
        let what = format!("new connections a second during the changes, {}", tally.name);
        fixture.measure(&what, tally.rate.to_string());
    }
    let rate = changes as f64 / time.as_secs_f64();
    fixture.measure("endpoints replaced a second", format!("{rate:.0}"));
    let what = format!("failed connections during the changes, of {answered}");
    fixture.measure(&what, "0");
    fixture.measure(
        "after the last change, until all new connections follow it",
        format!("{settled:.1} s"),
    );
    let dropped = unsettled(fixture)?.saturating_sub(before);
    let what = "first packets dropped because the sets had changed twice under them";
    fixture.measure(what, dropped.to_string());
    Ok(())
}
