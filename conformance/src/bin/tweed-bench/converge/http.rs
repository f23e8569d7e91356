//! HTTP/1.1 from the server's side: as much of it as the agents speak.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use super::tls::Stream;

/// The content type of the API's protobuf.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// Read and written at once, in bytes.
pub const PIECE: usize = 64 << 10;

/// What is asked for.
pub struct Asked {
    pub method: String,
    pub path: String,
    pub query: BTreeMap<String, String>,
    /// Whether protobuf is wanted.
    pub accepts_protobuf: bool,
    pub body: Vec<u8>,
}

impl Asked {
    /// Reads one request; none when the client is done.
    pub fn read(input: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace().map(str::to_owned);
        let (method, target) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let mut asked = Self {
            method,
            path: path.to_owned(),
            query: query
                .split('&')
                .filter_map(|pair| pair.split_once('='))
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            accepts_protobuf: false,
            body: Vec::new(),
        };
        loop {
            let mut line = String::new();
            input.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            if name.eq_ignore_ascii_case("accept") {
                asked.accepts_protobuf = value.contains(PROTOBUF);
            } else if name.eq_ignore_ascii_case("content-length") {
                asked.body.resize(value.parse().unwrap_or_default(), 0);
            }
        }
        input.read_exact(&mut asked.body)?;
        Ok(Some(asked))
    }
}

/// Says that there is nothing here.
pub fn not_found(out: &mut Stream) -> io::Result<()> {
    whole(
        out,
        "404 Not Found",
        br#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"there is nothing here","reason":"NotFound","code":404}"#,
    )
}

/// An answer of known length, in JSON.
pub fn whole(out: &mut Stream, status: &str, body: &[u8]) -> io::Result<()> {
    write!(
        out,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )?;
    out.write_all(body)?;
    out.flush()
}

/// An answer of unknown length, in chunks.
pub struct Chunks<'a> {
    out: &'a mut Stream,
    piece: Vec<u8>,
    chunk: Vec<u8>,
}

impl<'a> Chunks<'a> {
    /// Begins the answer; `parameter` is added to the content type.
    pub fn start(out: &'a mut Stream, protobuf: bool, parameter: &str) -> io::Result<Self> {
        let kind = if protobuf {
            format!("{PROTOBUF}{parameter}")
        } else {
            "application/json".to_owned()
        };
        write!(
            out,
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
        )?;
        Ok(Self {
            out,
            piece: Vec::with_capacity(2 * PIECE),
            chunk: Vec::with_capacity(2 * PIECE),
        })
    }

    /// Adds bytes, which may wait for more.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE {
            self.send()?;
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        for piece in self.piece.chunks(PIECE) {
            // In one write: each is sent at once, and wakes who reads.
            self.chunk.clear();
            write!(self.chunk, "{:x}\r\n", piece.len())?;
            self.chunk.extend_from_slice(piece);
            self.chunk.extend_from_slice(b"\r\n");
            self.out.write_all(&self.chunk)?;
        }
        self.piece.clear();
        Ok(())
    }

    /// Sends what waits.
    pub fn flush(&mut self) -> io::Result<()> {
        self.send()?;
        self.out.flush()
    }

    /// Ends the answer.
    pub fn end(mut self) -> io::Result<()> {
        self.send()?;
        self.out.write_all(b"0\r\n\r\n")?;
        self.out.flush()
    }
}
