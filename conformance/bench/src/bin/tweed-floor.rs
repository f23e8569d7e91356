//! `tweed-floor`: what the kernel asks for a pod's link, and nothing else.
//!
//! It sends the netlink requests of a pod as tweed makes it, in as few system calls
//! as possible: no config, no address store, no settings, no undo. A plugin that
//! makes such a pod cannot be faster; the benchmarks measure by it.
//!
//! ```text
//! tweed-floor add NETNS ADDRESS   the pair, the pod's end, the host's end;
//!                                 prints the index of the host's end
//! tweed-floor del INDEX           down, renamed, in the group of leaving links
//! ```

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use ipnetwork::IpNetwork;
use tweed_core::mac::Mac;
use tweed_netlink::link::{self, Change, VethEnd};
use tweed_netlink::neighbour;
use tweed_netlink::route::{self, Route};
use tweed_netlink::{Request, Socket, address, netns};

/// Where pods send everything.
const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 1, 1));
/// Bytes: 1500 less VXLAN's 50.
const MTU: u32 = 1450;
/// The groups of pods' links, and of links that are to be deleted.
const POD_GROUP: u32 = 116;
const LEAVING_GROUP: u32 = 117;
const PROTOCOL: u8 = 116;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed stderr leaves no place for an error.
            let _ = writeln!(std::io::stderr(), "tweed-floor: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["add", netns, address] => add(netns, address.parse().context("ADDRESS")?),
        ["del", index] => leave(index.parse().context("INDEX")?),
        _ => bail!("wants add NETNS ADDRESS or del INDEX, got {words:?}"),
    }
}

fn add(netns: &str, ip: Ipv4Addr) -> anyhow::Result<()> {
    let netns = netns::open(Path::new(netns))?;
    let [_, a, b, c] = ip.octets();
    let end = |name: String, first| VethEnd {
        name,
        mac: Mac([first, 0, 0, a, b, c]),
        mtu: MTU,
        group: 0,
        noarp: false,
    };
    let pod = end("eth0".to_owned(), 0x0e);
    let host = VethEnd {
        group: POD_GROUP,
        noarp: true,
        ..end(format!("tw{:012x}", u32::from(ip)), 0x0a)
    };
    let mut socket = Socket::open()?;
    let pair = link::create_veth(&host, &pod, netns.as_fd());
    let made = link::create(&mut socket, &pair)?;
    let made = made.context("the kernel does not tell the index (before Linux 6.2)")?;
    let peer = made.peer.context("the pair has no second end")?;

    let to_pod = IpNetwork::from(IpAddr::V4(ip));
    let everywhere = IpNetwork::new(Ipv4Addr::UNSPECIFIED.into(), 0)?;
    let inside = [
        address::add(peer, &pod.name, to_pod),
        Change::of(peer, &pod.name).up().request(),
        neighbour::set(peer, &pod.name, GATEWAY, host.mac),
        route::add(&Route {
            gateway: Some(GATEWAY),
            onlink: true,
            out: Some(peer),
            ..Route::to(everywhere, PROTOCOL)
        }),
    ];
    send(&mut Socket::open_in(netns.as_fd())?, &inside)?;
    let outside = [
        Change::of(made.index, &host.name).up().request(),
        neighbour::set(made.index, &host.name, ip.into(), pod.mac),
        route::add(&Route {
            link_scope: true,
            out: Some(made.index),
            ..Route::to(to_pod, PROTOCOL)
        }),
    ];
    send(&mut socket, &outside)?;
    writeln!(std::io::stdout(), "{}", made.index).context("stdout")
}

fn leave(index: u32) -> anyhow::Result<()> {
    let name = format!("twx{index:011x}");
    let requests = [
        Change::of(index, &name).down().request(),
        Change::of(index, &name)
            .rename(&name)
            .group(LEAVING_GROUP)
            .request(),
    ];
    send(&mut Socket::open()?, &requests)
}

fn send(socket: &mut Socket, requests: &[Request]) -> anyhow::Result<()> {
    for answer in socket.batch(requests)? {
        answer?;
    }
    Ok(())
}
