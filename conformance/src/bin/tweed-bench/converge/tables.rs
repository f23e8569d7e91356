//! The results as tables for people.

use std::fmt::Write;

use super::report::{Heartbeats, Idle, Latency, Report, Start};
use crate::report::{Aim, spread, text, write_aims};

impl Report {
    /// Tables for people.
    pub fn markdown(&self) -> String {
        text(|out| self.write(out))
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let mb = |bytes: usize| bytes as f64 / 1e6;
        writeln!(
            out,
            "{}. {} Nodes: {:.0} MB as JSON, {:.0} MB as protobuf. Milliseconds and MiB: median \
             (10th to 90th percentile).\n",
            self.machine,
            self.nodes,
            mb(self.json_bytes),
            mb(self.protobuf_bytes)
        )?;
        if !self.starts.is_empty() {
            self.write_own(out)?;
        }
        if let Some(kubernetes) = &self.kubernetes {
            kubernetes.write(out)?;
        }
        let aims: Vec<Aim> = self.goals().into_iter().map(|goal| goal.aim).collect();
        write_aims(out, &aims)
    }

    /// What was measured over the bench's own API server and over a file.
    fn write_own(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "### From start to the last route\n")?;
        writeln!(
            out,
            "| source | last route, ms | × tweed | ready, ms | peak memory, MiB | × tweed | CPU, ms | requests |"
        )?;
        writeln!(out, "|---|--:|--:|--:|--:|--:|--:|--:|")?;
        for start in &self.starts {
            writeln!(out, "| {} | {} |", start_cells(start), start.requests)?;
        }
        writeln!(out, "\n### Messages to the kernel\n")?;
        writeln!(out, "| | messages | ms | a second |")?;
        writeln!(out, "|---|--:|--:|--:|")?;
        for writes in &self.writes {
            writeln!(
                out,
                "| {} | {} | {} | {:.0} |",
                writes.who,
                writes.messages,
                spread(writes.ms),
                writes.a_second.unwrap_or_default()
            )?;
        }
        writeln!(out, "\n### One Node that joins, until its route is there\n")?;
        write_latencies(out, &self.latencies)?;
        writeln!(out, "\n### Heartbeats, and nothing at all\n")?;
        write_heartbeats(out, &self.heartbeats)?;
        for idle in &self.idle {
            let tweed = self.idle.first().map(|tweed| tweed.cpu_ms_a_second);
            writeln!(
                out,
                "| {}, each of {:.0} idle seconds | {:.2} | {} | {:.1} |",
                idle.who.name(),
                idle.seconds,
                idle.cpu_ms_a_second,
                times(idle.cpu_ms_a_second, tweed),
                idle.wakes_a_second
            )?;
        }
        for Idle { who, peak_mib, .. } in &self.idle {
            let who = who.name();
            writeln!(
                out,
                "\nThe most memory of {who} after all of that: {peak_mib:.1} MiB."
            )?;
        }
        writeln!(out)
    }
}

/// The cells that every table of starts begins with.
pub fn start_cells(start: &Start) -> String {
    let spreads = [
        start.to_last_route_ms,
        start.route_times_tweed,
        start.to_ready_ms,
        start.peak_mib,
        start.peak_times_tweed,
        start.cpu_ms,
    ];
    [start.source.to_owned()]
        .into_iter()
        .chain(spreads.map(spread))
        .collect::<Vec<_>>()
        .join(" | ")
}

/// A table of how long single Nodes take.
pub fn write_latencies(out: &mut String, latencies: &[Latency]) -> std::fmt::Result {
    writeln!(
        out,
        "| | samples | p50, ms | × tweed | p99, ms | × tweed | longest, ms | CPU to join and leave, ms | × tweed |"
    )?;
    writeln!(out, "|---|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    for one in latencies {
        let tweed = latencies.iter().find(|tweed| tweed.way == one.way);
        let ratio = |of: fn(&Latency) -> f64| times(of(one), tweed.map(of));
        let cpu = one.cpu_ms_each.map(|cpu| {
            let ratio = times(cpu, tweed.and_then(|tweed| tweed.cpu_ms_each));
            (format!("{cpu:.2}"), ratio)
        });
        let (cpu, cpu_ratio) = cpu.unwrap_or_else(|| ("–".to_owned(), "–".to_owned()));
        writeln!(
            out,
            "| {}, {} | {} | {:.2} | {} | {:.2} | {} | {:.2} | {cpu} | {cpu_ratio} |",
            one.who,
            one.way,
            one.samples,
            one.p50_ms,
            ratio(|one| one.p50_ms),
            one.p99_ms,
            ratio(|one| one.p99_ms),
            one.most_ms,
        )?;
    }
    Ok(())
}

/// The head of a table of what costs CPU, and its rows on heartbeats.
pub fn write_heartbeats(out: &mut String, heartbeats: &[Heartbeats]) -> std::fmt::Result {
    writeln!(out, "| | CPU, ms | × tweed | threads woken |")?;
    writeln!(out, "|---|--:|--:|--:|")?;
    for beats in heartbeats {
        let tweed = heartbeats.first().map(|tweed| tweed.cpu_ms_each);
        writeln!(
            out,
            "| {}, each of {} heartbeats in {:.0} s | {:.3} | {} | {:.2} |",
            beats.who.name(),
            beats.count,
            beats.seconds,
            beats.cpu_ms_each,
            times(beats.cpu_ms_each, tweed),
            beats.wakes_each
        )?;
    }
    Ok(())
}

/// How many times tweed's, as a table's cell has it.
fn times(number: f64, tweed: Option<f64>) -> String {
    tweed.map_or_else(|| "–".to_owned(), |tweed| format!("{:.2}", number / tweed))
}

#[cfg(test)]
mod tests {
    use super::super::report::StartSamples;
    use super::super::stage::Who;
    use super::*;

    #[test]
    fn aims_are_of_tweed_alone_and_judged_by_the_median_and_the_99th_of_100() {
        let samples: Vec<f64> = (1..=100).map(|ms| f64::from(ms) / 10.0).collect();
        let slower: Vec<f64> = samples.iter().map(|ms| ms * 2.0).collect();
        let tweed = StartSamples {
            route: vec![900.0],
            peak: vec![41.0],
            ..StartSamples::default()
        };
        let start = |who, route, peak| {
            let samples = StartSamples {
                route: vec![route],
                peak: vec![peak],
                ..StartSamples::default()
            };
            Start::new(who, "file", &samples, &tweed)
        };
        let report = Report {
            starts: vec![
                start(Who::Tweed, 900.0, 41.0),
                start(Who::Flanneld, 2700.0, 410.0),
            ],
            latencies: vec![
                Latency::of(Who::Tweed.name(), "one at a time", &samples, Some(200.0)),
                Latency::of(Who::Flanneld.name(), "one at a time", &slower, Some(600.0)),
            ],
            ..Report::default()
        };
        let met: Vec<bool> = report.goals().iter().map(|goal| goal.aim.is_met).collect();
        assert_eq!(met, [true, false, false]);
        let text = report.markdown();
        for row in [
            "| tweed, one at a time | 100 | 5.05 | 1.00 | 9.90 | 1.00 | 10.00 | 2.00 | 1.00 |",
            "| flanneld, one at a time | 100 | 10.10 | 2.00 | 19.80 | 2.00 | 20.00 | 6.00 | 3.00 |",
            "| 2700.00 (2700.00–2700.00) | 3.00 (3.00–3.00) | – |",
        ] {
            assert!(text.contains(row), "no {row} in {text}");
        }
        assert_eq!(text.matches("**short**").count(), 2, "{text}");
    }
}
