//! `tweed-floor`: what the kernel asks for a pod's link, and nothing else.
//!
//! It sends the netlink requests of a pod as tweed makes it, in as few system calls
//! as possible: no config, no address store, no settings, no undo. So no plugin
//! that makes such a pod can be faster; the benchmarks measure by it.
//!
//! ```text
//! tweed-floor add   NETNS INDEX ADDRESS   the pair, the pod's end, the host's end
//! tweed-floor leave NETNS INDEX ADDRESS   down, out of the way, into the group of leaving links
//! tweed-floor del   NETNS INDEX ADDRESS   deleted, with the kernel's grace periods waited for
//! ```
//!
//! `INDEX` is the number that both ends get, which saves asking for it.

mod message;
mod socket;

use std::fs::File;
use std::io::Write;
use std::net::Ipv4Addr;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use nix::sched::{CloneFlags, setns};

use message::{Batch, Link};
use socket::Socket;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed stderr leaves nowhere to tell of it.
            let _ = writeln!(std::io::stderr(), "tweed-floor: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [verb, netns, index, address] = words.as_slice() else {
        return Err(anyhow!("wants VERB NETNS INDEX ADDRESS, got {words:?}"));
    };
    let index: u32 = index.parse().context("INDEX")?;
    let address: Ipv4Addr = address.parse().context("ADDRESS")?;
    match verb.as_str() {
        "add" => add(netns, index, address),
        "leave" => {
            let mut batch = Batch::default();
            batch.down(index);
            batch.leave(index, &format!("twx{index:012x}"));
            Socket::open()?.send(&batch).context("leave")
        }
        "del" => {
            let mut batch = Batch::default();
            batch.delete(index);
            Socket::open()?.send(&batch).context("del")
        }
        _ => Err(anyhow!("unknown verb {verb:?}")),
    }
}

fn add(netns: &str, index: u32, address: Ipv4Addr) -> anyhow::Result<()> {
    let netns = File::open(netns).with_context(|| netns.to_owned())?;
    let host = Link {
        index,
        name: format!("tw{index:012x}"),
        mac: mac(0x0a, index),
    };
    let pod = Link {
        index,
        name: "eth0".to_owned(),
        mac: mac(0x0e, index),
    };
    let mut pair = Batch::default();
    pair.create_pair(&host, &pod, &netns);
    let mut inside = Batch::default();
    inside.address(index, address);
    inside.up(index);
    inside.neighbour(index, message::GATEWAY, host.mac);
    inside.default_route(index);
    let mut outside = Batch::default();
    outside.up(index);
    outside.neighbour(index, address, pod.mac);
    outside.pod_route(index, address);

    let on_host = Socket::open()?;
    on_host.send(&pair).context("the pair")?;
    setns(&netns, CloneFlags::CLONE_NEWNET).context("setns")?;
    Socket::open()?.send(&inside).context("the pod's end")?;
    on_host.send(&outside).context("the host's end")
}

fn mac(first: u8, index: u32) -> [u8; 6] {
    let [a, b, c, d] = index.to_be_bytes();
    [first, 0, a, b, c, d]
}
