//! Captures of a namespace: packets by `tcpdump`, changes by `ip monitor`.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::background::Background;
use crate::error::LabError;
use crate::netns::Netns;
use crate::run::wait_until;

/// A route that [`monitor`] adds and removes to see that it listens. It is in a
/// routing table that no rule uses.
const PROBE_ROUTE: &str = "127.99.99.99";

/// A running capture.
#[derive(Debug)]
pub struct Capture {
    process: Background,
}

impl Capture {
    /// The lines seen so far.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let output = self.process.output();
        // Messages of tcpdump, the changes that `monitor` makes itself, and what `ip` says
        // about namespaces of other tests that come or go while it reads their names.
        let noise = [
            "tcpdump: ",
            "listening on ",
            "dropped privs",
            PROBE_ROUTE,
            "Error: Peer netns reference is invalid.",
        ];
        output
            .lines()
            .filter(|line| !line.is_empty() && !noise.iter().any(|words| line.contains(words)))
            .map(str::to_owned)
            .collect()
    }

    /// Waits until a line contains `text`, and returns that line.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] after 30 s with all lines seen.
    pub fn wait_for(&self, text: &str) -> Result<String, LabError> {
        wait_until(
            &format!("a line with {text:?}"),
            Duration::from_secs(30),
            || {
                let lines = self.lines();
                let found = lines.iter().find(|line| line.contains(text)).cloned();
                found.ok_or_else(|| lines.join("\n"))
            },
        )
    }

    /// Ends it and returns all lines. To show that a packet was *not* sent, send
    /// another one afterwards and wait for that one first.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] if it does not end.
    pub fn stop(mut self) -> Result<Vec<String>, LabError> {
        self.process.stop(Signal::SIGINT)?;
        let mut lines = self.lines();
        // The three counters that tcpdump prints at its end.
        lines.retain(|line| {
            let mut words = line.split_whitespace();
            !(words.next().is_some_and(|word| word.parse::<u64>().is_ok())
                && matches!(words.next(), Some("packet" | "packets")))
        });
        Ok(lines)
    }
}

/// Captures the packets on a link (`any` for all) that a tcpdump filter matches,
/// one line each.
///
/// # Errors
/// `tcpdump` does not start to listen within 30 s.
pub fn capture(netns: &Netns, link: &str, filter: &str) -> Result<Capture, LabError> {
    let mut command = netns.command("tcpdump");
    // As the user that it runs as: not each system has one for tcpdump.
    command.args([
        "-n",
        "-l",
        "-e",
        "--immediate-mode",
        // In this mode tcpdump's ring has a place of this size for each packet: with its
        // default only eight packets fit, and the ninth is lost while it has no processor.
        "-s",
        "2048",
        "-Z",
        "root",
        "-i",
        link,
    ]);
    command.args(filter.split_whitespace());
    let log = fresh_log(netns, &format!("tcpdump-{link}"));
    let process = Background::start(netns.lab(), &mut command, &log)?;
    wait_until("tcpdump to listen", Duration::from_secs(30), || {
        let output = process.output();
        if output.contains("listening on") {
            Ok(())
        } else {
            Err(output)
        }
    })?;
    Ok(Capture { process })
}

/// Captures every change that rtnetlink notifies of, one line each, as
/// `ip monitor` prints it. `nft` tables are not among them.
///
/// # Errors
/// `ip monitor` does not show a change within 30 s.
pub fn monitor(netns: &Netns) -> Result<Capture, LabError> {
    let mut command = netns.command("ip");
    command.args(["monitor", "link", "address", "route", "rule", "neigh"]);
    let log = fresh_log(netns, "monitor");
    let process = Background::start(netns.lab(), &mut command, &log)?;
    let capture = Capture { process };
    // It prints nothing when it is ready: make changes until it prints one.
    wait_until("ip monitor to listen", Duration::from_secs(30), || {
        netns
            .ip([
                format!("route add unreachable {PROBE_ROUTE} table 4242"),
                format!("route del unreachable {PROBE_ROUTE} table 4242"),
            ])
            .map_err(|error| error.chain())?;
        let output = capture.process.output();
        if output.contains(PROBE_ROUTE) {
            Ok(())
        } else {
            Err(output)
        }
    })?;
    Ok(capture)
}

fn fresh_log(netns: &Netns, what: &str) -> std::path::PathBuf {
    let folder = netns.lab().folder();
    (0_u32..)
        .map(|number| folder.join(format!("{what}-{}-{number}.log", netns.name())))
        .find(|path| !path.exists())
        .unwrap_or_else(|| folder.join(what))
}
