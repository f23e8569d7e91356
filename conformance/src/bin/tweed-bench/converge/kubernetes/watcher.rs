//! Who watches Nodes beside an agent: by its clock it is known when the API
//! server has told of a change, and what of the time is the agent's.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tweed_lab::Netns;

use super::client::{Client, Request, Way};
use super::nodes::{self, NODES};
use crate::converge::awaited::Awaited;
use crate::converge::wire::read_event;
use crate::first::spawn_first;

/// What can happen to a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It joins.
    Comes,
    /// It leaves.
    Goes,
}

/// A watch; it ends when it is dropped.
pub struct Watcher {
    seen: Arc<Awaited<Seen>>,
    connection: TcpStream,
    reader: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    moments: BTreeMap<(Change, String), Instant>,
    failure: Option<String>,
}

impl Watcher {
    /// Watches from now on.
    pub fn start(way: &Way, netns: &Netns) -> anyhow::Result<Self> {
        let mut client = way.connect(netns)?;
        let version = nodes::version(&mut client)?;
        let connection = client.connection()?;
        let seen = Arc::new(Awaited::<Seen>::default());
        let telling = Arc::clone(&seen);
        let reader = spawn_first(move || {
            if let Err(error) = read(&mut client, &version, &telling) {
                telling.change(|seen| seen.failure = Some(format!("{error:#}")));
            }
        })?;
        Ok(Self {
            seen,
            connection,
            reader: Some(reader),
        })
    }

    /// Waits until that has happened to the Node `name`; gives the moment.
    pub fn wait_for(&self, change: Change, name: &str, limit: Duration) -> anyhow::Result<Instant> {
        let key = (change, name.to_owned());
        self.seen.wait(limit, |seen| match &seen.failure {
            Some(failure) => bail!("the watch beside the agent has ended: {failure}"),
            None => Ok(seen
                .moments
                .get(&key)
                .copied()
                .ok_or_else(|| format!("no event came of {name}"))),
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // It ends the reading; a connection that is gone has ended it already.
        let _ = self.connection.shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            // It has nothing to say.
            let _ = reader.join();
        }
    }
}

/// Reads events until the connection ends.
fn read(client: &mut Client, version: &str, seen: &Awaited<Seen>) -> anyhow::Result<()> {
    let target = format!("{NODES}?watch=1&resourceVersion={version}");
    let mut body = client.ask(&Request::get(&target))?;
    let mut event = Vec::new();
    loop {
        let mut length = [0; 4];
        body.read_exact(&mut length)?;
        event.resize(u32::from_be_bytes(length) as usize, 0);
        body.read_exact(&mut event)?;
        let now = Instant::now();
        let (kind, name) = read_event(&event).context("an event that makes no sense")?;
        let change = match kind {
            "ADDED" => Change::Comes,
            "DELETED" => Change::Goes,
            _ => continue,
        };
        seen.change(|seen| {
            seen.moments.insert((change, name.to_owned()), now);
        });
    }
}
