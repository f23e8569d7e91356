//! What was aimed at, and what it came to.

use super::kubernetes::JUDGED;
use super::report::{Heartbeats, Latency, Report, Start};
use super::stage::Who;
use crate::report::Aim;
use crate::stats::Spread;

/// From start to the last route, in milliseconds.
const AIM_START_MS: f64 = 1000.0;
/// The most memory, in MiB.
const AIM_PEAK_MIB: f64 = 40.0;
/// For one Node's route, in milliseconds: 99 of 100 come sooner.
const AIM_ROUTE_MS: f64 = 5.0;
/// CPU for a heartbeat, in milliseconds.
const AIM_HEARTBEAT_MS: f64 = 0.1;

/// An aim that is a limit.
pub struct Goal {
    /// The aim.
    pub aim: Aim,
    /// What it is to stay below.
    pub limit: f64,
}

impl Report {
    /// What was aimed at, and what it came to.
    pub fn goals(&self) -> Vec<Goal> {
        let routes = self.latencies.iter();
        let routes = routes.map(|one| (format!("a Node's route, {}", one.way), one));
        let mut goals = goals("", &self.starts, routes, &self.heartbeats);
        if let Some(real) = &self.kubernetes {
            let routes = real
                .latencies
                .iter()
                .filter(|one| JUDGED.contains(&one.way));
            let routes = routes.map(|one| (one.way.to_owned(), one));
            goals.extend(self::goals(
                "kube-apiserver: ",
                &real.starts,
                routes,
                &real.heartbeats,
            ));
        }
        goals
    }
}

/// Of what was measured over one kind of API server: what is tweed's.
fn goals<'a>(
    server: &str,
    starts: &[Start],
    routes: impl Iterator<Item = (String, &'a Latency)>,
    heartbeats: &[Heartbeats],
) -> Vec<Goal> {
    let mut goals = Vec::new();
    let mut aim = |what: String, measured: Option<Spread>, limit: f64| {
        goals.extend(measured.map(|measured| Goal {
            aim: Aim {
                what: format!("{what}: at most {limit}"),
                measured,
                is_met: measured.median <= limit,
            },
            limit,
        }));
    };
    let ours = |who: Who| who == Who::Tweed;
    for start in starts.iter().filter(|start| ours(start.who)) {
        let source = start.source;
        let what = format!("{source}: ms from start to the last route");
        aim(what, start.to_last_route_ms, AIM_START_MS);
        let what = format!("{source}: peak memory, MiB");
        aim(what, start.peak_mib, AIM_PEAK_MIB);
    }
    for (route, one) in routes.filter(|(_, one)| one.who == Who::Tweed.name()) {
        let what = format!("{server}{route}: p99, ms");
        aim(what, Some(Spread::exact(one.p99_ms)), AIM_ROUTE_MS);
    }
    for beats in heartbeats.iter().filter(|beats| ours(beats.who)) {
        let what = format!("{server}CPU of a heartbeat, ms");
        let measured = Some(Spread::exact(beats.cpu_ms_each));
        aim(what, measured, AIM_HEARTBEAT_MS);
    }
    goals
}
