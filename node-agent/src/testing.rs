//! An API server of tests, and its client.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tweed_watch::client::{Access, ApiClient};

/// Longer than any request takes: a test that waits in vain fails.
const STUCK: Duration = Duration::from_secs(60);

/// What an API server holds.
pub trait Answers: Send + 'static {
    /// The status and the object for a request, or the status of a refusal.
    fn answer(
        &mut self,
        method: &Method,
        path: &str,
        kind: &str,
        body: &[u8],
    ) -> Result<(u16, Value), u16>;
}

/// An API server, with what was asked of it.
pub struct Api<H> {
    pub address: SocketAddr,
    pub task: JoinHandle<()>,
    held: Arc<Mutex<H>>,
    asked: watch::Receiver<Vec<String>>,
}

struct Shared<H> {
    held: Arc<Mutex<H>>,
    ask: watch::Sender<Vec<String>>,
}

impl<H: Answers> Api<H> {
    pub async fn start(held: H) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, held)
    }

    pub fn on(listener: TcpListener, held: H) -> Self {
        let address = listener.local_addr().unwrap();
        let held = Arc::new(Mutex::new(held));
        let (ask, asked) = watch::channel(Vec::new());
        let shared = Arc::new(Shared {
            held: Arc::clone(&held),
            ask,
        });
        let app = Router::new().fallback(serve::<H>).with_state(shared);
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            address,
            task,
            held,
            asked,
        }
    }

    pub fn held(&self) -> MutexGuard<'_, H> {
        self.held.lock().unwrap()
    }

    /// The first `count` requests, once there are so many: method and path.
    pub async fn asked(&mut self, count: usize) -> Vec<String> {
        let enough = self.asked.wait_for(|asked| asked.len() >= count);
        let asked = tokio::time::timeout(STUCK, enough).await;
        asked.expect("that many requests").unwrap()[..count].to_vec()
    }

    /// How many requests there were.
    pub fn count(&self) -> usize {
        self.asked.borrow().len()
    }
}

impl<H> Drop for Api<H> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve<H: Answers>(
    State(shared): State<Arc<Shared<H>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let content_type = headers.get(header::CONTENT_TYPE);
    let kind = content_type.map_or("", |kind| kind.to_str().unwrap());
    let answer = (shared.held.lock().unwrap()).answer(&method, uri.path(), kind, &body);
    let (code, content) = answer.unwrap_or_else(|code| {
        let status = json!({"kind": "Status", "status": "Failure", "code": code, "message": "no"});
        (code, status)
    });
    // Last, so that a test that waits for it finds all of it done.
    let asked = format!("{method} {}", uri.path());
    shared.ask.send_modify(|all| all.push(asked));
    (StatusCode::from_u16(code).unwrap(), content.to_string())
}

/// A client of the server at `address`, whose kubeconfig is in `folder`.
pub fn client(folder: &tempfile::TempDir, address: &str) -> ApiClient {
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    });
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    ApiClient::new(Access::Kubeconfig(path))
}
