//! The demo: pods on three nodes, every path checked, nodes added and removed.

mod cluster;
mod matrix;
mod path;
mod picture;
pub mod policy;
mod svg;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::{Cluster, ContinuousPing, Lab, existing_labs, take_down, wait_until};
use anyhow::{Context, Result, bail};

use cluster::DemoCluster;
use path::{Checked, check_all};

/// Runs the demo in a lab of this name, and removes the lab at the end, also after
/// a failure. With `keep` it stays, once it is complete.
///
/// # Errors
/// What could not be created, or the paths that failed.
pub fn run(out: &mut dyn Write, name: &str, keep: bool, svg: Option<&Path>) -> Result<()> {
    let start = Instant::now();
    writeln!(
        out,
        "tweed: pods on three nodes reach each other over VXLAN\n"
    )?;
    let mut demo = DemoCluster::build(out, Lab::named(name)?)?;
    let outcome = show(out, &mut demo, svg);
    if outcome.is_err() {
        writeln!(out, "\n{}", demo.agent_logs())?;
    }
    if keep {
        demo.keep()?;
        print_commands(out, &demo)?;
    }
    outcome?;
    let seconds = start.elapsed().as_secs_f64();
    writeln!(out, "\nEvery path works. {seconds:.1} s in all.")?;
    Ok(())
}

/// Removes a lab that [`run`] has kept; with `all`, also everything that killed
/// programs have left.
///
/// # Errors
/// A demo is running, or something could not be removed.
pub fn down(out: &mut dyn Write, name: &str, all: bool) -> Result<()> {
    let mut found = existing_labs()?;
    found.retain(|lab| lab.name == name || (all && lab.is_left()));
    if found.is_empty() {
        writeln!(out, "There is no lab {name}.")?;
    }
    if let Some(lab) = found.iter().find(|lab| lab.in_use && !lab.kept) {
        let (name, state) = (&lab.name, lab.state());
        bail!("the lab {name} is {state}: end that process first (Ctrl-C)");
    }
    for lab in found {
        let namespaces = take_down(&lab.name)?.len();
        writeln!(
            out,
            "Removed the lab {}, {}: {namespaces} namespaces with their processes.",
            lab.name,
            lab.state(),
        )?;
    }
    Ok(())
}

fn show(out: &mut dyn Write, demo: &mut DemoCluster, svg: Option<&Path>) -> Result<()> {
    let checked = check(out, demo, "every path")?;
    writeln!(out, "\n{}{}", matrix::render(&checked), matrix::LEGEND)?;

    let (from, to) = demo.first_and_last_pod()?;
    let (from_name, to_name) = (from.name().to_owned(), to.name().to_owned());
    let ping = ContinuousPing::start(from.netns(), to.address())?;

    progress(out, "a fourth node, while the others run")?;
    demo.add_node(out, 4)?;
    demo.wait_for_new_node(4)?;
    check(out, demo, "every path with node4")?;

    progress(out, "node2 is removed, while the others run")?;
    let removed = demo.remove_node(2)?;
    wait_until_routes_removed(demo, &removed)?;
    done(out, &format!("no route to {removed} is left on any node"))?;
    let checked = check(out, demo, "every path without node2")?;

    let report = ping.stop();
    let verdict = format!("{from_name} pinged {to_name} every 10 ms meanwhile: {report}");
    done(out, &verdict)?;
    if report.lost() > 0 {
        bail!("{} of those pings were lost", report.lost());
    }
    writeln!(out, "\n{}", matrix::render(&checked))?;

    let topology = demo.topology()?;
    writeln!(out, "{}", picture::render(&topology))?;
    if let Some(file) = svg {
        fs::write(file, svg::render(&topology))
            .with_context(|| format!("could not write {}", file.display()))?;
        writeln!(out, "The same as a drawing: {}", file.display())?;
    }
    Ok(())
}

/// Checks all paths; the failed ones are named in the error.
fn check(out: &mut dyn Write, demo: &DemoCluster, what: &str) -> Result<Checked> {
    progress(out, what)?;
    let checked = check_all(&demo.endpoints());
    let failures = checked.failures();
    if failures.is_empty() {
        let count = checked.paths().count();
        let text = format!("{count} paths: ping, and the source that a UDP and a TCP server see");
        done(out, &text)?;
        return Ok(checked);
    }
    writeln!(out, "\n{}", matrix::render(&checked))?;
    for failure in &failures {
        writeln!(out, "    ✗ {failure}")?;
    }
    let first = failures.first().map(String::as_str).unwrap_or_default();
    bail!(
        "{} of {} paths fail, the first: {first}",
        failures.len(),
        checked.paths().count()
    );
}

/// Waits until no node has a route to the pods of a removed node.
fn wait_until_routes_removed(demo: &DemoCluster, pod_cidr: &str) -> Result<()> {
    for entry in demo.cluster().nodes().values() {
        let name = entry.node.name();
        let what = format!("{name} to remove its route to {pod_cidr}");
        wait_until(&what, Duration::from_secs(60), || {
            let line = format!("ip route show root {pod_cidr}");
            match entry.node.netns().sh(&line) {
                Ok(routes) if routes.trim().is_empty() => Ok(()),
                Ok(routes) => Err(routes),
                Err(error) => Err(error.chain()),
            }
        })?;
    }
    Ok(())
}

fn print_commands(out: &mut dyn Write, demo: &DemoCluster) -> Result<()> {
    let cluster: &Cluster = demo.cluster();
    let folder = cluster.lab().folder().display();
    let name = cluster.lab().name();
    let (from, to) = demo.first_and_last_pod()?;
    writeln!(
        out,
        "\nThe lab stays. To inspect it, as root:\n\
         \x20   ip netns\n\
         \x20   ip netns exec {pod} ping {address}\n\
         \x20   ip netns exec {pod} ip addr\n\
         \x20   ip netns exec {name}-node1 ip route show proto 116\n\
         \x20   ip netns exec {name}-node1 ip -d link show tweed.1\n\
         \x20   ip netns exec {name}-node1 bridge fdb show dev tweed.1\n\
         \x20   ip netns exec {name}-node1 nft list table inet tweed\n\
         \x20   ip netns exec {name}-node1 tcpdump -ni eth0 udp port 8472\n\
         \x20   tail -f {folder}/node1/agent.log\n\
         \x20   cat {folder}/nodes.yaml\n\
         To remove it: make demo-down",
        pod = from.netns().name(),
        address = to.address(),
    )?;
    Ok(())
}

pub(super) fn progress(out: &mut dyn Write, what: &str) -> Result<()> {
    writeln!(out, "  {what}")?;
    out.flush()?;
    Ok(())
}

pub(super) fn done(out: &mut dyn Write, what: &str) -> Result<()> {
    writeln!(out, "    ✓ {what}")?;
    out.flush()?;
    Ok(())
}
