//! Which API server to use, and with which credentials.

use std::{fmt, path::PathBuf, time::Duration};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::Failure;

/// Maximum time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

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

/// A client of kube, and the URL of its server for messages.
#[derive(Clone)]
pub(super) struct Connection {
    pub client: Client,
    pub url: String,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.url).finish()
    }
}

impl Access {
    /// Reads the kubeconfig or the service account's files and builds a client.
    /// Nothing is sent yet.
    pub(super) async fn connect(&self) -> Result<Connection, Failure> {
        let mut config = self.read().await?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        // Callers retry and report failures themselves.
        config.default_retry = false;
        let url = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(|e| Failure::unreachable(&url, &e))?;
        Ok(Connection { client, url })
    }

    async fn read(&self) -> Result<Config, Failure> {
        match self {
            Self::Kubeconfig(path) => {
                let unusable = |error: &dyn std::error::Error| Failure::kubeconfig(path, error);
                let kubeconfig = Kubeconfig::read_from(path).map_err(|e| unusable(&e))?;
                let options = KubeConfigOptions::default();
                let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
                config.map_err(|e| unusable(&e))
            }
            Self::InCluster { server: None } => {
                Config::incluster_env().map_err(|e| Failure::in_cluster(&e))
            }
            Self::InCluster {
                server: Some(server),
            } => {
                let mut config = Config::incluster_dns().map_err(|e| Failure::in_cluster(&e))?;
                config.cluster_url = server.clone();
                Ok(config)
            }
        }
    }
}
