//! Connections of which one side has ended and the other streams on.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use tweed_lab::{LabError, wait_until};

use super::scene::{LIFE, LIMIT, Pods, Scene, connect};
use super::three::WAYS;

const PORT: u16 = 7010;
/// How long conntrack keeps an entry of such a connection without a packet, in seconds.
const CLOSE_WAIT: u32 = 2;

/// A stream whose reader compares each byte, and gives their number at its end.
struct Stream {
    client: TcpStream,
    stop: Arc<AtomicBool>,
    writer: JoinHandle<io::Result<u64>>,
    reader: JoinHandle<io::Result<u64>>,
}

fn pattern(at: u64) -> u8 {
    (at % 251).to_le_bytes()[0]
}

impl Stream {
    fn open(client: TcpStream, mut peer: TcpStream) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let writer = thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                let mut sent = 0;
                while !stop.load(Ordering::Acquire) {
                    let piece: Vec<u8> = (sent..sent + 4000).map(pattern).collect();
                    peer.write_all(&piece)?;
                    sent += 4000;
                    sleep(Duration::from_millis(2));
                }
                Ok(sent)
            }
        });
        let mut reading = client.try_clone().unwrap();
        let reader = thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            let mut read = 0;
            loop {
                let length = reading.read(&mut buffer)?;
                if length == 0 {
                    return Ok(read);
                }
                for byte in &buffer[..length] {
                    if *byte != pattern(read) {
                        return Err(io::Error::other(format!("another byte at {read}")));
                    }
                    read += 1;
                }
            }
        });
        Self {
            client,
            stop,
            writer,
            reader,
        }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Release);
        let sent = self.writer.join().unwrap().unwrap();
        let read = self.reader.join().unwrap().unwrap();
        assert_eq!(sent, read);
    }
}

#[test]
fn a_half_closed_connection_streams_on_by_the_kernels_path() -> Result<(), LabError> {
    let mut scene = Scene::new(&[], Pods::Ipv4)?;
    let server = scene.cluster.pod(1, "server")?;
    let near = scene.cluster.pod(1, "near")?;
    let far = scene.cluster.pod(2, "far")?;
    for index in [1, 2] {
        let key = "netfilter/nf_conntrack_tcp_timeout_close_wait";
        scene.node(index).set_sysctl(key, &CLOSE_WAIT.to_string())?;
    }
    let open = |from, port| -> Result<Stream, LabError> {
        let at = SocketAddr::new(server.address(), port);
        let (client, peer) = connect(from, at, &server, port)?;
        Ok(Stream::open(client, peer))
    };
    let streams = [open(near.netns(), PORT)?, open(far.netns(), PORT + 1)?];
    WAYS.iter().try_for_each(|way| scene.wait_for(1, way))?;
    for stream in &streams {
        stream.client.shutdown(Shutdown::Write).unwrap();
    }
    // What was let in before stays so for its life.
    sleep(LIFE + Duration::from_secs(1));
    let fast =
        || -> Result<Vec<f64>, LabError> { WAYS.iter().map(|way| scene.packets(1, way)).collect() };
    let is_close_wait = |index: u8, port: u16| {
        let node = scene.node(index);
        let line = format!("conntrack -L -p tcp --orig-port-dst {port}");
        match node.sh(&line) {
            Ok(listed) if listed.contains("CLOSE_WAIT") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    };
    let entries = [(1, PORT), (1, PORT + 1), (2, PORT + 1)];
    for (index, port) in entries {
        wait_until("an entry of one end", LIMIT, || is_close_wait(index, port))?;
    }
    let before = fast()?;
    // Twice as long as an entry would last without packets.
    sleep(Duration::from_secs((2 * CLOSE_WAIT).into()));
    assert_eq!(fast()?, before);
    for (index, port) in entries {
        let is_there = is_close_wait(index, port);
        assert!(is_there.is_ok(), "{is_there:?} on node {index}");
    }
    streams.into_iter().for_each(Stream::end);
    Ok(())
}
