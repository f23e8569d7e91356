//! The spec of a cluster: its size, its network, its addresses.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use tweed_lab::LabError;

/// The range of all pods' addresses; each node gets a /24 of it.
pub const POD_CIDR: &str = "10.244.0.0/16";

/// The range of the Services' addresses.
pub const SERVICE_CIDR: &str = "10.96.0.0/16";

/// The same where pods and Services have both families; each node gets a /64.
pub(crate) const POD_CIDR_IPV6: &str = "fd00:10:244::/56";

/// As [`POD_CIDR_IPV6`].
pub(crate) const SERVICE_CIDR_IPV6: &str = "fd00:10:96::/112";

/// The address of the Service `kubernetes`, the first one of [`SERVICE_CIDR`].
pub const SERVICE_OF_API: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// The name server that kubelet configures in pods; a test that needs DNS runs one there.
pub const SERVICE_OF_DNS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);

/// The port of the API server on the control-plane node.
pub(crate) const API_PORT: u16 = 6443;

/// The name of the control-plane node.
pub const CONTROL: &str = "control";

/// Maximum index of a worker; its address is 192.0.2.(10 + index).
const MAX_WORKERS: u8 = 99;

/// The spec of a cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// Number of nodes beside [`CONTROL`], named `worker1` and so on.
    pub workers: u8,
    /// The pods' network.
    pub network: Network,
    /// What serves Services on every node.
    pub proxy: ProxyMode,
    /// Whether pods have addresses of both families, and Services that want them too. Nodes
    /// have IPv4 alone on the underlay.
    #[serde(default)]
    pub dual_stack: bool,
    /// Archives of images that every new node imports, in addition to those that
    /// `conformance/setup.sh e2e` has built.
    pub images: Vec<PathBuf>,
    /// The version of Kubernetes; `None` is the one that
    /// `conformance/kubernetes/kubernetes/go.mod` pins.
    #[serde(default)]
    pub kubernetes: Option<String>,
    /// A folder of `make release` that tweed's image and manifest come from; `None` is this
    /// build.
    #[serde(default)]
    pub release: Option<PathBuf>,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            workers: 3,
            network: Network::Tweed,
            proxy: ProxyMode::Nftables,
            dual_stack: false,
            images: Vec::new(),
            kubernetes: None,
            release: None,
        }
    }
}

/// The pods' network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// tweed, by the manifest for the cluster's [`ProxyMode`].
    Tweed,
    /// The reference plugins `bridge` and `host-local`, with static routes
    /// between the nodes.
    Reference,
    /// No network: the nodes stay NotReady.
    None,
}

/// The implementation of Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyMode {
    /// kube-proxy with nftables.
    Nftables,
    /// kube-proxy with iptables.
    Iptables,
    /// tweed with `--services on`, and no kube-proxy.
    Tweed,
    /// No kube-proxy: no Services.
    None,
}

impl ProxyMode {
    /// The mode's name in kube-proxy's config; `None` if it must not run.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::Nftables => Some("nftables"),
            Self::Iptables => Some("iptables"),
            Self::Tweed | Self::None => None,
        }
    }

    /// What `kubectl apply` installs tweed from on a cluster with this mode, relative to the
    /// source folder: its option and the path.
    #[must_use]
    pub fn manifest(self) -> (&'static str, &'static str) {
        match self {
            Self::Nftables | Self::Iptables => ("--filename", "install/tweed.yaml"),
            Self::Tweed => (
                "--kustomize",
                "install/kustomize/services-without-kube-proxy",
            ),
            Self::None => ("--kustomize", "install/kustomize/without-kube-proxy"),
        }
    }
}

/// Name and address of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Its name, at most 15 bytes: its port on the switch has it too.
    pub name: String,
    /// Its address on the underlay.
    pub address: Ipv4Addr,
}

impl NodeSpec {
    /// The control-plane node: 192.0.2.10.
    #[must_use]
    pub fn control() -> Self {
        Self {
            name: CONTROL.to_owned(),
            address: address(0),
        }
    }

    /// `worker<index>`: 192.0.2.(10 + index).
    ///
    /// # Errors
    /// [`LabError::Name`] for 0 and for more than 99.
    pub fn worker(index: u8) -> Result<Self, LabError> {
        let name = format!("worker{index}");
        if index == 0 || index > MAX_WORKERS {
            return Err(LabError::Name {
                name,
                why: "workers are numbered from 1 to 99",
            });
        }
        Ok(Self {
            name,
            address: address(index),
        })
    }

    /// Whether the control plane runs on it.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.name == CONTROL
    }
}

fn address(index: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 10_u8.saturating_add(index))
}

impl Spec {
    /// The archive of tweed's image: that of the release, or what `make image` has written
    /// into cargo's target folder.
    #[must_use]
    pub fn image_of_tweed(&self, target: &Path) -> PathBuf {
        match &self.release {
            Some(folder) => folder.join(concat!("tweed-", env!("CARGO_PKG_VERSION"), "-image.tar")),
            None => target.join("tweed-image.tar"),
        }
    }

    /// What `kubectl apply` installs tweed from with this proxy: its option, and the path. A
    /// release has the manifest for a cluster with kube-proxy only.
    #[must_use]
    pub fn manifest_of_tweed(&self, proxy: ProxyMode, source: &Path) -> (&'static str, PathBuf) {
        match (proxy.manifest(), &self.release) {
            (("--filename", _), Some(folder)) => ("--filename", folder.join("tweed.yaml")),
            ((option, path), _) => (option, source.join(path)),
        }
    }

    /// The nodes that the cluster starts with, the control-plane node first.
    ///
    /// # Errors
    /// As [`NodeSpec::worker`].
    pub fn nodes(&self) -> Result<Vec<NodeSpec>, LabError> {
        let workers = (1..=self.workers).map(NodeSpec::worker);
        std::iter::once(Ok(NodeSpec::control()))
            .chain(workers)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_plane_node_and_three_workers_by_default() {
        let nodes = Spec::default().nodes().unwrap();
        let plan: Vec<String> = nodes
            .iter()
            .map(|node| format!("{} {}", node.name, node.address))
            .collect();
        assert_eq!(
            plan,
            [
                "control 192.0.2.10",
                "worker1 192.0.2.11",
                "worker2 192.0.2.12",
                "worker3 192.0.2.13"
            ]
        );
    }

    #[test]
    fn a_release_has_the_image_and_the_manifest_for_kube_proxy() {
        let places = |spec: &Spec, proxy| {
            let image = spec.image_of_tweed(Path::new("/target"));
            let (_, manifest) = spec.manifest_of_tweed(proxy, Path::new("/source"));
            [image, manifest].map(|path| path.display().to_string())
        };
        let mut spec = Spec::default();
        assert_eq!(
            places(&spec, ProxyMode::Nftables),
            ["/target/tweed-image.tar", "/source/install/tweed.yaml"]
        );
        spec.release = Some("/release".into());
        let image = format!("/release/tweed-{}-image.tar", env!("CARGO_PKG_VERSION"));
        let [of_release, manifest] = places(&spec, ProxyMode::Iptables);
        assert_eq!(
            (of_release, manifest.as_str()),
            (image, "/release/tweed.yaml")
        );
        let [_, overlay] = places(&spec, ProxyMode::Tweed);
        assert!(
            overlay.starts_with("/source/install/kustomize/"),
            "{overlay}"
        );
    }

    #[test]
    fn a_worker_beyond_the_underlay_is_refused() {
        for index in [0, 100] {
            let error = NodeSpec::worker(index).unwrap_err().to_string();
            assert!(error.contains("1 to 99"), "{error}");
        }
    }
}
