//! One pod in the index.

use std::net::IpAddr;
use std::sync::Arc;

use tweed_core::object::pod::Pod;

use crate::policy::model::labels::{Interner, Kind};
use crate::policy::model::uid::Uid;

/// One pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Namespace, labels and named ports.
    pub kind: Arc<Kind>,
    /// `spec.nodeName`: of the Node whose pod CIDRs its addresses are in.
    pub node: Arc<str>,
    /// The UID by which the kubelet knows it.
    pub(super) uid: Option<Uid>,
    /// `metadata.creationTimestamp`; of two pods with one address the younger has it.
    pub(super) created: Option<i64>,
    /// Its addresses.
    pub addresses: Box<[IpAddr]>,
    /// Whether it is on the host's network: then policies do not see it.
    pub host_network: bool,
    /// Whether it has ended: then its address may be another pod's.
    pub finished: bool,
}

impl Entry {
    /// Whether this may be the pod with this UID. Where one of them is not known the
    /// name has decided.
    pub fn may_be(&self, uid: Option<&str>) -> bool {
        let wanted = uid.map(Uid::of);
        self.uid.is_none() || wanted.is_none() || self.uid == wanted
    }

    /// Whether this pod is older than another one with its name, which has taken its place.
    pub(super) fn is_replaced_by(&self, other: &Self) -> bool {
        let is_other = matches!((self.uid, other.uid), (Some(own), Some(other)) if own != other);
        let created = (self.created, other.created);
        is_other && matches!(created, (Some(own), Some(other)) if own < other)
    }
}

/// What policies need of a pod.
pub(super) fn entry(interner: &mut Interner, pod: &Pod) -> Entry {
    let parsed = pod.addresses.iter().filter_map(|text| text.parse().ok());
    let mut addresses: Vec<IpAddr> = parsed.collect();
    addresses.sort_unstable();
    addresses.dedup();
    Entry {
        kind: interner.kind(&pod.namespace, &pod.labels, &pod.ports),
        node: interner.text(&pod.node),
        uid: pod.kubelet_uid().map(Uid::of),
        created: pod.created,
        addresses: addresses.into(),
        host_network: pod.host_network,
        finished: pod.finished,
    }
}
