//! What is known of an end of a packet, for people.

use std::net::IpAddr;

use tweed_core::attachment::PodName;

use super::planner::PolicyPlanner;

/// What an address is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// A pod, or a container on this node that is no Kubernetes pod.
    Pod {
        /// Its name; none of a container.
        name: Option<PodName>,
        /// Whether it is of this node.
        local: bool,
    },
    /// An address of this Node.
    Node(String),
    /// Anything else, as far as this node needs to know.
    Unknown,
}

impl PolicyPlanner {
    /// The name of this Node.
    #[must_use]
    pub fn node_name(&self) -> &str {
        &self.index.node_name
    }

    /// Whether it is known which policies there are.
    #[must_use]
    pub fn knows_policies(&self) -> bool {
        self.index.missing_policies().is_empty()
    }

    /// What an address is.
    #[must_use]
    pub fn who(&self, address: IpAddr) -> Who {
        let index = &self.index;
        if let Some(pod) = index.local_pod(address) {
            let name = pod.map(|pod| pod.name.clone());
            return Who::Pod { name, local: true };
        }
        if let Some((name, _)) = index.nodes.at(address).next() {
            return Who::Node(name.to_owned());
        }
        match index.pods.name_at(address, &index.nodes) {
            Some((namespace, name)) => Who::Pod {
                name: Some(PodName {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                }),
                local: false,
            },
            None => Who::Unknown,
        }
    }
}
