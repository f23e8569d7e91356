//! Pings and TCP connections that run while a scenario changes the cluster, and of
//! which none may be lost.

mod stream;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tweed_lab::{EchoSocket, PingReport, Pings};

pub use stream::Stream;

use crate::endpoint::Endpoint;

/// Pings between all pods, 100 a second each, and TCP streams.
#[derive(Debug)]
pub struct Traffic {
    pings: Pings,
    streams: Vec<Stream>,
    start: Instant,
}

/// The totals of traffic without any loss.
#[derive(Debug, Default)]
pub struct Total {
    /// Number of pings, each between two endpoints.
    pub pings: usize,
    /// Number of answered requests of all pings.
    pub answered: usize,
    /// Answered requests per second of one ping.
    pub rate: usize,
    /// Number of TCP connections.
    pub streams: usize,
    /// Bytes that they carried in each direction.
    pub bytes: u64,
    /// The longest round trip of a block of any connection.
    pub longest: Duration,
}

impl Traffic {
    /// Starts a ping between every two of these pods.
    pub fn between(pods: &[Endpoint]) -> Result<Self> {
        let mut pings = Vec::new();
        for (index, from) in pods.iter().enumerate() {
            for to in &pods[index + 1..] {
                let name = format!("the ping from {} to {}", from.name, to.name);
                let opened = from.enter(|| EchoSocket::open(to.address))?;
                let socket = opened.with_context(|| name.clone())?;
                pings.push((name, socket));
            }
        }
        Ok(Self {
            pings: Pings::start(pings)?,
            streams: Vec::new(),
            start: Instant::now(),
        })
    }

    /// Adds a TCP stream whose server must see this client address.
    pub fn add_stream(&mut self, from: &Endpoint, to: &Endpoint, seen: IpAddr) -> Result<()> {
        let stream = Stream::open(from, to)?;
        ensure!(
            stream.client_seen == seen,
            "{} sees {} as {}, and not as {seen}",
            to.name,
            from.name,
            stream.client_seen,
        );
        self.streams.push(stream);
        Ok(())
    }

    /// Fails if a connection has broken. Lost pings are reported by `stop`.
    pub fn check(&mut self) -> Result<()> {
        match self.streams.iter().position(Stream::is_broken) {
            None => Ok(()),
            Some(broken) => self.streams.swap_remove(broken).close().map(drop),
        }
    }

    /// Stops all traffic.
    ///
    /// # Errors
    /// All lost pings and broken connections.
    pub fn stop(self) -> Result<Total> {
        let seconds = usize::try_from(self.start.elapsed().as_secs())?;
        let reports = self.pings.stop();
        let mut total = Total {
            pings: reports.len(),
            streams: self.streams.len(),
            ..Total::default()
        };
        let mut losses = Vec::new();
        for (name, report) in reports {
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

/// The losses and errors of a ping; `None` if there are none.
fn loss(report: &PingReport) -> Option<String> {
    let lost: Vec<u32> = (1..=report.sent)
        .filter(|number| !report.answered.contains(number))
        .collect();
    if lost.is_empty() && report.errors.is_empty() {
        return None;
    }
    let mut text = format!("{} of {} requests were lost", lost.len(), report.sent);
    if let Some(first) = lost.first() {
        let last = report.answered.last().copied().unwrap_or(0);
        text += &format!("; the first is number {first}, the last answer is to {last}");
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
    fn every_request_needs_its_answer() {
        assert_eq!(loss(&report(3, &[1, 2, 3])), None);
        assert_eq!(
            loss(&report(3, &[1, 3])).unwrap(),
            "1 of 3 requests were lost; the first is number 2, the last answer is to 3"
        );
        assert!(loss(&report(100, &[1, 2])).unwrap().starts_with("98 of"));
    }

    #[test]
    fn an_icmp_error_is_reported_even_if_nothing_was_lost() {
        let refused = PingReport {
            errors: vec!["request 2: 10.244.1.0 says No route to host".to_owned()],
            ..report(2, &[1, 2])
        };
        assert!(loss(&refused).unwrap().contains("No route"));
    }
}
