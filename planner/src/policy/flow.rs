//! What the policies say of a flow, as this node knows its ends.

use std::collections::BTreeSet;
use std::net::IpAddr;

use tweed_component::explain::End;
use tweed_core::attachment::PodName;
use tweed_core::object::ObjectKey;

use super::evaluate::{
    Decision, Evaluation, Explanation, Packet, Party, PodParty, Policies, Verdict, evaluate,
};
use super::model::end_addresses::EndAddresses;
use super::model::index::Index;
use super::model::local::{Known, LocalPod};
use super::model::pods::Entry;
use super::planner::PolicyPlanner;
use super::verdicts::{DIRECTIONS, Direction};

/// A question that cannot be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// Not every list of policies has come.
    #[error("it is not known yet whether there are policies")]
    NotListed,
    /// There are policies and none is planned yet, as after a restart while a list is missing:
    /// what the kernel has then is of the run before, of which nothing is known.
    #[error("{0}")]
    NotPlanned(String),
    /// The pod is not known here.
    #[error("pod {0} is not known on this node: it may not exist, or no policy here needs it")]
    UnknownPod(End),
    /// There is no such Node.
    #[error("no Node {0} is known")]
    UnknownNode(String),
    /// The end has no address.
    #[error("{0} has no address yet")]
    NoAddress(End),
    /// What the pod's status says is not believed.
    #[error(
        "pod {pod} has no address that counts: {address} is not in the pod CIDRs of its node \
         {node:?}, as far as they are accepted, or a younger pod has it"
    )]
    NotItsAddress {
        /// The pod.
        pod: End,
        /// The first address in its status.
        address: IpAddr,
        /// `spec.nodeName`.
        node: String,
    },
    /// The pod has succeeded or failed: its address may be another pod's.
    #[error("pod {0} has ended: no policy sees it any more")]
    Ended(End),
    /// One end has IPv4 only and the other one IPv6 only.
    #[error("the ends have no address family in common")]
    NoCommonFamily,
}

impl PolicyPlanner {
    /// What the policies say of a packet at both ends, as far as this node knows the
    /// pods.
    #[must_use]
    pub fn evaluate(&self, from: IpAddr, to: IpAddr, protocol: u8, port: u16) -> Explanation {
        let index = &self.index;
        let packet = Packet {
            from: index.party(from),
            to: index.party(to),
            protocol,
            port,
        };
        let network = index.network_policies();
        let cluster = index.cluster_policies.objects().values();
        let policies = Policies {
            network: network.collect(),
            cluster: cluster.collect(),
            refused: self.model.refused(),
        };
        let at = |address, direction| match index.fixed(address, from, direction) {
            Some(evaluation) => evaluation,
            None => evaluate(&policies, &packet, direction),
        };
        Explanation {
            egress: at(from, Direction::Out),
            ingress: at(to, Direction::In),
        }
    }

    /// What is not known of the pod of a local address, so that it is isolated: a
    /// sentence. None if its policies can be enforced, or if no pod has the address.
    #[must_use]
    pub fn not_known(&self, address: IpAddr) -> Option<String> {
        let index = &self.index;
        let LocalPod { name, .. } = index.local_pod(address)??;
        let PodName { namespace, name } = name;
        let has_namespace = || {
            let namespaces = index.namespaces.objects();
            namespaces.contains_key(&ObjectKey::from(namespace.as_str()))
        };
        match index.known(address) {
            Known::Open => None,
            Known::Pod { .. } if self.desired().verdicts.enforced.contains(&address) => None,
            Known::Pod { .. } => {
                let both = DIRECTIONS.map(|direction| self.waiting_texts(address, direction));
                let of_policies: BTreeSet<String> = both.into_iter().flatten().collect();
                let mut texts: Vec<String> = of_policies.into_iter().collect();
                let queued = self.model.queue.changed();
                if texts.is_empty() && queued > 0 {
                    texts.push(format!("{queued} changed policies wait for their turn"));
                }
                (!texts.is_empty()).then(|| texts.join(", "))
            }
            Known::NotYet if has_namespace() => {
                Some(format!("Pod {namespace}/{name} is not known yet"))
            }
            Known::NotYet => Some(format!(
                "Namespace {namespace} of Pod {namespace}/{name} is not known yet"
            )),
        }
    }
}

impl Index {
    /// What is decided without policies.
    fn fixed(&self, address: IpAddr, source: IpAddr, direction: Direction) -> Option<Evaluation> {
        let local = self.local.as_ref()?;
        if !self.any_policy() || !local.pods.contains_key(&address) {
            return None;
        }
        let mut from = self.nodes.at(source);
        let own = local.own.contains(&source) || from.any(|(name, _)| name == self.node_name);
        if direction == Direction::In && own {
            let verdict = Verdict::Allowed;
            return Some(Evaluation::without_policies(verdict, Decision::OwnNode));
        }
        let unknown = self.known(address) == Known::NotYet;
        unknown.then(|| Evaluation::without_policies(Verdict::Denied, Decision::NotYetKnown))
    }

    /// The addresses of an end.
    pub(super) fn addresses(&self, end: &End) -> Result<Vec<IpAddr>, ExplainError> {
        let (namespace, name) = match end {
            End::Address(address) => return Ok(vec![*address]),
            End::Node(name) => {
                let known = self.nodes.of_name(name);
                let of_node = known.ok_or_else(|| ExplainError::UnknownNode(name.clone()))?;
                return if of_node.is_empty() {
                    Err(ExplainError::NoAddress(end.clone()))
                } else {
                    Ok(of_node.iter().copied().collect())
                };
            }
            End::Pod { namespace, name } => (namespace, name),
        };
        let is_it = |pod: &LocalPod| pod.name.namespace == *namespace && pod.name.name == *name;
        let local = self.local.iter().flat_map(|local| &local.pods);
        let named = local.filter(|(_, pod)| pod.as_ref().is_some_and(is_it));
        let recorded: Vec<IpAddr> = named.map(|(address, _)| *address).collect();
        if !recorded.is_empty() {
            return Ok(recorded);
        }
        let listed = self.pods.get(namespace, name);
        let pod = listed.ok_or_else(|| ExplainError::UnknownPod(end.clone()))?;
        if pod.finished {
            return Err(ExplainError::Ended(end.clone()));
        }
        let has = |address: &&IpAddr| {
            let other = self.pods.at(**address, &self.nodes);
            pod.host_network || other.is_some_and(|other| std::ptr::eq(other, pod))
        };
        let counting: Vec<IpAddr> = pod.addresses.iter().filter(has).copied().collect();
        match pod.addresses.first() {
            None => Err(ExplainError::NoAddress(end.clone())),
            Some(address) if counting.is_empty() => Err(ExplainError::NotItsAddress {
                pod: end.clone(),
                address: *address,
                node: pod.node.to_string(),
            }),
            Some(_) => Ok(counting),
        }
    }

    /// What an address is.
    fn party(&self, address: IpAddr) -> Party {
        let mut party = Party {
            addresses: EndAddresses {
                address,
                aliases: Vec::new(),
            },
            pod: self.pod_at(address),
            nodes: Vec::new(),
        };
        for (_, node) in self.nodes.at(address) {
            party.nodes.push(node.labels.clone());
            party.addresses.aliases.extend(node.aliases(address));
        }
        party
    }

    fn pod_at(&self, address: IpAddr) -> Option<PodParty> {
        if let Some(local) = self.local_pod(address) {
            let local = local?;
            let pod = self.entry_of(local)?;
            return (!pod.host_network).then(|| self.pod_party(&local.name.name, pod));
        }
        let (_, name) = self.pods.name_at(address, &self.nodes)?;
        Some(self.pod_party(name, self.pods.at(address, &self.nodes)?))
    }

    fn pod_party(&self, name: &str, pod: &Entry) -> PodParty {
        PodParty {
            namespace: pod.kind.namespace.to_string(),
            name: name.to_owned(),
            labels: pod.kind.labels.to_labels(),
            namespace_labels: self.labels_of(&pod.kind.namespace),
            ports: pod.kind.ports.to_vec(),
        }
    }
}
