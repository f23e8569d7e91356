//! What policies cost that are in force: packets, and ADD.

use std::net::SocketAddr;

use tweed_lab::Pod;

use super::objects::PODS;
use super::subject::{Enforced, Subject};
use super::{COST, PAUSE, SHARES, probe};
use crate::report::Table;
use crate::stats::{millis, percentile, turns};

/// The cost of a packet, batch by batch on each node in turn.
pub fn packets(nodes: &[(usize, Enforced)], batches: u32, table: &mut Table) -> anyhow::Result<()> {
    let mut times = vec![[Vec::new(), Vec::new()]; nodes.len()];
    for batch in 0..batches as usize {
        for turn in turns(batch, nodes.len()) {
            let ((_, node), times) = (&nodes[turn], &mut times[turn]);
            let to = SocketAddr::new(node.server().address, COST);
            let one = probe::cost(node.client(), node.server(), COST, to)?;
            for (all, one) in times.iter_mut().zip(one) {
                all.push(one);
            }
        }
    }
    for (at, what) in ["a new flow", "an established flow"].iter().enumerate() {
        let medians: Vec<f64> = (times.iter_mut())
            .map(|times| median(&mut times[at]))
            .collect();
        let without = (nodes.iter().zip(&medians))
            .find_map(|((_, node), median)| (node.subject == Subject::Nobody).then_some(*median));
        for ((column, node), median) in nodes.iter().zip(&medians) {
            table.record(&format!("packet of {what}, ns"), *column, *median);
            if let Some(without) = without.filter(|_| node.subject != Subject::Nobody) {
                let row = format!("packet of {what} ÷ without policies");
                table.record(&row, *column, median / without);
            }
        }
    }
    Ok(())
}

/// `count` ADDs of a further pod of a workload, and of the only pod of one: tweed brings the
/// policies for that one in force with it. No other engine has a part in ADD.
pub fn adds(
    nodes: &[(usize, Enforced)],
    count: u32,
    locals: usize,
    table: &mut Table,
) -> anyhow::Result<()> {
    let of = |subject| nodes.iter().find(|(_, node)| node.subject == subject);
    if let (Some(with), Some(without)) = (of(Subject::Tweed), of(Subject::Nobody)) {
        adds_of("ADD", "local0", count, [with, without], table)?;
        let alone = format!("local{locals}");
        adds_of(
            "ADD of a new workload",
            &alone,
            count,
            [with, without],
            table,
        )?;
    }
    Ok(())
}

/// Pairs of ADDs, one with and one without policies, each pair in the other order than
/// the one before.
fn adds_of(
    what: &str,
    app: &str,
    count: u32,
    nodes: [&(usize, Enforced); 2],
    table: &mut Table,
) -> anyhow::Result<()> {
    let [host, floor] = nodes.map(|(_, node)| &node.host);
    let mut pods = Vec::new();
    for host in [host, floor] {
        let name = format!("{app}-added");
        host.server.put(PODS, [host.object(&name, app, None)]);
        let pod = Pod::new(host.node.lab(), &host.full(&name))?;
        pods.push((host, pod, name));
    }
    std::thread::sleep(PAUSE);
    let before = host.cpu()?;
    let mut times = [Vec::new(), Vec::new()];
    for pair in 0..count {
        let turns = if pair % 2 == 0 { [0, 1] } else { [1, 0] };
        for turn in turns {
            let (host, pod, name) = &pods[turn];
            times[turn].push(millis(host.add_and_del(pod, name)?));
        }
    }
    let columns = nodes.map(|(column, _)| *column);
    let cpu = millis(host.cpu()? - before) / f64::from(count);
    table.record(
        &format!("CPU of the agent for an {what} and its DEL, ms"),
        columns[0],
        cpu,
    );
    for times in &mut times {
        times.sort_by(f64::total_cmp);
    }
    for (name, share) in SHARES {
        let of = |times: &Vec<f64>| percentile(times, share).unwrap_or_default();
        let values = times.each_ref().map(of);
        for (column, value) in columns.into_iter().zip(values) {
            table.record(&format!("{what}, {name}, ms"), column, value);
        }
        let row = format!("{what}, {name} ÷ without policies");
        table.record(&row, columns[0], values[0] / values[1]);
    }
    Ok(())
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    percentile(times, 0.5).unwrap_or_default()
}
