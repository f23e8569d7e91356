//! What was aimed at, and what it came to.

use super::report::Report;
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
        let ours = |who: &Who| *who == Who::Tweed;
        for start in self.starts.iter().filter(|start| ours(&start.who)) {
            let source = start.source;
            let what = format!("{source}: ms from start to the last route");
            aim(what, start.to_last_route_ms, AIM_START_MS);
            let what = format!("{source}: peak memory, MiB");
            aim(what, start.peak_mib, AIM_PEAK_MIB);
        }
        for one in self.latencies.iter().filter(|one| ours(&one.who)) {
            let what = format!("a Node's route, {}: p99, ms", one.way);
            aim(what, Some(Spread::exact(one.p99_ms)), AIM_ROUTE_MS);
        }
        for beats in self.heartbeats.iter().filter(|beats| ours(&beats.who)) {
            let what = "CPU of a heartbeat, ms".to_owned();
            aim(
                what,
                Some(Spread::exact(beats.cpu_ms_each)),
                AIM_HEARTBEAT_MS,
            );
        }
        goals
    }
}
