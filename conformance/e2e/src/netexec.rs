//! Requests to `agnhost netexec`, which replies with its name and the client's address.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tweed_lab::{Transport, receive};

use crate::endpoint::Endpoint;

/// All transports.
pub const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];

/// Maximum time until a reply; long enough for a machine that compiles at the same time.
const LIMIT: Duration = Duration::from_secs(20);

/// The ports of UDP clients, of which each has another one: conntrack sends a datagram from
/// the port of an earlier flow to where that flow went, for minutes after its end. They are
/// neither node ports nor ports that the kernel chooses by itself.
const UDP_PORTS: Range<u16> = 10_000..30_000;

/// How long to wait where no reply is expected.
const NO_REPLY_WAIT: Duration = Duration::from_secs(2);

/// The reply of netexec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The name of the server's pod.
    pub server: String,
    /// The client's address, as the server sees it.
    pub client: IpAddr,
}

/// Sends both requests on one connection or from one UDP port, so that the same server
/// answers both.
pub fn request(from: &Endpoint, transport: Transport, to: SocketAddr) -> Result<Reply> {
    from.enter(|| request_here(transport, to, LIMIT))?
        .with_context(|| format!("requesting {to} by {transport:?} from {}", from.name))
}

/// Checks that a request gets no reply, not even an error.
pub fn expect_no_reply(from: &Endpoint, transport: Transport, to: SocketAddr) -> Result<()> {
    let request = format!("{to} by {transport:?} from {}", from.name);
    match from.enter(|| request_here(transport, to, NO_REPLY_WAIT))? {
        Err(error) if is_timeout(&error) => Ok(()),
        Err(error) => Err(error.context(format!("{request} must get no reply"))),
        Ok(Reply { server, .. }) => bail!("{request} must get no reply, but {server} answers"),
    }
}

/// A TCP connection that stays open between requests, or a UDP socket that keeps its port.
#[derive(Debug)]
pub struct Connection(Socket);

#[derive(Debug)]
enum Socket {
    Tcp(BufReader<TcpStream>),
    Udp(UdpSocket),
}

impl Connection {
    /// Connects.
    pub fn open(from: &Endpoint, transport: Transport, to: SocketAddr) -> Result<Self> {
        from.enter(|| Self::open_here(transport, to, LIMIT))?
            .with_context(|| format!("connecting to {to} from {}", from.name))
    }

    /// Connects from the network namespace of the calling thread.
    pub fn open_here(transport: Transport, to: SocketAddr, limit: Duration) -> Result<Self> {
        Ok(Self(match transport {
            Transport::Tcp => {
                let stream = TcpStream::connect_timeout(&to, limit).context("connect")?;
                Socket::Tcp(BufReader::new(stream))
            }
            Transport::Udp => {
                let any: IpAddr = match to {
                    SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                };
                let socket = bind_udp(any).context("bind")?;
                socket.connect(to).context("connect")?;
                Socket::Udp(socket)
            }
        }))
    }

    /// Requests the server's name.
    pub fn ask(&mut self) -> Result<String> {
        self.ask_within(LIMIT)
    }

    /// Requests the server's name, and waits no longer than this for the reply.
    pub fn ask_within(&mut self, limit: Duration) -> Result<String> {
        self.send("hostname", limit)
    }

    /// Whether a request gets no reply, not even an error. It is sent again and again by
    /// the kernel: the connection is of no use afterwards.
    pub fn is_cut(&mut self) -> Result<bool> {
        match self.ask_within(NO_REPLY_WAIT) {
            Ok(_) => Ok(false),
            Err(error) if is_timeout(&error) => Ok(true),
            Err(error) => Err(error.context("a cut connection must get no reply")),
        }
    }

    /// Sends a command, which is a page by HTTP, and returns the reply.
    fn send(&mut self, command: &str, limit: Duration) -> Result<String> {
        match &mut self.0 {
            Socket::Tcp(stream) => {
                let limited = stream.get_ref().set_read_timeout(Some(limit));
                limited.context("set the timeout")?;
                get(stream, command)
            }
            Socket::Udp(socket) => {
                let limited = socket.set_read_timeout(Some(limit));
                limited.context("set the timeout")?;
                socket.send(command.as_bytes()).context("send")?;
                let mut buffer = [0; 256];
                let received = receive(socket, &mut buffer).map_err(name_timeout);
                let length = received.context("receive")?;
                Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
            }
        }
    }
}

/// A socket at the next free port.
fn bind_udp(address: IpAddr) -> Result<UdpSocket, Error> {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    loop {
        let port = UDP_PORTS.start + COUNT.fetch_add(1, Ordering::Relaxed) % UDP_PORTS.len() as u16;
        match UdpSocket::bind((address, port)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            result => return result,
        }
    }
}

/// Whether the cause of an error is that there was no reply in time.
pub fn is_timeout(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<Error>().map(Error::kind);
    kind == Some(ErrorKind::TimedOut)
}

/// Replaces `EAGAIN`, a socket's error after a timeout, by a message that says so.
fn name_timeout(error: Error) -> Error {
    if error.kind() == ErrorKind::WouldBlock {
        return Error::new(ErrorKind::TimedOut, "no reply in time");
    }
    error
}

fn request_here(transport: Transport, to: SocketAddr, limit: Duration) -> Result<Reply> {
    let mut connection = Connection::open_here(transport, to, limit)?;
    read_reply(|command| connection.send(command, limit))
}

fn read_reply(mut send: impl FnMut(&str) -> Result<String>) -> Result<Reply> {
    let client = send("clientip")?;
    let address: SocketAddr = client.parse().with_context(|| format!("{client:?}"))?;
    Ok(Reply {
        server: send("hostname")?,
        client: address.ip(),
    })
}

/// An HTTP request on a connection that stays open. It implements as much of HTTP as
/// netexec's short replies need.
fn get(stream: &mut BufReader<impl Read + Write>, page: &str) -> Result<String> {
    let request = format!("GET /{page} HTTP/1.1\r\nHost: netexec\r\n\r\n");
    let sent = stream.get_mut().write_all(request.as_bytes());
    sent.context("send")?;
    let mut head = Vec::new();
    while head.last().is_none_or(|line: &String| !line.is_empty()) {
        let mut line = String::new();
        let received = stream.read_line(&mut line).map_err(name_timeout);
        let length = received.context("receive")?;
        ensure!(length > 0, "the connection ended after {head:?}");
        head.push(line.trim_end().to_owned());
    }
    ensure!(head[0].starts_with("HTTP/1.1 200 "), "{head:?}");
    let length = head
        .iter()
        .filter_map(|line| line.split_once(": "))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, length)| length.parse().ok());
    let mut body = vec![0; length.with_context(|| format!("no length in {head:?}"))?];
    stream.read_exact(&mut body).context("receive")?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// Sends a fixed text, and accepts every request.
    struct Server(Cursor<&'static str>);

    impl Read for Server {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Server {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn get_both(text: &'static str) -> Result<Reply> {
        let mut stream = BufReader::new(Server(Cursor::new(text)));
        read_reply(|page| get(&mut stream, page))
    }

    #[test]
    fn two_replies_are_read_from_one_connection() {
        let answer = get_both(
            "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n10.244.1.2:4000\
             HTTP/1.1 200 OK\r\ncontent-length: 5\r\nDate: now\r\n\r\nweb-1",
        )
        .unwrap();
        assert_eq!(answer.server, "web-1");
        assert_eq!(answer.client.to_string(), "10.244.1.2");
    }

    #[test]
    fn an_incomplete_or_refused_reply_is_an_error() {
        for text in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n10.244",
            "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
        ] {
            assert!(get_both(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_a_timeout_is_no_reply() {
        let of = |kind: ErrorKind| anyhow::Error::new(Error::from(kind)).context("connect");
        assert!(is_timeout(&of(ErrorKind::TimedOut)));
        let nothing = name_timeout(Error::from(ErrorKind::WouldBlock));
        assert!(is_timeout(&anyhow::Error::new(nothing).context("receive")));
        assert!(!is_timeout(&of(ErrorKind::ConnectionRefused)));
    }
}
