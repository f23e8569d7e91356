//! Questions to `agnhost netexec`: who answers, and whom does it see?

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tweed_lab::Transport;

use crate::place::Place;

/// Each of them.
pub const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];

/// For an answer, on a machine that builds beside it.
const LIMIT: Duration = Duration::from_secs(20);

/// Where no answer may come, silence for so long is taken for none.
const SILENCE: Duration = Duration::from_secs(2);

/// What netexec tells of itself and of its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its pod's name.
    pub server: String,
    /// The client's address, as the server sees it.
    pub seen: IpAddr,
}

/// Asks from a place: both questions on one connection, or from one UDP port, so
/// that one server answers both.
pub fn ask(from: &Place, transport: Transport, to: SocketAddr) -> Result<Answer> {
    let by = match transport {
        Transport::Tcp => by_tcp,
        Transport::Udp => by_udp,
    };
    from.enter(|| by(to, LIMIT))?
        .with_context(|| format!("asking {to} by {transport:?} from {}", from.name))
}

/// Makes sure that nobody answers, and nobody refuses to.
pub fn stays_silent(from: &Place, transport: Transport, to: SocketAddr) -> Result<()> {
    let question = format!("{to} by {transport:?} from {}", from.name);
    let answer = match transport {
        Transport::Tcp => from.enter(|| by_tcp(to, SILENCE))?,
        Transport::Udp => from.enter(|| by_udp(to, SILENCE))?,
    };
    match answer {
        Err(error) if is_silence(&error) => Ok(()),
        Err(error) => Err(error.context(format!("{question} is to meet silence"))),
        Ok(Answer { server, .. }) => bail!("{question} is to meet silence, and {server} answers"),
    }
}

fn is_silence(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<Error>().map(Error::kind);
    kind == Some(ErrorKind::TimedOut)
}

/// When nothing is received in time, the system says `EAGAIN`, which tells a
/// person nothing.
fn in_words(error: Error) -> Error {
    if error.kind() == ErrorKind::WouldBlock {
        return Error::new(ErrorKind::TimedOut, "no answer came in time");
    }
    error
}

fn by_tcp(to: SocketAddr, limit: Duration) -> Result<Answer> {
    let stream = TcpStream::connect_timeout(&to, limit).context("connect")?;
    stream.set_read_timeout(Some(limit)).context("time-out")?;
    let mut stream = BufReader::new(stream);
    answer(|question| get(&mut stream, question))
}

fn by_udp(to: SocketAddr, limit: Duration) -> Result<Answer> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("bind")?;
    socket.set_read_timeout(Some(limit)).context("time-out")?;
    socket.connect(to).context("connect")?;
    answer(|question| {
        socket.send(question.as_bytes()).context("send")?;
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).map_err(in_words);
        let length = length.context("receive")?;
        Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
    })
}

fn answer(mut say: impl FnMut(&str) -> Result<String>) -> Result<Answer> {
    let seen = say("clientip")?;
    let address: SocketAddr = seen.parse().with_context(|| format!("{seen:?}"))?;
    Ok(Answer {
        server: say("hostname")?,
        seen: address.ip(),
    })
}

/// One request of HTTP on a connection that lives on: as much of it as netexec's
/// short answers need.
fn get(stream: &mut BufReader<impl Read + Write>, page: &str) -> Result<String> {
    let request = format!("GET /{page} HTTP/1.1\r\nHost: netexec\r\n\r\n");
    let sent = stream.get_mut().write_all(request.as_bytes());
    sent.context("send")?;
    let mut head = Vec::new();
    while head.last().is_none_or(|line: &String| !line.is_empty()) {
        let mut line = String::new();
        let length = stream.read_line(&mut line).map_err(in_words);
        let length = length.context("receive")?;
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

    /// Says what it has to, and takes every question.
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

    fn get_both(text: &'static str) -> Result<Answer> {
        let mut stream = BufReader::new(Server(Cursor::new(text)));
        answer(|page| get(&mut stream, page))
    }

    #[test]
    fn two_answers_come_on_one_connection() {
        let answer = get_both(
            "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n10.244.1.2:4000\
             HTTP/1.1 200 OK\r\ncontent-length: 5\r\nDate: now\r\n\r\nweb-1",
        );
        let answer = answer.unwrap();
        assert_eq!(answer.server, "web-1");
        assert_eq!(answer.seen.to_string(), "10.244.1.2");
    }

    #[test]
    fn what_is_cut_off_or_refused_is_an_error() {
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
    fn only_a_time_out_is_silence() {
        let of = |kind: ErrorKind| anyhow::Error::new(Error::from(kind)).context("connect");
        assert!(is_silence(&of(ErrorKind::TimedOut)));
        let nothing = in_words(Error::from(ErrorKind::WouldBlock));
        assert!(is_silence(&anyhow::Error::new(nothing).context("receive")));
        assert!(!is_silence(&of(ErrorKind::ConnectionRefused)));
    }
}
