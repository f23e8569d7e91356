//! How the agent reaches an API server, and what can go wrong on the way.
//!
//! [`Access`] is what was asked for; [`Access::connect`] reads the files that
//! it stands for and gives a client. Whoever uses it asks anew when the
//! credentials do not hold any more: files and addresses change under a name.

mod failure;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

pub use failure::Failure;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Which API server, and as whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// As this kubeconfig's current context says.
    Kubeconfig(PathBuf),
    /// As a pod of the cluster: with the service account's files.
    InCluster {
        /// Where the server is; none for `KUBERNETES_SERVICE_HOST` and
        /// `KUBERNETES_SERVICE_PORT`, which lead to a Service and so through
        /// kube-proxy or what stands in for it.
        server: Option<http::Uri>,
    },
}

/// An API server, and how it is named to people.
#[derive(Clone)]
pub struct Server {
    /// The client.
    pub client: Client,
    /// Its URL.
    pub url: String,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(&self.url).finish()
    }
}

impl Access {
    /// A client. Nothing is asked of the server yet.
    pub async fn connect(&self) -> Result<Server, Failure> {
        let mut config = self.read().await?;
        config.connect_timeout = Some(CONNECT);
        // Whoever asks repeats what fails, and reports it.
        config.default_retry = false;
        let url = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(|e| Failure::answer(&url, &e))?;
        Ok(Server { client, url })
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
