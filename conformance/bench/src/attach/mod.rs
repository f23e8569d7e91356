//! `tweed-bench attach`: ADD and DEL, one and many at once, on an empty node and on
//! a full one; size and start of the plugin.
//!
//! ```text
//! subject   who is measured: the program, its config, its calls
//! call      one call as a runtime makes it: fork, exec, stdin, stdout
//! host      a node of its own for each subject, with its pods
//! ```

pub mod call;
mod host;
mod subject;

use std::path::PathBuf;
use std::time::Duration;

use tweed_lab::{Pod, Underlay};

use crate::Options;
use crate::report::{Report, Table, progress};
use crate::stats::{millis, turns};
use host::Host;
use subject::Subject;

/// Before each sample. The kernel frees a deleted link for some time after the request
/// has returned; whoever came next would pay for that of the subject before.
const SETTLE: Duration = Duration::from_millis(50);
/// Fewer rounds say little of how values spread.
const LEAST_ROUNDS: usize = 6;

/// Measures all of it.
pub fn measure(options: &Options, underlay: &Underlay, out: PathBuf) -> anyhow::Result<Report> {
    let subjects = Subject::all(options)?;
    let rounds = options.rounds(60);
    let at_once = options.size([1, 110], [1, 2]);
    let how = format!(
        "{rounds} rounds with one call at a time, fewer with several. Milliseconds are those from \
         the start of the first call to the end of the last, divided by their number."
    );
    let mut report = Report::new("attach", out, &how);
    let columns: Vec<_> = subjects.iter().map(|subject| subject.name).collect();
    report.tables = vec![
        Table::new("ADD and DEL", &columns),
        Table::new(
            "Size and start of the plugin, and what a DEL leaves",
            &columns,
        ),
    ];
    let pods = (0..at_once[1])
        .map(|number| Pod::new(underlay.lab(), &format!("m{number}")))
        .collect::<Result<Vec<_>, _>>()?;
    let mut numbers = 1..;
    for full in [0, options.size(250, 2)] {
        progress(&format!("{} nodes with {full} pods each …", subjects.len()));
        let hosts = subjects
            .iter()
            .zip(&mut numbers)
            .map(|(subject, number)| Host::new(underlay, subject, number, full))
            .collect::<anyhow::Result<Vec<_>>>()?;
        for count in at_once {
            progress(&format!("{count} at once, beside {full} pods …"));
            let first: Vec<&Pod> = pods.iter().take(count).collect();
            let case = format!("{count} at once, beside {full} pods, ms");
            let rounds = rounds_of(rounds, count);
            for (round, at) in order(rounds, hosts.len()) {
                let sample = sample(&hosts[at], &first)?;
                // The first round is for warming up, unless it is the only one.
                if round == 0 && rounds > 1 {
                    continue;
                }
                report.tables[0].record(&format!("ADD, {case}"), at, sample.add);
                report.tables[0].record(&format!("DEL, {case}"), at, sample.del);
                let row = format!("until links are gone after DEL, {case}");
                report.tables[1].record(&row, at, sample.removed);
            }
            report.save()?;
        }
        if full == 0 {
            footprint(&hosts, rounds, &mut report.tables[1])?;
        }
    }
    Ok(report)
}

/// A burst of many calls has many samples in it already.
fn rounds_of(rounds: usize, at_once: usize) -> usize {
    let share = if at_once == 1 { 1 } else { 10 };
    (rounds / share).max(LEAST_ROUNDS.min(rounds))
}

/// Round and subject, turn by turn; with one round more, the first, for warming up.
fn order(rounds: usize, subjects: usize) -> impl Iterator<Item = (usize, usize)> {
    let last = if rounds > 1 { rounds } else { 0 };
    (0..=last).flat_map(move |round| turns(round, subjects).map(move |at| (round, at)))
}

/// Milliseconds for each of the calls.
struct Sample {
    add: f64,
    del: f64,
    /// From the end of the last DEL until no link was left, for all together.
    removed: f64,
}

fn sample(host: &Host<'_>, pods: &[&Pod]) -> anyhow::Result<Sample> {
    std::thread::sleep(SETTLE);
    let added = host.add(pods)?;
    let deleted = host.del(pods, &added)?;
    let removed = host.wait_removed()?;
    let each = |took: Duration| millis(took) / pods.len() as f64;
    Ok(Sample {
        add: each(added.took),
        del: each(deleted.took),
        removed: millis(removed),
    })
}

fn footprint(hosts: &[Host<'_>], rounds: usize, table: &mut Table) -> anyhow::Result<()> {
    for round in 0..rounds {
        for at in turns(round, hosts.len()) {
            let start = millis(hosts[at].start_plugin()?);
            table.record("a call that does nothing (VERSION), ms", at, start);
            table.record("the program, KiB", at, hosts[at].subject.size()?);
        }
    }
    Ok(())
}
