//! A few packets by the program `ping`, from inside a namespace. For many packets
//! there is [`pinger`](crate::pinger).

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::error::LabError;
use crate::netns::Netns;
use crate::run::run;

/// Options of a ping.
#[derive(Debug, Clone)]
pub struct PingOptions {
    /// Number of requests, which are sent at once.
    pub count: u32,
    /// How long to wait for answers after the last one that came.
    pub wait: Duration,
    /// Size of the whole IP packet in bytes, sent with "don't fragment"; `None`
    /// for small packets without that flag.
    pub packet_size: Option<u16>,
    /// The source address; `None` lets the kernel choose.
    pub source: Option<IpAddr>,
}

impl Default for PingOptions {
    /// Three small packets, 10 s for answers: the machine may be busy.
    fn default() -> Self {
        Self {
            count: 3,
            wait: Duration::from_secs(10),
            packet_size: None,
            source: None,
        }
    }
}

impl PingOptions {
    /// One packet of exactly this many bytes, headers included, that must not be
    /// fragmented.
    #[must_use]
    pub fn packet(size: u16) -> Self {
        Self {
            count: 1,
            packet_size: Some(size),
            ..Self::default()
        }
    }
}

/// The results of a ping.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PingReport {
    /// Number of requests, including those that the local kernel refused to send.
    pub sent: u32,
    /// The sequence numbers of the answered requests, from 1.
    pub answered: BTreeSet<u32>,
    /// Mean round-trip time in milliseconds.
    pub average_ms: Option<f64>,
    /// Errors of routers or of the local kernel, as text; of a continuous ping the first 100
    /// of the local kernel.
    pub errors: Vec<String>,
}

impl PingReport {
    /// Requests without an answer.
    #[must_use]
    pub fn lost(&self) -> u32 {
        let answered = u32::try_from(self.answered.len()).unwrap_or(u32::MAX);
        self.sent.saturating_sub(answered)
    }

    fn parse(output: &str) -> Option<Self> {
        let mut report = Self::default();
        let mut total_ms = 0.0;
        let mut has_summary = false;
        for line in output.lines() {
            let sequence = after(line, "icmp_seq=");
            if let (true, Some(sequence)) = (line.contains("bytes from"), &sequence) {
                let ms: f64 = after(line, "time=")?.parse().ok()?;
                // A duplicate is counted once.
                if report.answered.insert(sequence.parse().ok()?) {
                    total_ms += ms;
                }
            } else if line.contains("packets transmitted") {
                report.sent = line.split_whitespace().next()?.parse().ok()?;
                has_summary = true;
            } else if sequence.is_some() || line.starts_with("ping: ") {
                report.errors.push(line.to_owned());
            }
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "a count of packets is far below 2^52"
        )]
        let count = report.answered.len() as f64;
        report.average_ms = (count > 0.0).then(|| total_ms / count);
        (has_summary || !report.errors.is_empty()).then_some(report)
    }
}

impl fmt::Display for PingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} answered", self.answered.len(), self.sent)?;
        if let Some(ms) = self.average_ms {
            write!(f, ", {ms:.2} ms")?;
        }
        if let Some(first) = self.errors.first() {
            write!(f, "; {first}")?;
        }
        Ok(())
    }
}

/// The word right after `key`.
fn after(line: &str, key: &str) -> Option<String> {
    let (_, rest) = line.split_once(key)?;
    Some(rest.split_whitespace().next()?.to_owned())
}

/// Pings `to` from inside a namespace. Lost packets are not an error of this
/// function; the report has them.
///
/// # Errors
/// `ping` does not run, or its output is not a report.
pub fn ping(
    from: &Netns,
    to: impl Into<IpAddr>,
    options: &PingOptions,
) -> Result<PingReport, LabError> {
    let to = to.into();
    let count = options.count.to_string();
    let mut command = from.command("ping");
    // `ping` waits as long as `-W` says only if no answer came before its last request.
    // Otherwise it waits twice the longest round trip, which is no time on a busy machine.
    // `-l` sends all requests before it looks for answers.
    command
        .args(["-n", "-c", &count, "-l", &count])
        .args(["-W", &options.wait.as_secs_f64().to_string()]);
    if let Some(size) = options.packet_size {
        // `-s` is the size without the IP header and without ICMP's 8 bytes.
        let headers = if to.is_ipv4() { 28 } else { 48 };
        let payload = size.saturating_sub(headers).to_string();
        command.args(["-M", "do", "-s", &payload]);
    }
    if let Some(source) = options.source {
        command.args(["-I", &source.to_string()]);
    }
    command.arg(to.to_string());
    let output = match run(&mut command) {
        Ok(output) => output,
        // It exits with 1 if answers are missing and with 2 for other errors.
        Err(LabError::Failed { output, .. }) => output,
        Err(other) => return Err(other),
    };
    PingReport::parse(&output).ok_or(LabError::Output {
        command: format!("ping {to}"),
        expected: "ping's report",
        output,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_errors_and_duplicates_are_distinguished() {
        let report = PingReport::parse(
            "PING 10.244.2.2 (10.244.2.2) 56(84) bytes of data.\n\
             64 bytes from 10.244.2.2: icmp_seq=1 ttl=62 time=0.100 ms\n\
             64 bytes from 10.244.2.2: icmp_seq=1 ttl=62 time=0.200 ms (DUP!)\n\
             From 10.244.1.0 icmp_seq=2 Destination Host Unreachable\n\
             64 bytes from 10.244.2.2: icmp_seq=3 ttl=62 time=0.300 ms\n\
             \n\
             --- 10.244.2.2 ping statistics ---\n\
             3 packets transmitted, 2 received, +1 errors, 33% packet loss, time 20ms\n",
        )
        .unwrap();
        assert_eq!(report.sent, 3);
        assert_eq!(report.answered, BTreeSet::from([1, 3]));
        assert_eq!(report.lost(), 1);
        assert_eq!(report.average_ms, Some(0.2));
        assert_eq!(
            report.errors,
            ["From 10.244.1.0 icmp_seq=2 Destination Host Unreachable"]
        );
    }

    #[test]
    fn a_packet_that_the_local_kernel_refuses_is_an_error_line() {
        let report = PingReport::parse(
            "ping: local error: message too long, mtu=1450\n\
             1 packets transmitted, 0 received, +1 errors, 100% packet loss, time 0ms\n",
        )
        .unwrap();
        assert_eq!((report.sent, report.lost()), (1, 1));
        assert_eq!(report.errors.len(), 1);
    }

    #[test]
    fn other_output_is_no_report() {
        assert_eq!(
            PingReport::parse("usage: ping [options] <destination>"),
            None
        );
    }
}
