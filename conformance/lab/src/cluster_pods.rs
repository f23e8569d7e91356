//! The pods of a [`Cluster`]: attached by `cnitool`, with a Pod object where the test
//! asks for one.

use std::net::IpAddr;

use crate::cluster::Cluster;
use crate::cnitool::{AddResult, CniTool};
use crate::error::LabError;
use crate::netns::Netns;
use crate::objects::{PodManifest, labels, namespace_manifest};
use crate::pod::Pod;

/// The network's name in the config that the agent writes.
const NETWORK: &str = "tweed";

/// A pod with an interface `eth0` in the network `tweed`.
#[derive(Debug)]
pub struct ClusterPod {
    pod: Pod,
    result: AddResult,
    address: IpAddr,
    /// Its Pod object; only a pod of [`Cluster::labelled_pod`] has one.
    pub manifest: Option<PodManifest>,
}

impl Cluster {
    /// A new pod on node `index`, attached by `cnitool`, of which no Pod object exists.
    ///
    /// # Errors
    /// [`LabError::Failed`] with the plugin's error.
    pub fn pod(&mut self, index: u8, name: &str) -> Result<ClusterPod, LabError> {
        let lab = self.lab().clone();
        self.attach(index, Pod::new(&lab, name)?, &kubelet_args("default", name))
    }

    /// A new pod with a Pod object, as a kubelet runs it: `path` is `namespace/name`,
    /// `words` its labels (`app=web tier=front`). The object is in the file before the
    /// ADD and has its address after it. Its namespace is created if there is none.
    ///
    /// # Errors
    /// As [`Cluster::pod`], or [`LabError::Name`] if the path has no slash.
    pub fn labelled_pod(
        &mut self,
        index: u8,
        path: &str,
        words: &str,
    ) -> Result<ClusterPod, LabError> {
        self.labelled_pod_at(index, path, words, None)
    }

    /// As [`Cluster::labelled_pod`], with this address.
    ///
    /// # Errors
    /// As [`Cluster::labelled_pod`], or the address is in use.
    pub fn labelled_pod_at(
        &mut self,
        index: u8,
        path: &str,
        words: &str,
        address: Option<IpAddr>,
    ) -> Result<ClusterPod, LabError> {
        let (namespace, name) = path.split_once('/').ok_or_else(|| LabError::Name {
            name: path.to_owned(),
            why: "it has to be namespace/name",
        })?;
        let mut manifest = PodManifest {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            labels: labels(words),
            node: self.entry(index)?.node.name().to_owned(),
            ..PodManifest::default()
        };
        let namespace_key = format!("namespace/{namespace}");
        if !self.objects().contains(&namespace_key) {
            let text = namespace_manifest(namespace, &labels(""));
            self.objects().set(&namespace_key, text);
        }
        self.apply_pod(&manifest)?;
        let lab = self.lab().clone();
        let args = match address {
            Some(address) => format!("{};IP={address}", kubelet_args(namespace, name)),
            None => kubelet_args(namespace, name),
        };
        let mut pod = self.attach(index, Pod::new(&lab, name)?, &args)?;
        manifest.addresses = pod.addresses().collect();
        self.apply_pod(&manifest)?;
        pod.manifest = Some(manifest);
        Ok(pod)
    }

    /// Adds or replaces a Pod object and writes the file.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn apply_pod(&mut self, manifest: &PodManifest) -> Result<(), LabError> {
        self.apply(&pod_key(manifest), manifest.to_json().to_string())
    }

    /// DEL by `cnitool` for a pod of node `index`; its namespace and its object are
    /// deleted too.
    ///
    /// # Errors
    /// [`LabError::Failed`] with the plugin's error.
    pub fn delete_pod(&mut self, index: u8, pod: ClusterPod) -> Result<(), LabError> {
        let node = &self.entry(index)?.node;
        CniTool::new(node, NETWORK).del(&pod.pod)?;
        match &pod.manifest {
            Some(manifest) => self.delete(&pod_key(manifest)),
            None => Ok(()),
        }
    }

    fn attach(&mut self, index: u8, pod: Pod, args: &str) -> Result<ClusterPod, LabError> {
        let node = &self.entry(index)?.node;
        let result = CniTool::new(node, NETWORK).args(args).add(&pod)?;
        let address = result.address().ok_or_else(|| LabError::Output {
            command: "cnitool add".to_owned(),
            expected: "a result with an address",
            output: result.document.to_string(),
        })?;
        Ok(ClusterPod {
            pod,
            result,
            address,
            manifest: None,
        })
    }
}

/// `CNI_ARGS` as a kubelet's runtime gives them.
fn kubelet_args(namespace: &str, name: &str) -> String {
    format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}")
}

fn pod_key(manifest: &PodManifest) -> String {
    format!("pod/{}/{}", manifest.namespace, manifest.name)
}

impl ClusterPod {
    /// Its namespace.
    #[must_use]
    pub fn netns(&self) -> &Netns {
        self.pod.netns()
    }

    /// The pod.
    #[must_use]
    pub fn pod(&self) -> &Pod {
        &self.pod
    }

    /// Its first address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// All of its addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.result.ips.iter().map(|ip| ip.address.ip())
    }

    /// The result of ADD.
    #[must_use]
    pub fn result(&self) -> &AddResult {
        &self.result
    }
}
