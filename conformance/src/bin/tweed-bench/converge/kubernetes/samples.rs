//! What the rounds over a real API server came to, agent by agent.

use std::time::{Duration, Instant};

use super::lists::List;
use super::report::{Kubernetes, PlainList};
use super::{COMES, COMES_FROM_EVENT, EVENT, GOES, GOES_FROM_EVENT};
use crate::converge::millis;
use crate::converge::report::{Heartbeats, Latency, Start, StartSamples};
use crate::converge::stage::Who;
use crate::stats::Spread;

/// One change, in milliseconds since it was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    /// Until another watcher had its event.
    event: f64,
    /// Until the kernel had made or deleted the route.
    route: f64,
}

impl Change {
    /// By these moments.
    pub fn new(asked: Instant, event: Instant, route: Instant) -> Self {
        Self {
            event: millis(event - asked),
            route: millis(route - asked),
        }
    }

    /// What is the agent's. Less than nothing where the other watcher was told
    /// later.
    fn after_event(&self) -> f64 {
        self.route - self.event
    }
}

/// What an agent had to do with heartbeats.
#[derive(Debug, Default)]
pub struct Beats {
    pub count: u32,
    pub seconds: f64,
    pub cpu: Duration,
    pub wakes: u64,
}

/// Of one agent, in all rounds.
#[derive(Debug, Default)]
pub struct AgentSamples {
    pub start: StartSamples,
    /// The API server's CPU for each start.
    pub server_cpu: Vec<f64>,
    pub came: Vec<Change>,
    pub went: Vec<Change>,
    /// CPU of the agent for all of these changes.
    pub cpu: Duration,
    pub beats: Beats,
}

impl AgentSamples {
    fn latencies(&self, who: Who) -> [Latency; 5] {
        let who = who.name();
        let of = |changes: &[Change], ms: fn(&Change) -> f64| -> Vec<f64> {
            changes.iter().map(ms).collect()
        };
        let events = [&*self.came, &*self.went].concat();
        [
            Latency::of(
                who,
                COMES,
                &of(&self.came, |change| change.route),
                Some(millis(self.cpu)),
            ),
            Latency::of(
                who,
                COMES_FROM_EVENT,
                &of(&self.came, Change::after_event),
                None,
            ),
            Latency::of(who, GOES, &of(&self.went, |change| change.route), None),
            Latency::of(
                who,
                GOES_FROM_EVENT,
                &of(&self.went, Change::after_event),
                None,
            ),
            Latency::of(who, EVENT, &of(&events, |change| change.event), None),
        ]
    }

    fn heartbeats(&self, who: Who) -> Heartbeats {
        let Beats {
            count,
            seconds,
            cpu,
            wakes,
        } = self.beats;
        Heartbeats {
            who,
            count,
            seconds,
            cpu_ms_each: millis(cpu) / f64::from(count),
            wakes_each: wakes as f64 / f64::from(count),
        }
    }
}

/// Of one way to ask for the list.
#[derive(Debug, Default)]
pub struct ListSamples {
    pub ms: Vec<f64>,
    pub bytes: u64,
}

/// All samples as the results have them. The first agent is tweed's.
pub fn report(
    version: String,
    agents: &[(Who, AgentSamples)],
    lists: &[(List, ListSamples)],
) -> Kubernetes {
    let tweed = agents.first().map(|(_, samples)| samples.start.clone());
    let tweed = tweed.unwrap_or_default();
    let latencies: Vec<[Latency; 5]> = (agents.iter())
        .map(|(who, samples)| samples.latencies(*who))
        .collect();
    Kubernetes {
        version,
        starts: (agents.iter())
            .map(|(who, samples)| Start::new(*who, source(*who), &samples.start, &tweed))
            .collect(),
        server_cpu_ms: (agents.iter())
            .map(|(_, samples)| Spread::of(&samples.server_cpu))
            .collect(),
        lists: (lists.iter())
            .map(|(list, samples)| PlainList {
                name: list.name(),
                bytes: samples.bytes,
                ms: Spread::of(&samples.ms),
                tweed_times: Spread::of_ratios(&tweed.route, &samples.ms),
            })
            .collect(),
        latencies: latencies.into_iter().flatten().collect(),
        heartbeats: (agents.iter())
            .map(|(who, samples)| samples.heartbeats(*who))
            .collect(),
    }
}

fn source(who: Who) -> &'static str {
    match who {
        Who::Tweed => "kube-apiserver, protobuf",
        Who::Flanneld => "flanneld, kube-apiserver",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_agents_is_counted_from_the_event() {
        let asked = Instant::now();
        let after = |ms| asked + Duration::from_millis(ms);
        let samples = AgentSamples {
            start: StartSamples {
                route: vec![900.0],
                ..StartSamples::default()
            },
            came: vec![Change::new(asked, after(3), after(5))],
            went: vec![Change::new(asked, after(4), after(3))],
            cpu: Duration::from_millis(7),
            beats: Beats {
                count: 10,
                cpu: Duration::from_millis(2),
                ..Beats::default()
            },
            ..AgentSamples::default()
        };
        let list = ListSamples {
            ms: vec![300.0],
            bytes: 1,
        };
        let agents = [(Who::Tweed, samples)];
        let report = report("v1".to_owned(), &agents, &[(List::Pages, list)]);
        let medians: Vec<(&str, f64)> = (report.latencies.iter())
            .map(|one| (one.way, one.p50_ms))
            .collect();
        let expected = [
            (COMES, 5.0),
            (COMES_FROM_EVENT, 2.0),
            (GOES, 3.0),
            (GOES_FROM_EVENT, -1.0),
            (EVENT, 3.5),
        ];
        assert_eq!(medians, expected);
        assert_eq!(report.latencies[0].cpu_ms_each, Some(7.0));
        assert_eq!(report.heartbeats[0].cpu_ms_each, 0.2);
        assert_eq!(report.lists[0].tweed_times.unwrap().median, 3.0);
    }
}
