//! HTTPS from the client's side: one request after the other on one connection,
//! by blocking calls, so that it is known when each was sent.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tweed_lab::Netns;
use tweed_lab_kubernetes::Credentials;

use crate::converge::http::{PIECE, PROTOBUF};

/// The content type of the API's JSON.
pub const JSON: &str = "application/json";
/// An answer that says nothing for so long does not come.
const SILENCE: Duration = Duration::from_secs(60);

/// The way to an API server, as somebody.
pub struct Way {
    address: SocketAddr,
    config: Arc<ClientConfig>,
}

impl Way {
    /// With these credentials.
    pub fn new(address: SocketAddr, credentials: &Credentials) -> anyhow::Result<Self> {
        let Credentials {
            authority,
            certificate,
            key,
            ..
        } = credentials;
        let mut roots = RootCertStore::empty();
        let trusted = CertificateDer::from_pem_file(authority);
        roots.add(trusted.with_context(|| authority.display().to_string())?)?;
        let own = CertificateDer::from_pem_file(certificate);
        let own = own.with_context(|| certificate.display().to_string())?;
        let secret = PrivateKeyDer::from_pem_file(key);
        let secret = secret.with_context(|| key.display().to_string())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![own], secret)?;
        Ok(Self {
            address,
            config: Arc::new(config),
        })
    }

    /// A connection from `netns`.
    pub fn connect(&self, netns: &Netns) -> anyhow::Result<Client> {
        let connection = netns.enter(|| TcpStream::connect(self.address))?;
        let connection = connection.with_context(|| self.address.to_string())?;
        connection.set_nodelay(true)?;
        connection.set_read_timeout(Some(SILENCE))?;
        let name = ServerName::from(self.address.ip());
        let session = ClientConnection::new(Arc::clone(&self.config), name)?;
        let stream = StreamOwned::new(session, connection);
        Ok(Client {
            stream: BufReader::with_capacity(PIECE, stream),
            host: self.address,
        })
    }
}

/// What is asked.
pub struct Request<'a> {
    pub method: &'static str,
    /// Path and query.
    pub target: &'a str,
    /// The content type of the answer.
    pub accept: &'static str,
    /// Content type and bytes of what is sent along.
    pub body: Option<(&'static str, &'a [u8])>,
}

impl<'a> Request<'a> {
    /// Asks for something, in protobuf.
    pub fn get(target: &'a str) -> Self {
        Self {
            method: "GET",
            target,
            accept: PROTOBUF,
            body: None,
        }
    }
}

/// What comes in on a connection.
type Stream = BufReader<StreamOwned<ClientConnection, TcpStream>>;

/// A connection.
pub struct Client {
    stream: Stream,
    host: SocketAddr,
}

impl Client {
    /// Asks; the answer's body is to be read to its end before the next
    /// request. A refusal is an error.
    pub fn ask(&mut self, request: &Request<'_>) -> anyhow::Result<Body<'_, Stream>> {
        let Request {
            method,
            target,
            accept,
            body,
        } = request;
        let what = || format!("{method} {target}");
        let mut bytes = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nUser-Agent: tweed-bench\r\nAccept: {accept}\r\n",
            self.host
        )
        .into_bytes();
        if let Some((kind, body)) = body {
            let length = body.len();
            write!(
                bytes,
                "Content-Type: {kind}\r\nContent-Length: {length}\r\n"
            )?;
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(body.map_or(&[], |(_, body)| body));
        let out = self.stream.get_mut();
        out.write_all(&bytes).with_context(what)?;
        out.flush().with_context(what)?;
        let (status, body) = Body::begin(&mut self.stream).with_context(what)?;
        if !(200..300).contains(&status) {
            let said = body.whole().with_context(what)?;
            let said = String::from_utf8_lossy(&said);
            bail!("{} is answered by {status}: {said}", what());
        }
        Ok(body)
    }

    /// Another handle to the connection: to end it by.
    pub fn connection(&self) -> io::Result<TcpStream> {
        self.stream.get_ref().sock.try_clone()
    }
}

/// The body of an answer.
pub struct Body<'a, R> {
    input: &'a mut R,
    /// Bytes until its end, or that of the chunk at hand.
    left: u64,
    /// Whether another chunk follows.
    goes_on: bool,
}

impl<'a, R: BufRead> Body<'a, R> {
    /// Reads what comes before it; gives the status too.
    fn begin(input: &'a mut R) -> io::Result<(u16, Self)> {
        let head = line(input)?;
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| malformed(&head))?;
        let mut body = Self {
            input,
            left: 0,
            goes_on: false,
        };
        loop {
            let header = line(body.input)?;
            let Some((name, value)) = header.split_once(": ") else {
                return Ok((status, body));
            };
            if name.eq_ignore_ascii_case("content-length") {
                body.left = value.parse().map_err(|_| malformed(&header))?;
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                body.goes_on = true;
            }
        }
    }

    /// All of it.
    pub fn whole(mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Drops all of it; gives how many bytes that were.
    pub fn drain(mut self) -> io::Result<u64> {
        let mut piece = vec![0; PIECE];
        let mut bytes = 0;
        loop {
            match self.read(&mut piece)? {
                0 => return Ok(bytes),
                length => bytes += length as u64,
            }
        }
    }

    /// Goes to the next chunk.
    fn next_chunk(&mut self) -> io::Result<()> {
        // The end of the chunk before is an empty line.
        let mut size = line(self.input)?;
        if size.is_empty() {
            size = line(self.input)?;
        }
        self.left = u64::from_str_radix(&size, 16).map_err(|_| malformed(&size))?;
        if self.left == 0 {
            self.goes_on = false;
            while !line(self.input)?.is_empty() {}
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Body<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && self.goes_on {
            self.next_chunk()?;
        }
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let most = left.min(into.len());
        // A reader asked for nothing may wait for something all the same.
        if most == 0 {
            return Ok(0);
        }
        let length = self.input.read(&mut into[..most])?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= length as u64;
        Ok(length)
    }
}

/// A line without its end.
fn line(input: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.truncate(line.trim_end().len());
    Ok(line)
}

fn malformed(line: &str) -> io::Error {
    io::Error::other(format!("not HTTP: {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(answer: &str) -> io::Result<(u16, String, String)> {
        let mut input = answer.as_bytes();
        let (status, body) = Body::begin(&mut input)?;
        let body = String::from_utf8(body.whole()?).unwrap();
        Ok((status, body, String::from_utf8(input.to_vec()).unwrap()))
    }

    #[test]
    fn a_body_ends_where_it_says_and_leaves_the_next_answer_alone() {
        let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\nnext";
        let whole = "HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nabcnext";
        let (status, body, rest) = read(chunks).unwrap();
        assert_eq!(
            (status, &*body, &*rest),
            (200, "abc0123456789", "next"),
            "in chunks"
        );
        let (status, body, rest) = read(whole).unwrap();
        assert_eq!((status, &*body, &*rest), (404, "abc", "next"), "whole");
    }

    /// A server that has nothing more to say, and keeps the connection.
    struct Silent;

    impl Read for Silent {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    #[test]
    fn nothing_is_waited_for_behind_a_body() {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ] {
            let mut input = BufReader::new(answer.as_bytes().chain(Silent));
            let (_, body) = Body::begin(&mut input).unwrap();
            assert_eq!(body.whole().unwrap(), b"abc", "{answer:?}");
        }
    }

    #[test]
    fn a_body_that_is_cut_off_is_an_error() {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            "HTTP/1.1",
        ] {
            assert!(read(answer).is_err(), "{answer:?}");
        }
    }
}
