//! What a node knows of the others by asking them: one row for each way to one.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How packets get to a node's pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Through the tunnel.
    Vxlan,
    /// By a plain route.
    Direct,
}

/// What is known of a way to another node. Ordered: of several ways the last one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerState {
    /// It answers.
    Answers,
    /// Nothing is known yet.
    Unknown,
    /// It answers, and large packets are lost.
    Mtu,
    /// Packets pass in one direction only.
    OneWay,
    /// The node answers at its own address, and not over the way that pods' packets take.
    Silent,
    /// Nothing of it answers.
    Unreachable,
    /// Its Node is not Ready: whatever else it is, that is no news.
    NotReady,
}

impl PeerState {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Answers,
        Self::Unknown,
        Self::Mtu,
        Self::OneWay,
        Self::Silent,
        Self::Unreachable,
        Self::NotReady,
    ];

    /// Its word for metrics and people.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Answers => "answers",
            Self::Unknown => "unknown",
            Self::Mtu => "mtu",
            Self::OneWay => "one-way",
            Self::Silent => "silent",
            Self::Unreachable => "unreachable",
            Self::NotReady => "not-ready",
        }
    }
}

/// A way to another node. A node with pods of both families has two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerStatus {
    /// The Node's name.
    pub node: String,
    /// The first address of its pod CIDR, which is asked over the way that pods' packets take.
    pub address: IpAddr,
    /// The node's own address.
    pub underlay: IpAddr,
    /// How packets get there.
    pub way: Way,
    /// What is known of it.
    pub state: PeerState,
    /// The largest packet that passes, in bytes; none while that is not known.
    pub mtu: Option<u32>,
    /// The last time from a probe to its answer, in microseconds.
    pub round_trip_us: Option<u64>,
    /// How long ago the last answer came, in milliseconds.
    pub answered_ms_ago: Option<u64>,
    /// How many times in a row no answer came.
    pub missed: u32,
}

/// Whole microseconds.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Whole milliseconds.
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_written_by_its_word() {
        for state in PeerState::ALL {
            let word = serde_json::to_string(&state).unwrap();
            assert_eq!(word, format!("\"{}\"", state.word()));
        }
        assert!(PeerState::ALL.is_sorted());
    }
}
