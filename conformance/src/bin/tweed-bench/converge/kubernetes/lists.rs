//! A plain client that reads the list of Nodes and drops it: what the API
//! server needs for it, which no agent gets below.

use std::time::{Duration, Instant};

use super::client::{Client, JSON, Request};
use super::nodes::{NODES, PAGE};
use crate::converge::wire::read_continue;

/// A way to ask for all Nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Protobuf, in pages, as tweed-agent asks.
    Pages,
    /// Protobuf, in one.
    Protobuf,
    /// JSON, in one.
    Json,
}

impl List {
    /// All ways.
    pub const ALL: [Self; 3] = [Self::Pages, Self::Protobuf, Self::Json];

    /// In tables.
    pub fn name(self) -> String {
        match self {
            Self::Pages => format!("protobuf, in pages of {PAGE}"),
            Self::Protobuf => "protobuf".to_owned(),
            Self::Json => "JSON".to_owned(),
        }
    }

    /// Reads it; how long that took, and how many bytes it was.
    pub fn read(self, client: &mut Client) -> anyhow::Result<(Duration, u64)> {
        let start = Instant::now();
        let bytes = match self {
            Self::Pages => pages(client)?,
            Self::Protobuf => client.ask(&Request::get(NODES))?.drain()?,
            Self::Json => {
                let request = Request {
                    accept: JSON,
                    ..Request::get(NODES)
                };
                client.ask(&request)?.drain()?
            }
        };
        Ok((start.elapsed(), bytes))
    }
}

fn pages(client: &mut Client) -> anyhow::Result<u64> {
    let mut bytes = 0;
    let mut target = format!("{NODES}?limit={PAGE}");
    loop {
        let page = client.ask(&Request::get(&target))?.whole()?;
        bytes += page.len() as u64;
        let Some(token) = read_continue(&page) else {
            return Ok(bytes);
        };
        target = format!("{NODES}?limit={PAGE}&continue={token}");
    }
}
