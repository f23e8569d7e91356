//! A thousand endpoint changes a second (fewer on a machine that cannot), under new connections to a Service whose own
//! endpoints change among servers that live: none fails, because conntrack keeps a
//! connection at its server whatever the endpoints are.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use tweed_lab::{Transport, wait_until};
use tweed_lab_kubernetes::CONTROL;

use super::api::Api;
use super::{Clients, LIMIT};
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;
use crate::load::Load;
use crate::netexec::Connection;
use crate::service::Service;
use crate::service_proxy::unsettled;

/// Services beside the one under test, each with a slice of its own.
const OTHERS: usize = 20;

/// Endpoints in each of these slices: as many as the controllers put into one. Each patch
/// replaces all of them.
const ENDPOINTS: usize = 100;

/// Number of threads that patch those slices.
const THREADS: usize = 4;

/// Time from one patch of such a thread to its next: together they replace at most 1,000
/// endpoints a second.
const INTERVAL: Duration = Duration::from_millis(400);

/// Time from one patch of the Service under test to the next.
const OWN_INTERVAL: Duration = Duration::from_millis(200);

/// Answers in a row that must come from the only endpoint at the end. The probability that
/// they do so by chance is 2^-20.
const LAST_ANSWERS: usize = 20;

pub fn run(fixture: &mut Fixture<'_>, clients: &Clients) -> Result<()> {
    let replaced = fixture.tier.size(10_000, 120_000);
    let ready = fixture.wait_all_ready("app=stable", 2, LIMIT)?;
    let servers: Vec<Endpoint> = ready.iter().map(Endpoint::pod).collect::<Result<_>>()?;
    let churn = Churn {
        api: Api::start(fixture)?,
        slices: format!(
            "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
            fixture.namespace()
        ),
        addresses: servers.iter().map(|one| one.address.to_string()).collect(),
    };
    fixture.apply(&churn.objects().to_string())?;
    let target = Service::get(fixture, "churned")?;
    let address = target.cluster_ip().socket_address(Transport::Tcp);
    wait_until("an answer of the Service", LIMIT, || {
        let opened = Connection::open(&clients.pod, Transport::Tcp, address);
        let answer = opened.and_then(|mut connection| connection.ask());
        answer.map(drop).map_err(|error| format!("{error:#}"))
    })?;

    let before = unsettled(fixture)?;
    let node = fixture.cluster.node(CONTROL)?.spec().address.into();
    let loads = [
        Load::start("a pod, by ClusterIP", &clients.pod, &address.into()),
        Load::start(
            "outside, by node port",
            &clients.outside,
            &(target.node_port(node).socket_address(Transport::Tcp)).into(),
        ),
    ];
    let began = Instant::now();
    churn.run(replaced)?;
    let seconds = began.elapsed().as_secs_f64();
    let last = servers.first().context("no server")?;
    let ended = Instant::now();
    wait_until("the last endpoints to be in force", LIMIT, || {
        let servers = answers(&clients.pod, address).map_err(|error| format!("{error:#}"))?;
        if servers.len() == 1 && servers.contains(&last.name) {
            Ok(())
        } else {
            Err(format!("{servers:?} answer, and not only {}", last.name))
        }
    })?;
    let settled = ended.elapsed().as_secs_f64();
    let (mut answered, mut rate) = (0, 0);
    for load in loads {
        let tally = load.stop()?;
        ensure!(
            tally.servers.len() == servers.len(),
            "only {:?} answered",
            tally.servers
        );
        answered += tally.answered;
        rate += tally.rate;
    }
    let what = format!(
        "failed connections while {replaced} endpoints were replaced in {seconds:.1} s, of \
         {answered} new ones, {rate} a second"
    );
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

/// The changes and what they are made of.
struct Churn {
    api: Api,
    /// The path of all slices.
    slices: String,
    /// Of the two servers of the Service under test.
    addresses: Vec<String>,
}

impl Churn {
    /// The slice of the Service under test, and the other Services with theirs.
    fn objects(&self) -> Value {
        let mut items = vec![slice("churned", &self.own(0))];
        for number in 0..OTHERS {
            items.push(json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": { "name": other(number) },
                "spec": { "ports": [{ "protocol": "TCP", "port": 80, "targetPort": 8080 }] },
            }));
            items.push(slice(&other(number), &others(number, 0)));
        }
        json!({ "apiVersion": "v1", "kind": "List", "items": items })
    }

    /// Replaces so many endpoints of other Services and meanwhile changes those of the
    /// Service under test, at last to its first server alone.
    fn run(&self, replaced: usize) -> Result<()> {
        let rounds = replaced.div_ceil(ENDPOINTS * THREADS);
        let is_over = AtomicBool::new(false);
        let changed = std::thread::scope(|scope| {
            let own = scope.spawn(|| self.enter(|| self.change_own(&is_over)));
            let spawned = (0..THREADS).map(|thread| {
                scope.spawn(move || self.enter(|| self.change_others(thread, rounds)))
            });
            let threads: Vec<_> = spawned.collect();
            let changed: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
            is_over.store(true, Ordering::Release);
            changed.into_iter().chain([own.join()]).collect::<Vec<_>>()
        });
        changed
            .into_iter()
            .try_for_each(|one| one.map_err(|_| anyhow!("a thread panicked"))?)
    }

    /// Runs a closure where the API server can be reached.
    fn enter(&self, work: impl FnOnce() -> Result<()> + Send) -> Result<()> {
        self.api.here.enter(work)?
    }

    /// Patches the slices that are this thread's in turn.
    fn change_others(&self, thread: usize, rounds: usize) -> Result<()> {
        let start = Instant::now();
        let own = OTHERS / THREADS;
        for round in 0..rounds {
            let number = thread * own + round % own;
            self.patch(&other(number), &others(number, round / own + 1))?;
            pause(start, INTERVAL, round + 1)?;
        }
        Ok(())
    }

    fn change_own(&self, is_over: &AtomicBool) -> Result<()> {
        let start = Instant::now();
        for round in 1.. {
            if is_over.load(Ordering::Acquire) {
                break;
            }
            self.patch("churned", &self.own(round))?;
            pause(start, OWN_INTERVAL, round)?;
        }
        self.patch("churned", &endpoints(&self.addresses[..1]))
    }

    fn patch(&self, name: &str, endpoints: &Value) -> Result<()> {
        let path = format!("{}/{name}", self.slices);
        self.api.patch(&path, &json!({ "endpoints": endpoints }))
    }

    /// The endpoints of the Service under test in a round: one server, both, the other.
    fn own(&self, round: usize) -> Value {
        match round % 3 {
            0 => endpoints(&self.addresses[..1]),
            1 => endpoints(&self.addresses),
            _ => endpoints(&self.addresses[1..]),
        }
    }
}

/// Waits until the time of the next patch. One that took longer is made up for.
fn pause(start: Instant, interval: Duration, patches: usize) -> Result<()> {
    let due = interval * u32::try_from(patches)?;
    std::thread::sleep(due.saturating_sub(start.elapsed()));
    Ok(())
}

/// The name of a Service beside the one under test, and of its slice.
fn other(number: usize) -> String {
    format!("other-{number}")
}

/// The endpoints of such a Service in a round: all are others than in the round before.
fn others(number: usize, round: usize) -> Value {
    let first = round % 2 * ENDPOINTS;
    let addresses = (first..first + ENDPOINTS).map(|last| format!("10.200.{number}.{}", last + 1));
    endpoints(&addresses.collect::<Vec<_>>())
}

fn endpoints(addresses: &[String]) -> Value {
    let endpoint = |address: &String| json!({ "addresses": [address] });
    addresses.iter().map(endpoint).collect()
}

fn slice(name: &str, endpoints: &Value) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": { "name": name, "labels": { "kubernetes.io/service-name": name } },
        "addressType": "IPv4",
        "ports": [{ "protocol": "TCP", "port": 8080 }],
        "endpoints": endpoints,
    })
}

/// The servers that answer so many new connections.
fn answers(from: &Endpoint, to: SocketAddr) -> Result<BTreeSet<String>> {
    let ask = |_| Connection::open(from, Transport::Tcp, to)?.ask();
    (0..LAST_ANSWERS).map(ask).collect()
}
