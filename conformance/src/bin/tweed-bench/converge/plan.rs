//! How much is measured, and over which API server.

use std::thread::sleep;
use std::time::Duration;

use clap::{Args, ValueEnum};

/// With the Nodes that join: as many as have a number of two bytes.
const MOST_NODES: u16 = 60_000;
/// Those that join by hand do not leave, so each way has its own.
const MOST_SAMPLES: u16 = (u16::MAX - MOST_NODES - 1) / WAYS.len() as u16;

/// How much is measured.
#[derive(Debug, Args)]
pub struct Plan {
    /// Nodes of the cluster, the own one not counted.
    #[arg(long, value_name = "N", default_value_t = Self::default().nodes,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MOST_NODES)))]
    pub nodes: u16,
    /// Starts of the agent over each source.
    #[arg(long, value_name = "N", default_value_t = Self::default().starts,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub starts: u16,
    /// Nodes that join one by one, in each of two ways.
    #[arg(long, value_name = "N", default_value_t = Self::default().samples,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MOST_SAMPLES)))]
    pub samples: u16,
    /// Heartbeats, all told.
    #[arg(long, value_name = "N", default_value_t = Self::default().heartbeats,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub heartbeats: u32,
    /// Heartbeats in a second, of all Nodes together.
    #[arg(long, value_name = "N", default_value_t = Self::default().beats_a_second,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub beats_a_second: u32,
    /// Seconds without any event.
    #[arg(long, value_name = "S", default_value_t = Self::default().idle,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub idle: u64,
    /// The API server that Nodes come from. Not given: the bench's own, then
    /// kube-apiserver where it is built (in a smoke run the bench's own alone).
    #[arg(long, value_name = "WHICH", value_enum)]
    pub server: Option<ServerKind>,
}

/// An API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ServerKind {
    /// The bench's own, in its process; and a file.
    Own,
    /// etcd and kube-apiserver, as `conformance/setup.sh e2e` builds them.
    Kubernetes,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            nodes: 5000,
            starts: 5,
            samples: 250,
            heartbeats: 5000,
            beats_a_second: 500,
            idle: 30,
            server: None,
        }
    }
}

impl Plan {
    /// A few Nodes and a few samples, to see that it works; over the same API
    /// server.
    pub fn smoke(self) -> Self {
        Self {
            nodes: 40,
            starts: 1,
            samples: 3,
            heartbeats: 20,
            beats_a_second: 200,
            idle: 1,
            // The same on every machine.
            server: self.server.or(Some(ServerKind::Own)),
        }
    }

    /// Waits for the passes that follow a start: they are none of what is
    /// measured next.
    pub fn settle(&self) {
        sleep(Duration::from_secs(self.idle.min(2)));
    }
}

/// How Nodes join one by one.
#[derive(Clone, Copy)]
pub struct Way {
    /// In tables.
    pub name: &'static str,
    /// Before each, from and to, in milliseconds.
    pause: (u64, u64),
}

/// All ways.
pub const WAYS: [Way; 2] = [
    Way {
        name: "one at a time",
        pause: (60, 120),
    },
    Way {
        name: "close together",
        pause: (5, 20),
    },
];

impl Way {
    /// Before the Node of this number: a sequence that is the same in every run.
    pub fn pause(self, number: u16) -> Duration {
        let (least, most) = self.pause;
        let share = u64::from(number) * 7919 % 1000;
        Duration::from_micros(least * 1000 + (most - least) * share)
    }
}
