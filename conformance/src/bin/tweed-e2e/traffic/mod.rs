//! Packets and connections that run while something is done to the cluster, and
//! of which none may be lost.

mod stream;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tweed_lab::kubernetes::Cluster;
use tweed_lab::{ContinuousPing, PingReport};

pub use stream::Stream;

use crate::place::Place;

/// Requests at the end of a ping that need no answer: they were under way when
/// it was told to stop.
const UNDER_WAY: u32 = 50;

/// Pings between all pods, 100 a second each, and TCP streams.
#[derive(Debug)]
pub struct Traffic {
    pings: Vec<(String, ContinuousPing)>,
    streams: Vec<Stream>,
    start: Instant,
}

/// What has been carried, with nothing lost.
#[derive(Debug, Default)]
pub struct Total {
    /// Pings, each between two places.
    pub pings: usize,
    /// Requests that were answered.
    pub answered: usize,
    /// The same for one ping and one second.
    pub rate: usize,
    /// TCP connections.
    pub streams: usize,
    /// Bytes that they carried there and back.
    pub bytes: u64,
    /// The longest that a block of any of them was under way.
    pub longest: Duration,
}

impl Traffic {
    /// Pings between every two of these pods.
    pub fn between(cluster: &Cluster, pods: &[Place]) -> Result<Self> {
        let mut pings = Vec::new();
        for (index, from) in pods.iter().enumerate() {
            for to in &pods[index + 1..] {
                let name = format!("the ping from {} to {}", from.name, to.name);
                let command = from.command("ping");
                let log = format!("{}-{}", from.name, to.name);
                let ping = ContinuousPing::start_by(cluster.lab(), command, &log, to.address);
                pings.push((name.clone(), ping.context(name)?));
            }
        }
        Ok(Self {
            pings,
            streams: Vec::new(),
            start: Instant::now(),
        })
    }

    /// Adds a TCP stream whose server has to see this address.
    pub fn add_stream(&mut self, from: &Place, to: &Place, seen: IpAddr) -> Result<()> {
        let stream = Stream::open(from, to)?;
        ensure!(
            stream.client_seen == seen,
            "{} takes {} for {}, and not for {seen}",
            to.name,
            from.name,
            stream.client_seen,
        );
        self.streams.push(stream);
        Ok(())
    }

    /// Fails as soon as a connection has broken; the rest is told at the end.
    pub fn check(&mut self) -> Result<()> {
        match self.streams.iter().position(Stream::is_broken) {
            None => Ok(()),
            Some(broken) => self.streams.swap_remove(broken).close().map(drop),
        }
    }

    /// Ends all of it.
    ///
    /// # Errors
    /// What was lost and what broke, all of it.
    pub fn stop(self) -> Result<Total> {
        let mut total = Total {
            pings: self.pings.len(),
            streams: self.streams.len(),
            ..Total::default()
        };
        let seconds = usize::try_from(self.start.elapsed().as_secs())?;
        let mut losses = Vec::new();
        for (name, ping) in self.pings {
            let report = ping.stop().with_context(|| name.clone())?;
            match loss(&report) {
                None => total.answered += report.answered.len(),
                Some(loss) => losses.push(format!("{name}: {loss}")),
            }
        }
        for stream in self.streams {
            match stream.close() {
                Ok(carried) => {
                    total.bytes += carried.bytes;
                    total.longest = total.longest.max(carried.longest);
                }
                Err(broken) => losses.push(format!("{broken:#}")),
            }
        }
        if !losses.is_empty() {
            bail!("{}", losses.join("\n"));
        }
        total.rate = total.answered / total.pings.max(1) / seconds.max(1);
        Ok(total)
    }
}

/// What is wrong with a ping that has run all the time; none if nothing is.
fn loss(report: &PingReport) -> Option<String> {
    let last = report.answered.last().copied().unwrap_or(0);
    let lost: Vec<u32> = (1..=last)
        .filter(|number| !report.answered.contains(number))
        .collect();
    let silent = report.sent.saturating_sub(last);
    if lost.is_empty() && silent <= UNDER_WAY && report.errors.is_empty() {
        return None;
    }
    let mut text = format!(
        "{} of {} requests were lost, {silent} are without an answer at the end",
        lost.len(),
        report.sent
    );
    if let Some(first) = lost.first() {
        text += &format!("; the first is number {first}");
    }
    for error in report.errors.iter().take(3) {
        text += "; ";
        text += error;
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn report(sent: u32, answered: &[u32]) -> PingReport {
        PingReport {
            sent,
            answered: answered.iter().copied().collect::<BTreeSet<_>>(),
            ..PingReport::default()
        }
    }

    #[test]
    fn what_is_under_way_at_the_end_is_no_loss() {
        assert_eq!(loss(&report(3, &[1, 2])), None);
    }

    #[test]
    fn a_gap_a_long_silence_and_an_icmp_error_are() {
        assert!(loss(&report(3, &[1, 3])).unwrap().contains("number 2"));
        assert!(loss(&report(100, &[1, 2])).unwrap().contains("98 are"));
        let refused = PingReport {
            errors: vec!["From 10.244.1.0 icmp_seq=2 Destination Host Unreachable".to_owned()],
            ..report(2, &[1, 2])
        };
        assert!(loss(&refused).unwrap().contains("Unreachable"));
    }
}
