//! The loads themselves: each opens its sockets in the namespaces of its ends,
//! then leaves them to threads.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::Context;
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce, sockopt::ReceiveTimeout};
use nix::sys::time::{TimeVal, TimeValLike};

use super::load::{End, Path, Sample, Task, Trial};

/// How long a socket is waited for before the thread looks at the clock. Each
/// measurement ends that much later.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long an answer may take on a path that loses nothing.
pub const LOST: Duration = Duration::from_secs(2);
/// What one write hands to the kernel.
const CHUNK: usize = 128 << 10;
/// A UDP packet's content.
pub const PAYLOAD: [u8; 64] = [0; 64];
/// Room for what the server has not read yet.
const QUEUE: usize = 4 << 20;

/// Writers and readers of `streams` connections; counts bytes read.
pub fn tcp_streams(trial: &Trial<'_>, streams: usize) -> anyhow::Result<Sample> {
    let (listener, address) = listen(trial.path)?;
    let mut tasks = Vec::new();
    for _ in 0..streams {
        let (client, server) = connected(trial.path, &listener, address)?;
        client.set_write_timeout(Some(PATIENCE))?;
        server.set_read_timeout(Some(PATIENCE))?;
        tasks.push(Task::new(End::Server, move || read_all(trial, server)));
        tasks.push(Task::new(End::Client, move || write_all(trial, client)));
    }
    trial.run(tasks)
}

fn write_all(trial: &Trial<'_>, mut stream: TcpStream) -> io::Result<()> {
    let chunk = vec![0; CHUNK];
    while !trial.is_over() {
        unless_over(trial, unless_late(stream.write(&chunk)).map(drop))?;
    }
    Ok(())
}

fn read_all(trial: &Trial<'_>, mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; 2 * CHUNK];
    while !trial.is_over() {
        let bytes = unless_late(stream.read(&mut buffer))?;
        trial.count(bytes.unwrap_or(0) as u64);
    }
    Ok(())
}

/// One sender that never waits; counts packets that arrive.
pub fn udp_packets(trial: &Trial<'_>) -> anyhow::Result<Sample> {
    let (client, server) = udp_pair(trial.path)?;
    setsockopt(&server, RcvBufForce, &QUEUE).context("SO_RCVBUFFORCE")?;
    server.set_read_timeout(Some(PATIENCE))?;
    trial.run(vec![
        Task::new(End::Server, move || {
            let mut buffer = [0; 128];
            while !trial.is_over() {
                let came = unless_late(server.recv(&mut buffer))?;
                trial.count(u64::from(came.is_some()));
            }
            Ok(())
        }),
        Task::new(End::Client, move || {
            while !trial.is_over() {
                match client.send(&PAYLOAD) {
                    // A full queue on the way: what is lost is not counted.
                    Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => {}
                    sent => drop(sent?),
                }
            }
            Ok(())
        }),
    ])
}

/// Counts round trips of one byte.
pub fn tcp_ping(trial: &Trial<'_>) -> anyhow::Result<Sample> {
    let (listener, address) = listen(trial.path)?;
    let (mut client, mut server) = connected(trial.path, &listener, address)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    server.set_read_timeout(Some(PATIENCE))?;
    client.set_read_timeout(Some(LOST))?;
    trial.run(vec![
        Task::new(End::Server, move || {
            let mut byte = [0];
            while !trial.is_over() {
                if unless_late(server.read(&mut byte))? == Some(1) {
                    server.write_all(&byte)?;
                }
            }
            Ok(())
        }),
        Task::new(End::Client, move || {
            let mut byte = [0];
            while !trial.is_over() {
                client.write_all(&byte)?;
                unless_over(trial, client.read_exact(&mut byte))?;
                trial.count(1);
            }
            Ok(())
        }),
    ])
}

/// Counts round trips of one byte.
pub fn udp_ping(trial: &Trial<'_>) -> anyhow::Result<Sample> {
    let (client, server) = udp_pair(trial.path)?;
    server.set_read_timeout(Some(PATIENCE))?;
    client.set_read_timeout(Some(LOST))?;
    trial.run(vec![
        Task::new(End::Server, move || {
            let mut byte = [0];
            while !trial.is_over() {
                if let Some((_, from)) = unless_late(server.recv_from(&mut byte))? {
                    server.send_to(&byte, from)?;
                }
            }
            Ok(())
        }),
        Task::new(End::Client, move || {
            let mut byte = [0];
            while !trial.is_over() {
                client.send(&byte)?;
                unless_over(trial, client.recv(&mut byte).map(drop))?;
                trial.count(1);
            }
            Ok(())
        }),
    ])
}

/// Counts connections, one after the other. The client closes first.
pub fn connections(trial: &Trial<'_>) -> anyhow::Result<Sample> {
    let path = trial.path;
    // A client's port is in use for a minute after its connection.
    path.client
        .set_sysctl("ipv4/ip_local_port_range", "1024 65000")?;
    path.client.set_sysctl("ipv4/tcp_tw_reuse", "1")?;
    let (listener, address) = listen(path)?;
    let patience = TimeVal::milliseconds(PATIENCE.as_millis().try_into()?);
    setsockopt(&listener, ReceiveTimeout, &patience).context("SO_RCVTIMEO")?;
    trial.run(vec![
        Task::new(End::Server, move || {
            while !trial.is_over() {
                let Some((mut stream, _)) = unless_late(listener.accept())? else {
                    continue;
                };
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(LOST))?;
                let mut byte = [0];
                stream.read_exact(&mut byte)?;
                stream.write_all(&byte)?;
                while stream.read(&mut byte)? > 0 {}
            }
            Ok(())
        }),
        Task::new(End::Client, move || {
            let connect = || {
                while !trial.is_over() {
                    let round_trip = || {
                        let mut stream = TcpStream::connect_timeout(&address, LOST)?;
                        stream.set_nodelay(true)?;
                        let mut byte = [0];
                        stream.write_all(&byte)?;
                        stream.read_exact(&mut byte)
                    };
                    unless_over(trial, round_trip())?;
                    trial.count(1);
                }
                Ok(())
            };
            // This thread is pinned, and the one in the namespace inherits it.
            path.client.enter(connect).map_err(io::Error::other)?
        }),
    ])
}

/// A listening socket at the server's end, and its address.
pub fn listen(path: &Path<'_>) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = path
        .server
        .enter(|| TcpListener::bind((path.address, 0)))?
        .context("the server's socket")?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// A connection to `listener`: the client's end, then the server's.
pub fn connected(
    path: &Path<'_>,
    listener: &TcpListener,
    address: SocketAddr,
) -> anyhow::Result<(TcpStream, TcpStream)> {
    let client = path
        .client
        .enter(|| TcpStream::connect_timeout(&address, LOST))?
        .with_context(|| format!("connecting to {address}"))?;
    Ok((client, listener.accept()?.0))
}

/// The client's socket, connected to the server's, and that one.
pub fn udp_pair(path: &Path<'_>) -> anyhow::Result<(UdpSocket, UdpSocket)> {
    let server = path
        .server
        .enter(|| UdpSocket::bind((path.address, 0)))?
        .context("the server's socket")?;
    let address = server.local_addr()?;
    let connect = || {
        let client = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        client.connect(address).map(|()| client)
    };
    let client = path.client.enter(connect)?.context("the client's socket")?;
    Ok((client, server))
}

/// None where nothing came in time.
fn unless_late<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// At the end the server may have gone before it answered.
fn unless_over(trial: &Trial<'_>, result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(_) if trial.is_over() => Ok(()),
        other => other,
    }
}
