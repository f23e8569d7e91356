//! What rules cost that are in force: packets, and ADD.

use std::net::SocketAddr;

use tweed_lab::Pod;

use super::objects::PODS;
use super::subject::{Contender, Who};
use super::{PAUSE, probe};
use crate::report::Table;
use crate::stats::{median, millis, turns};

/// The cost of a packet to the port of the server, batch by batch on each node in turn. `to`
/// says where it is sent.
pub fn packets(
    contenders: &[Contender<'_>],
    batches: u32,
    port: u16,
    to: impl Fn(&Contender<'_>) -> SocketAddr,
    table: &mut Table,
) -> anyhow::Result<()> {
    let mut times = vec![[Vec::new(), Vec::new()]; contenders.len()];
    for batch in 0..batches as usize {
        for turn in turns(batch, contenders.len()) {
            let one = &contenders[turn];
            let costs = probe::cost(one.client(), one.server(), port, to(one))?;
            for (times, cost) in times[turn].iter_mut().zip(costs) {
                times.push(cost);
            }
        }
    }
    for (one, [new, established]) in contenders.iter().zip(&times) {
        table.record("packet of a new flow, ns", one.column, median(new));
        let row = "packet of an established flow, ns";
        table.record(row, one.column, median(established));
    }
    Ok(())
}

/// `count` ADDs of a further pod of a workload, and of the only pod of one: tweed brings the
/// policies for that one in force with it. No other engine has a part in ADD.
pub fn adds(
    contenders: &[Contender<'_>],
    count: u32,
    locals: usize,
    table: &mut Table,
) -> anyhow::Result<()> {
    let with = |one: &&Contender<'_>| matches!(one.subject.who, Who::Tweed(_));
    let without = |one: &&Contender<'_>| matches!(one.subject.who, Who::Nobody);
    let both = contenders
        .iter()
        .find(with)
        .zip(contenders.iter().find(without));
    let Some(both) = both.map(|(with, without)| [with, without]) else {
        return Ok(());
    };
    adds_of("ADD", "local0", count, both, table)?;
    let alone = format!("local{locals}");
    adds_of("ADD of a new workload", &alone, count, both, table)
}

/// Pairs of ADDs, one with and one without policies, each pair in the other order than
/// the one before.
fn adds_of(
    what: &str,
    app: &str,
    count: u32,
    both: [&Contender<'_>; 2],
    table: &mut Table,
) -> anyhow::Result<()> {
    let name = format!("{app}-added");
    let mut pods = Vec::new();
    for one in both {
        let host = &one.host;
        host.server.put(PODS, [host.object(&name, app, None)]);
        pods.push(Pod::new(host.node.lab(), &host.full(&name))?);
    }
    std::thread::sleep(PAUSE);
    let mut times = [Vec::new(), Vec::new()];
    for pair in 0..count {
        for turn in turns(pair as usize, both.len()) {
            let took = both[turn].host.add_and_del(&pods[turn], &name)?;
            times[turn].push(millis(took));
        }
    }
    for (one, times) in both.iter().zip(&times) {
        table.column(one.column).record_times(what, times);
    }
    Ok(())
}
