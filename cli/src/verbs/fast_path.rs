//! `fast-path`: whether flows skip the host's stack, and switching that off for a while, to
//! see packets with tcpdump.

use std::io;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use tweed_component::message::{Answer, FastPathSwitch, Request};
use tweed_core::agent_state::FastPathState;

use crate::answered::{Answered, Unanswered};
use crate::node::{Node, unexpected};
use crate::output::Page;
use crate::verb::Verb;

const EXAMPLES: &str = "\
Examples:
  Whether it is on, on each node:
    tweedctl fast-path

  All packets of one node where tcpdump sees them, for five minutes:
    tweedctl fast-path off --for 5m --node worker-1

  On again before that:
    tweedctl fast-path on --node worker-1

A restart of the agent ends what was switched. An agent with --fast-path off has no fast path
that could be switched on.";

/// The arguments of `fast-path`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = EXAMPLES)]
pub struct FastPath {
    /// What it is switched to; if not given, it stays as it is
    #[arg(value_enum)]
    pub switch: Option<Switch>,

    /// For how long it is off, such as 90s, 5m or 1h; if not given, until it is switched on
    #[arg(long = "for", value_name = "TIME", value_parser = time, requires = "switch")]
    pub duration: Option<Duration>,
}

/// What it is switched to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Flows skip the host's stack, where the agent's flags and the node allow it
    On,
    /// All packets take the kernel's path
    Off,
}

/// A time with its unit.
fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time: allowed are numbers with s, m or h, such as 5m");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let asked = match &text[digits.len()..] {
        "s" => Some(number),
        "m" => number.checked_mul(60),
        "h" => number.checked_mul(3600),
        _ => None,
    };
    let seconds = asked.filter(|seconds| *seconds > 0).ok_or_else(wrong)?;
    Ok(Duration::from_secs(seconds))
}

/// What one node answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// How it is.
    #[serde(flatten)]
    pub state: FastPathState,
}

impl Verb for FastPath {
    type Report = Report;
    const NAME: &'static str = "fastPath";

    fn local(&self, node: &Node) -> Result<Report, Unanswered> {
        let switch = self.switch.map(|switch| match switch {
            Switch::On => FastPathSwitch::On {},
            Switch::Off => FastPathSwitch::Off {
                seconds: self.duration.map(|time| time.as_secs()),
            },
        });
        match node.ask(&Request::FastPath { switch })? {
            Answer::FastPath(state) => Ok(Report { state }),
            _ => Err(unexpected()),
        }
    }

    fn arguments(&self) -> Vec<String> {
        let switch = self.switch.map(|switch| match switch {
            Switch::On => "on".to_owned(),
            Switch::Off => "off".to_owned(),
        });
        let time = self
            .duration
            .map(|time| format!("--for={}s", time.as_secs()));
        let words = Some("fast-path".to_owned()).into_iter();
        words.chain(switch).chain(time).collect()
    }

    fn render(&self, answers: &[Answered<Report>], page: &mut Page<'_>) -> io::Result<()> {
        for (node, answer) in answers {
            let text = match answer {
                Ok(report) => report.state.sentence(),
                Err(why) => why.to_string(),
            };
            match node.as_str() {
                "" => page.line(&text)?,
                node => page.line(&format!("{node}: {text}"))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(time("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(time("2h"), Ok(Duration::from_secs(7200)));
        for wrong in ["", "5", "m", "0s", "5d", "-1s", "99999999999999999999h"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_asked_of_a_node_is_what_was_typed() {
        let typed = FastPath {
            switch: Some(Switch::Off),
            duration: Some(Duration::from_secs(300)),
        };
        assert_eq!(typed.arguments(), ["fast-path", "off", "--for=300s"]);
    }
}
