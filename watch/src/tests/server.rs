//! An API server made of answers that a test wrote down beforehand: the n-th
//! request gets the n-th answer, whatever it asks for. What was asked for is
//! kept for the test to look at.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// An answer.
pub(super) enum Answer {
    /// A whole response of this status and body.
    Whole(u16, String),
    /// A response of status 200 whose body comes in these pieces, and then as
    /// `End` says.
    Stream(Vec<String>, End),
    /// As [`Answer::Whole`], in protobuf.
    Protobuf(u16, Vec<u8>),
    /// As [`Answer::Stream`], in protobuf.
    ProtobufStream(Vec<Vec<u8>>, End),
    /// The answer for this bearer token. Requests with another one are refused until
    /// it comes.
    For(&'static str, Box<Answer>),
}

/// How a stream ends.
pub(super) enum End {
    /// As the server wants it.
    Clean,
    /// The connection is cut.
    Cut,
    /// Not at all.
    Open,
}

pub(super) struct Server {
    pub address: SocketAddr,
    asked: watch::Receiver<Vec<String>>,
    credentials: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Server {
    /// A server on a free port.
    pub(super) async fn start(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, answers)
    }

    pub(super) fn on(listener: TcpListener, answers: Vec<Answer>) -> Self {
        let address = listener.local_addr().unwrap();
        let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
        let (ask, asked) = watch::channel(Vec::new());
        let ask = Arc::new(ask);
        let credentials = Arc::default();
        let kept = Arc::clone(&credentials);
        let task = tokio::spawn(async move {
            loop {
                let (connection, _) = listener.accept().await.unwrap();
                let (answers, kept) = (Arc::clone(&answers), Arc::clone(&kept));
                tokio::spawn(serve(connection, answers, Arc::clone(&ask), kept));
            }
        });
        Self {
            address,
            asked,
            credentials,
            task,
        }
    }

    /// What the first `count` requests asked for, once there are so many: path
    /// and query, without the watch's time-out, and whether it was for JSON
    /// alone.
    pub(super) async fn asked(&mut self, count: usize) -> Vec<String> {
        let asked = self.asked.wait_for(|asked| asked.len() >= count);
        let asked = tokio::time::timeout(super::STUCK, asked).await;
        asked.expect("that many requests").unwrap()[..count].to_vec()
    }

    /// What the requests had in `Authorization`, in their order.
    pub(super) fn credentials(&self) -> Vec<String> {
        self.credentials.lock().unwrap().clone()
    }

    /// How many requests there were.
    pub(super) fn count(&self) -> usize {
        self.asked.borrow().len()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut connection: TcpStream,
    answers: Arc<Mutex<VecDeque<Answer>>>,
    ask: Arc<watch::Sender<Vec<String>>>,
    credentials: Arc<Mutex<Vec<String>>>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match connection.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let target = head.split_whitespace().nth(1).unwrap();
    // After the request is known, so that a test that waits for it finds the
    // answers in step.
    let answer = answers.lock().unwrap().pop_front();
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let header = lines.find(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    let authorization = header.map_or("", |(_, value)| value).to_owned();
    credentials.lock().unwrap().push(authorization.clone());
    let answer = match answer {
        Some(Answer::For(token, answer)) if authorization == format!("Bearer {token}") => {
            Some(*answer)
        }
        Some(later @ Answer::For(..)) => {
            answers.lock().unwrap().push_front(later);
            Some(super::refusal(401, "Unauthorized"))
        }
        answer => answer,
    };
    let takes_protobuf = head.contains("application/vnd.kubernetes.protobuf");
    let how = if takes_protobuf { "" } else { " as JSON" };
    let target = without_timeout(target);
    ask.send_modify(|asked| asked.push(format!("{target}{how}")));
    match answer {
        Some(Answer::Whole(status, body)) => {
            whole(&mut connection, status, "application/json", body.as_bytes()).await;
        }
        Some(Answer::Protobuf(status, body)) => {
            whole(&mut connection, status, PROTOBUF, &body).await;
        }
        Some(Answer::Stream(texts, end)) => {
            let pieces = texts.into_iter().map(String::into_bytes).collect();
            stream(&mut connection, "application/json", pieces, end).await;
        }
        Some(Answer::ProtobufStream(pieces, end)) => {
            let kind = format!("{PROTOBUF};stream=watch");
            stream(&mut connection, &kind, pieces, end).await;
        }
        Some(Answer::For(..)) => unreachable!("it holds no other of its kind"),
        None => std::future::pending().await,
    }
}

/// A watch's time is random.
fn without_timeout(target: &str) -> String {
    let parts = target.split('&');
    let kept: Vec<&str> = parts
        .filter(|part| !part.starts_with("timeoutSeconds="))
        .collect();
    kept.join("&")
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

async fn whole(connection: &mut TcpStream, status: u16, kind: &str, body: &[u8]) {
    let head = format!(
        "HTTP/1.1 {status} Answer\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = connection.write_all(head.as_bytes()).await;
    let _ = connection.write_all(body).await;
}

async fn stream(connection: &mut TcpStream, kind: &str, pieces: Vec<Vec<u8>>, end: End) {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    );
    let _ = connection.write_all(head.as_bytes()).await;
    for piece in pieces {
        let _ = connection
            .write_all(format!("{:x}\r\n", piece.len()).as_bytes())
            .await;
        let _ = connection.write_all(&piece).await;
        let _ = connection.write_all(b"\r\n").await;
        let _ = connection.flush().await;
    }
    match end {
        End::Clean => {
            let _ = connection.write_all(b"0\r\n\r\n").await;
        }
        End::Cut => {}
        End::Open => std::future::pending().await,
    }
}
