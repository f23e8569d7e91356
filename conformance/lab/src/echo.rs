//! A server that answers with the source address that it sees, and its client.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::LabError;
use crate::netns::Netns;

/// How long a client waits for an answer.
const CLIENT_LIMIT: Duration = Duration::from_secs(30);

/// Time between two checks of a server whether it has to stop.
const SERVER_TICK: Duration = Duration::from_millis(50);

/// The protocol of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A datagram and its answer.
    Udp,
    /// A connection.
    Tcp,
}

/// Answers over UDP and TCP, on one port number, with the client's address and
/// port as the server sees them. Stops on drop.
#[derive(Debug)]
pub struct EchoServer {
    port: u16,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl EchoServer {
    /// Listens on all addresses of a namespace, IPv4 and IPv6.
    ///
    /// # Errors
    /// As [`Netns::listen`].
    pub fn start(netns: &Netns, port: u16) -> Result<Self, LabError> {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let bind = || -> io::Result<(UdpSocket, TcpListener)> {
            let (udp, tcp) = (UdpSocket::bind(any)?, TcpListener::bind(any)?);
            udp.set_read_timeout(Some(SERVER_TICK))?;
            tcp.set_nonblocking(true)?;
            Ok((udp, tcp))
        };
        let (udp, tcp) = netns.listen(bind)?;
        let stop = Arc::new(AtomicBool::new(false));
        let threads = vec![
            std::thread::spawn({
                let stop = Arc::clone(&stop);
                move || serve_udp(&udp, &stop)
            }),
            std::thread::spawn({
                let stop = Arc::clone(&stop);
                move || serve_tcp(&tcp, &stop)
            }),
        ];
        Ok(Self {
            port,
            stop,
            threads,
        })
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // The threads do not panic, and a drop could not report it.
            let _ = thread.join();
        }
    }
}

fn serve_udp(socket: &UdpSocket, stop: &AtomicBool) {
    let mut buffer = [0; 64];
    while !stop.load(Ordering::Acquire) {
        // Errors are ignored: a timeout is only the time to check `stop`, and an
        // ICMP error is about an earlier client.
        if let Ok((_, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(canonical(from).to_string().as_bytes(), from);
        }
    }
}

fn serve_tcp(listener: &TcpListener, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        match listener.accept() {
            // It is no error of the server if the client has closed already.
            Ok((mut stream, from)) => {
                drop(stream.write_all(canonical(from).to_string().as_bytes()))
            }
            Err(_) => std::thread::sleep(SERVER_TICK / 10),
        }
    }
}

/// The IPv4 address of an IPv4 client of an IPv6 socket.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Sends a request to the [`EchoServer`] at `to` from inside a namespace, and
/// returns the source address that it saw.
///
/// # Errors
/// [`LabError::Namespace`] if no answer comes within 30 s.
pub fn source_seen(
    from: &Netns,
    to: SocketAddr,
    transport: Transport,
) -> Result<SocketAddr, LabError> {
    let ask = || match transport {
        Transport::Udp => ask_udp(to),
        Transport::Tcp => ask_tcp(to),
    };
    from.enter(ask)?.map_err(|source| LabError::Namespace {
        action: match transport {
            Transport::Udp => "get an answer over UDP",
            Transport::Tcp => "get an answer over TCP",
        },
        namespace: from.name().to_owned(),
        source,
    })
}

fn ask_udp(to: SocketAddr) -> io::Result<SocketAddr> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => IpAddr::from([0, 0, 0, 0]),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_read_timeout(Some(CLIENT_LIMIT))?;
    socket.connect(to)?;
    socket.send(b"who am I?")?;
    let mut buffer = [0; 64];
    let length = receive(&socket, &mut buffer).map_err(name_timeout)?;
    address_in(&buffer[..length])
}

fn ask_tcp(to: SocketAddr) -> io::Result<SocketAddr> {
    let mut stream = TcpStream::connect_timeout(&to, CLIENT_LIMIT)?;
    stream.set_read_timeout(Some(CLIENT_LIMIT))?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(name_timeout)?;
    address_in(&answer)
}

/// The next datagram. What stops and continues this process, such as a debugger or a
/// freezer, ends a receive with a time limit (signal(7)): it is begun again.
///
/// # Errors
/// As [`UdpSocket::recv`].
pub fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.recv(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Replaces `EAGAIN`, a socket's error after a timeout, by a message that says so.
fn name_timeout(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        return io::Error::new(io::ErrorKind::TimedOut, "no answer within 30 s");
    }
    error
}

fn address_in(answer: &[u8]) -> io::Result<SocketAddr> {
    String::from_utf8_lossy(answer)
        .parse()
        .map_err(io::Error::other)
}
