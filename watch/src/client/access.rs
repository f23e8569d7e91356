//! Which API server to use, and with which credentials.

use std::error::Error;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fmt, future};

use http::HeaderValue;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::task::{JoinError, spawn_blocking};
use tweed_core::{limits, regular_file};

use super::Failure;
use super::connect::{self, Pings};
use super::kubeconfig;
use super::peers::Peers;
use super::proxy::{Proxy, ProxyVariables};

/// A proxy that is not used: with it in the kubeconfig, kube does not look at the
/// environment. [`Proxy::to`] does.
const UNUSED_PROXY: &str = "http://unused.invalid";

/// Which API server to use, and with which credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Those of the current context of this kubeconfig.
    Kubeconfig(PathBuf),
    /// Those of a pod of the cluster: the files of its service account.
    InCluster {
        /// URL of the server. `None` stands for `KUBERNETES_SERVICE_HOST` and
        /// `KUBERNETES_SERVICE_PORT`, which is a Service and so needs kube-proxy
        /// or its replacement.
        server: Option<http::Uri>,
    },
}

/// What tells an API server from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its URL. In a pod it is mostly the same in every cluster.
    pub url: String,
    /// The certificates, in DER, of which one has to have signed its own; empty where those
    /// of the machine's store count, or none.
    pub authorities: Vec<Vec<u8>>,
}

/// A client of kube, the URL of its server for messages, and the file with the token for
/// each request.
pub(crate) struct Connection {
    pub(super) client: Client,
    pub(super) url: String,
    pub(super) token_file: Option<PathBuf>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.url).finish()
    }
}

impl Access {
    /// The server, as the kubeconfig or the environment names it now.
    ///
    /// # Errors
    /// The kubeconfig or the service account's files cannot be used.
    pub async fn server(&self) -> Result<Server, Failure> {
        let config = self.read().await?.config;
        Ok(Server {
            url: config.cluster_url.to_string(),
            authorities: config.root_cert.unwrap_or_default(),
        })
    }

    /// When the kubeconfig was last changed; none where there is no such file.
    pub(super) fn changed(&self) -> Option<SystemTime> {
        match self {
            Self::Kubeconfig(path) => std::fs::metadata(path).ok()?.modified().ok(),
            Self::InCluster { .. } => None,
        }
    }

    /// That no client could be built in this time: a program that gives credentials hangs.
    pub(super) fn too_slow(&self, timeout: Duration) -> Failure {
        let seconds = timeout.as_secs();
        let why = format!("its credentials were not there within {seconds} s");
        match self {
            Self::Kubeconfig(path) => {
                let program = program(path).unwrap_or_else(|| "the program".to_owned());
                Failure::Kubeconfig {
                    path: path.clone(),
                    why: format!("{why}: does {program} hang, from which it gets them?"),
                }
            }
            Self::InCluster { .. } => Failure::InCluster { why },
        }
    }

    /// Reads the kubeconfig or the service account's files and builds a client, in a thread
    /// of its own: the kubeconfig may name a program that gives the credentials. Nothing is
    /// sent yet. `peers` are told whom it connects to. `turn` is kept until that program has ended, and given back.
    pub(super) async fn connect<T: Send + 'static>(
        &self,
        proxies: &ProxyVariables,
        pings: Pings,
        peers: &Peers,
        turn: T,
    ) -> Result<(Connection, T), Failure> {
        let Found {
            config,
            proxy_url,
            token_file,
        } = self.read().await?;
        let proxy = match self {
            Self::Kubeconfig(_) => Proxy::to(&config.cluster_url, proxy_url.as_deref(), proxies)?,
            Self::InCluster { .. } => None,
        };
        let url = match &proxy {
            Some(proxy) => format!("{} (through the proxy {})", config.cluster_url, proxy.uri),
            None => config.cluster_url.to_string(),
        };
        let peers = peers.clone();
        let build = move || {
            let client = connect::client(&config, proxy.as_ref(), Some(pings), &peers);
            (client, turn)
        };
        let built = spawn_blocking(build).await;
        let (client, turn) = match built.map_err(JoinError::try_into_panic) {
            Ok(built) => built,
            Err(Ok(panic)) => resume_unwind(panic),
            // The runtime is being shut down.
            Err(Err(_cancelled)) => future::pending().await,
        };
        let client = client.map_err(|e| Failure::unreachable(&url, &e))?;
        let connection = Connection {
            client,
            url,
            token_file,
        };
        Ok((connection, turn))
    }

    /// Server and credentials, as the files say now.
    async fn read(&self) -> Result<Found, Failure> {
        match self {
            Self::Kubeconfig(path) => {
                let unusable = |error: &dyn std::error::Error| Failure::kubeconfig(path, error);
                let mut kubeconfig = kubeconfig::read(path).map_err(|e| unusable(&e))?;
                kubeconfig::include_files(&mut kubeconfig, path).map_err(|e| unusable(&e))?;
                let proxy_url = take_proxy_url(&mut kubeconfig);
                let options = KubeConfigOptions::default();
                let config = Config::from_custom_kubeconfig(kubeconfig, &options)
                    .await
                    .map_err(|e| unusable(&e))?;
                Ok(Found::new(config, proxy_url))
            }
            Self::InCluster { server } => {
                kubeconfig::check_service_account().map_err(|e| Failure::in_cluster(&e))?;
                let mut config = match server {
                    None => Config::incluster_env(),
                    Some(_) => Config::incluster_dns(),
                }
                .map_err(|e| Failure::in_cluster(&e))?;
                if let Some(server) = server {
                    config.cluster_url = server.clone();
                }
                Ok(Found::new(config, None))
            }
        }
    }
}

/// A client for programs of people, and the URL of its server: that of the current context of
/// this kubeconfig, or without one that of the pod's service account. It speaks HTTP/1.1 alone,
/// as no WebSocket can be opened by HTTP/2. Nothing is sent yet.
///
/// # Errors
/// What of the kubeconfig or the service account cannot be used.
pub async fn client_of_people(
    kubeconfig: Option<Kubeconfig>,
) -> Result<(Client, String), Box<dyn Error + Send + Sync>> {
    let (config, proxy) = match kubeconfig {
        Some(mut kubeconfig) => {
            let proxy_url = take_proxy_url(&mut kubeconfig);
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
            let variables = ProxyVariables::of_process();
            let proxy = Proxy::to(&config.cluster_url, proxy_url.as_deref(), &variables)?;
            (config, proxy)
        }
        None => (Config::incluster_env()?, None),
    };
    let url = config.cluster_url.to_string();
    let client = connect::client(&config, proxy.as_ref(), None, &Peers::default())?;
    Ok((client, url))
}

/// What the files of an [`Access`] say.
struct Found {
    config: Config,
    /// The kubeconfig's `proxy-url`.
    proxy_url: Option<String>,
    /// The file with the token.
    token_file: Option<PathBuf>,
}

impl Found {
    fn new(mut config: Config, proxy_url: Option<String>) -> Self {
        let token_file = take_token_file(&mut config.auth_info);
        Self {
            config,
            proxy_url,
            token_file,
        }
    }
}

/// The program that gives the credentials of the current context's user.
fn program(path: &Path) -> Option<String> {
    let kubeconfig = kubeconfig::read(path).ok()?;
    let current = kubeconfig.current_context?;
    let mut contexts = kubeconfig.contexts.into_iter();
    let user = contexts.find(|one| one.name == current)?.context?.user?;
    let mut users = kubeconfig.auth_infos.into_iter();
    users.find(|one| one.name == user)?.auth_info?.exec?.command
}

/// Takes the `proxy-url` of the current context's cluster out of the kubeconfig,
/// so that kube decides nothing about proxies.
fn take_proxy_url(kubeconfig: &mut Kubeconfig) -> Option<String> {
    let current = kubeconfig.current_context.as_ref()?;
    let mut contexts = kubeconfig.contexts.iter();
    let context = contexts.find(|context| context.name == *current)?;
    let name = &context.context.as_ref()?.cluster;
    let mut clusters = kubeconfig.clusters.iter_mut();
    let cluster = clusters.find(|cluster| cluster.name == *name)?;
    let proxy_url = &mut cluster.cluster.as_mut()?.proxy_url;
    let taken = proxy_url.replace(UNUSED_PROXY.to_owned());
    taken.filter(|url| !url.is_empty())
}

/// Takes the `tokenFile` out of the credentials, if kube would use it: kube would read it by
/// itself again and again, whatever has been put in its place.
fn take_token_file(credentials: &mut AuthInfo) -> Option<PathBuf> {
    let has_password = credentials.username.is_some() && credentials.password.is_some();
    if has_password || credentials.token.is_some() || credentials.auth_provider.is_some() {
        return None;
    }
    let path = credentials.token_file.take()?;
    // It goes before a program that gives credentials.
    credentials.exec = None;
    Some(path.into())
}

/// The header with the token in this file. The file is read for each request: the kubelet
/// replaces it. White space around the token, mostly the line end of a shell's `>`, is no part
/// of it.
pub(super) fn bearer(path: &Path) -> Result<HeaderValue, String> {
    let why =
        |error: &dyn fmt::Display| format!("cannot use the token in {}: {error}", path.display());
    let text = regular_file::read_text(path, limits::CREDENTIALS).map_err(|e| why(&e))?;
    let mut header =
        HeaderValue::try_from(format!("Bearer {}", text.trim())).map_err(|e| why(&e))?;
    header.set_sensitive(true);
    Ok(header)
}
