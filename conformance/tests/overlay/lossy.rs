//! An underlay that loses, delays and reorders packets (netem) while nodes converge. Not
//! every kernel has netem, so these tests run only when they are asked for.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use tweed_lab::{Cluster, ClusterPod, LabError, PingOptions, ping};

use crate::packets::failed;

const PORT: u16 = 7004;

/// What one stream carries.
const SIZE: usize = 200_000;

/// Makes what a node sends to the underlay late, lost and out of order.
fn disturb(cluster: &Cluster, node: u8) -> Result<(), LabError> {
    let netem = "delay 20ms 10ms loss 10% reorder 25% 50% duplicate 5%";
    let line = format!("tc qdisc add dev eth0 root netem {netem}");
    cluster[node].node.netns().sh(&line).map(drop)
}

fn calm(cluster: &Cluster, node: u8) -> Result<(), LabError> {
    let line = "tc qdisc del dev eth0 root";
    cluster[node].node.netns().sh(line).map(drop)
}

/// A TCP stream from one pod to another, which ends by itself.
fn stream(
    from: &ClusterPod,
    to: &ClusterPod,
) -> Result<thread::JoinHandle<std::io::Result<Vec<u8>>>, LabError> {
    let limit = Some(Duration::from_secs(60));
    let address = SocketAddr::new(to.address(), PORT);
    let listener = to.netns().listen(|| TcpListener::bind(address))?;
    let mut sender = from
        .netns()
        .enter(|| TcpStream::connect(address))?
        .map_err(|source| failed("connect", from.netns(), source))?;
    thread::spawn(move || {
        let sent: Vec<u8> = (0..SIZE).map(|n| (n % 251) as u8).collect();
        sender.write_all(&sent)
    });
    Ok(thread::spawn(move || {
        let (mut receiver, _) = listener.accept()?;
        receiver.set_read_timeout(limit)?;
        let mut received = Vec::new();
        receiver.read_to_end(&mut received)?;
        Ok(received)
    }))
}

/// Nodes join, leave and restart their agents behind a bad underlay; streams through it
/// arrive whole, and afterwards no packet is lost.
#[test]
#[ignore = "needs a kernel with netem: make kernels"]
fn nodes_converge_over_an_underlay_that_loses_and_reorders() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let (here, there) = (cluster.pod(1, "here")?, cluster.pod(2, "there")?);
    Cluster::wait_for_path(here.netns(), there.address())?;
    for node in [1, 2] {
        disturb(&cluster, node)?;
    }
    let running = stream(&here, &there)?;

    cluster.add_node(3)?;
    disturb(&cluster, 3)?;
    let joined = cluster.pod(3, "joined")?;
    for (from, to) in [(&here, &joined), (&joined, &there), (&there, &joined)] {
        Cluster::wait_for_path(from.netns(), to.address())?;
    }
    // As an upgrade does: another agent takes over what the first has made.
    for node in [1, 2] {
        cluster.kill_agent(node)?;
        cluster.start_agent(node)?;
    }
    cluster.wait_ready()?;
    let received = running.join().unwrap().unwrap();
    let sent: Vec<u8> = (0..SIZE).map(|n| (n % 251) as u8).collect();
    assert!(received == sent, "{} of {SIZE} bytes", received.len());

    for node in [1, 2, 3] {
        calm(&cluster, node)?;
    }
    let options = PingOptions {
        count: 50,
        ..PingOptions::default()
    };
    for (from, to) in [(&here, &there), (&there, &joined), (&joined, &here)] {
        let report = ping(from.netns(), to.address(), &options)?;
        assert_eq!(report.lost(), 0, "{report}");
    }
    drop(joined);
    cluster.remove_node(3)
}
