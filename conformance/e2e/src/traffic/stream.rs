//! One TCP connection that carries bytes to and fro, and looks at each.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::place::Place;

/// Bytes that go out at once, and between one time and the next.
const BLOCK: usize = 1024;
const BETWEEN: Duration = Duration::from_millis(10);
/// For a block to come back. Longer than TCP needs to mend a loss of seconds:
/// what is asked is whether the connection lives.
const LIMIT: Duration = Duration::from_secs(60);

/// A connection at work. Its other end sends back what it gets.
#[derive(Debug)]
pub struct Stream {
    name: String,
    /// Whom the server took for its client.
    pub client_seen: IpAddr,
    stop: Stop,
    client: JoinHandle<Result<Carried>>,
    server: JoinHandle<()>,
}

/// Tells the client to end when it is dropped, whatever becomes of the rest.
#[derive(Debug)]
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// What a connection has carried.
#[derive(Debug, Clone, Copy, Default)]
pub struct Carried {
    /// Bytes that went there and came back.
    pub bytes: u64,
    /// The longest that a block was under way.
    pub longest: Duration,
}

impl Stream {
    /// Connects the two.
    pub fn open(from: &Place, to: &Place) -> Result<Self> {
        let name = format!("the TCP stream from {} to {}", from.name, to.name);
        Self::connect(from, to, name.clone()).context(name)
    }

    fn connect(from: &Place, to: &Place, name: String) -> Result<Self> {
        let any = SocketAddr::new(to.address, 0);
        let listener = to.enter(|| TcpListener::bind(any))?.context("listen")?;
        let address = listener.local_addr().context("listen")?;
        let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(10));
        let client = from.enter(connect)?.context("connect")?;
        // The connection is there, so it does not wait.
        let (server, peer) = listener.accept().context("accept")?;
        for end in [&client, &server] {
            end.set_nodelay(true).context("TCP_NODELAY")?;
        }
        client.set_read_timeout(Some(LIMIT)).context("time-out")?;
        client.set_write_timeout(Some(LIMIT)).context("time-out")?;
        let stop = Arc::new(AtomicBool::new(false));
        Ok(Self {
            name,
            client_seen: peer.ip(),
            client: std::thread::spawn({
                let stop = Arc::clone(&stop);
                move || talk(client, &stop)
            }),
            stop: Stop(stop),
            server: std::thread::spawn(move || send_back(server)),
        })
    }

    /// Whether it has broken already.
    pub fn is_broken(&self) -> bool {
        self.client.is_finished()
    }

    /// Ends it in good order.
    ///
    /// # Errors
    /// It broke, or carried something else than what was sent.
    pub fn close(self) -> Result<Carried> {
        drop(self.stop);
        let carried = self.client.join().map_err(|_| anyhow!("it panicked"));
        let carried = carried.and_then(|carried| carried).context(self.name)?;
        // It ends with the connection, and has nothing to tell.
        let _ = self.server.join();
        Ok(carried)
    }
}

fn talk(mut stream: TcpStream, stop: &AtomicBool) -> Result<Carried> {
    let mut carried = Carried::default();
    while !stop.load(Ordering::Acquire) {
        let start = Instant::now();
        exchange(&mut stream, carried.bytes)
            .with_context(|| format!("broke after {} bytes", carried.bytes))?;
        carried.bytes += BLOCK as u64;
        carried.longest = carried.longest.max(start.elapsed());
        std::thread::sleep(BETWEEN);
    }
    Ok(carried)
}

/// Sends a block that no other is equal to, and takes it back.
fn exchange(stream: &mut TcpStream, position: u64) -> Result<()> {
    let sent: Vec<u8> = (position..)
        .step_by(8)
        .flat_map(u64::to_be_bytes)
        .take(BLOCK)
        .collect();
    stream.write_all(&sent).context("send")?;
    let mut back = [0; BLOCK];
    stream.read_exact(&mut back).map_err(in_words)?;
    if back != *sent {
        bail!("other bytes came back than were sent");
    }
    Ok(())
}

/// A socket's time-out is `EAGAIN`, which tells a person nothing.
fn in_words(error: std::io::Error) -> anyhow::Error {
    if error.kind() == ErrorKind::WouldBlock {
        return anyhow!("nothing came back within {} s", LIMIT.as_secs());
    }
    anyhow::Error::new(error).context("receive")
}

fn send_back(mut stream: TcpStream) {
    let mut block = [0; BLOCK];
    // The client tells of everything that goes wrong.
    while let Ok(length @ 1..) = stream.read(&mut block) {
        if stream.write_all(&block[..length]).is_err() {
            return;
        }
    }
}
