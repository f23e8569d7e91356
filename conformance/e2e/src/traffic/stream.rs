//! A TCP connection that carries blocks in both directions and compares every byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::endpoint::Endpoint;
use crate::stop::{Stop, Stopped};

/// Size of a block in bytes.
const BLOCK: usize = 1024;

/// Pause between two blocks.
const BLOCK_INTERVAL: Duration = Duration::from_millis(10);

/// Maximum time until a block has come back. It is longer than TCP needs to recover
/// from a loss of some seconds, because only a broken connection is an error.
const LIMIT: Duration = Duration::from_secs(60);

/// A running connection whose server sends back everything that it receives.
#[derive(Debug)]
pub struct Stream {
    name: String,
    /// The client's address as the server sees it.
    pub client_seen: IpAddr,
    stop: Stop,
    client: JoinHandle<Result<Carried>>,
    server: JoinHandle<()>,
}

/// The totals of one connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct Carried {
    /// Bytes in each direction.
    pub bytes: u64,
    /// The longest round trip of a block.
    pub longest: Duration,
}

impl Stream {
    /// Connects two endpoints.
    pub fn open(from: &Endpoint, to: &Endpoint) -> Result<Self> {
        let name = format!("the TCP stream from {} to {}", from.name, to.name);
        Self::connect(from, to, name.clone()).context(name)
    }

    fn connect(from: &Endpoint, to: &Endpoint, name: String) -> Result<Self> {
        let any = SocketAddr::new(to.address, 0);
        let listener = to.enter(|| TcpListener::bind(any))?.context("listen")?;
        let address = listener.local_addr().context("listen")?;
        let connect = || TcpStream::connect_timeout(&address, LIMIT);
        let client = from.enter(connect)?.context("connect")?;
        // The connection is established, so this does not block.
        let (server, peer) = listener.accept().context("accept")?;
        for end in [&client, &server] {
            end.set_nodelay(true).context("TCP_NODELAY")?;
        }
        client
            .set_read_timeout(Some(LIMIT))
            .context("set the timeout")?;
        client
            .set_write_timeout(Some(LIMIT))
            .context("set the timeout")?;
        let stop = Stop::default();
        Ok(Self {
            name,
            client_seen: peer.ip(),
            client: std::thread::spawn({
                let stopped = stop.stopped();
                move || run_client(client, &stopped)
            }),
            stop,
            server: std::thread::spawn(move || run_server(server)),
        })
    }

    /// Whether it has broken already.
    pub fn is_broken(&self) -> bool {
        self.client.is_finished()
    }

    /// Closes it and returns its totals.
    ///
    /// # Errors
    /// It has broken, or other bytes came back than were sent.
    pub fn close(self) -> Result<Carried> {
        drop(self.stop);
        let joined = self.client.join().map_err(|_| anyhow!("it panicked"));
        let carried = joined.flatten().context(self.name)?;
        // The server's thread ends with the connection and has no result.
        let _ = self.server.join();
        Ok(carried)
    }
}

fn run_client(mut stream: TcpStream, stopped: &Stopped) -> Result<Carried> {
    let mut carried = Carried::default();
    while !stopped.now() {
        let start = Instant::now();
        exchange(&mut stream, carried.bytes)
            .with_context(|| format!("broke after {} bytes", carried.bytes))?;
        carried.bytes += BLOCK as u64;
        carried.longest = carried.longest.max(start.elapsed());
        std::thread::sleep(BLOCK_INTERVAL);
    }
    Ok(carried)
}

/// Sends a block with unique content, and receives it back.
fn exchange(stream: &mut TcpStream, position: u64) -> Result<()> {
    let sent: Vec<u8> = (position..)
        .step_by(8)
        .flat_map(u64::to_be_bytes)
        .take(BLOCK)
        .collect();
    stream.write_all(&sent).context("send")?;
    let mut back = [0; BLOCK];
    stream.read_exact(&mut back).map_err(name_timeout)?;
    if back != *sent {
        bail!("other bytes came back than were sent");
    }
    Ok(())
}

/// Replaces `EAGAIN`, a socket's error after a timeout, by a message that says so.
fn name_timeout(error: std::io::Error) -> anyhow::Error {
    if error.kind() == ErrorKind::WouldBlock {
        return anyhow!("nothing came back within {} s", LIMIT.as_secs());
    }
    anyhow::Error::new(error).context("receive")
}

fn run_server(mut stream: TcpStream) {
    let mut block = [0; BLOCK];
    // The client reports all errors.
    while let Ok(length @ 1..) = stream.read(&mut block) {
        if stream.write_all(&block[..length]).is_err() {
            return;
        }
    }
}
