//! Where new flows to a destination go, and why: from the plan that is in force, and
//! from what the planner knows of the Service.

pub(super) mod lookup;
mod none;
mod places;
mod port;

use std::net::IpAddr;
use std::sync::Arc;

use tweed_component::explain::{Client, Destination, Step, Where, listed, protocol_name};
use tweed_core::family::Family;

use super::model::Model;
use super::model::frontends::frontends;
use super::model::spec::{Kind, Port, Spec};
use super::model::value::{Frontend, NodePort, ServiceName, Tracked};
use super::planner::ServicePlanner;
use super::table::desired::Desired;
use super::table::part::part;
use crate::addresses::within;

pub use lookup::{Origin, WithoutService};
pub use places::Places;

/// Maximum number of ports that an answer has, each family counted.
const MAX_PORTS: usize = 32;
/// Maximum number of endpoints that are listed for a port.
const ENDPOINTS_OF_A_PORT: usize = 16;
/// The same of the whole answer if all are wanted: as many as a message has room for.
const ALL_ENDPOINTS: usize = 600;
/// Maximum number of frontends that an answer has.
const MAX_FRONTENDS: usize = 64;
/// Maximum number of names in a list of them.
const MAX_NAMED: usize = 8;

/// What is known of a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The answer, without what the kernel holds.
    pub steps: Vec<Step>,
    /// The frontends that it is about.
    pub frontends: Vec<Tracked>,
    /// What the plan has of them.
    pub planned: Desired,
}

/// Which addresses of a question this machine has, those that its Node does not list among
/// them: a second network card's, a virtual address, that of the VXLAN device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OwnAddresses {
    /// Whether it has the destination's.
    pub destination: bool,
    /// Whether it has the client's.
    pub client: bool,
}

/// A question that cannot be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// Nothing was planned so far.
    #[error("Services are not known yet: not listed yet: {}", .0.join(", "))]
    NotPlanned(Vec<String>),
    /// There is no such Service, or it has no frontends.
    #[error(
        "no Service {0} with a cluster IP is known: it does not exist, or it is headless or of type ExternalName; those have no address to translate, clients connect to what DNS answers"
    )]
    UnknownService(String),
    /// The Service has no such port.
    #[error("Service {0} has no such port; it has {1}")]
    UnknownPort(String, String),
}

/// Who begins a flow, and by which address if that is known.
type Sender = (Origin, Option<IpAddr>);

/// An answer that is being made.
struct Answer<'a> {
    planner: &'a ServicePlanner,
    senders: Vec<Sender>,
    places: &'a Places<'a>,
    all: bool,
    /// How many more endpoints and frontends it has room for.
    endpoints_left: usize,
    frontends_left: usize,
    steps: Vec<Step>,
    notes: Vec<Step>,
    frontends: Vec<Tracked>,
}

impl ServicePlanner {
    /// Where new flows to a destination go. `places` name the nodes that endpoints are on.
    ///
    /// # Errors
    ///
    /// If nothing is planned yet, or there is no such Service.
    pub fn explain(
        &self,
        asked: &Where,
        own: OwnAddresses,
        places: &Places<'_>,
    ) -> Result<Explanation, ExplainError> {
        if !self.planned {
            return Err(ExplainError::NotPlanned(self.missing()));
        }
        let from = match asked.from {
            Some(Client::Address(address)) => format!(" from {address}"),
            _ => String::new(),
        };
        let (to, node) = (&asked.to, &self.model.options.node_name);
        let mut answer = Answer {
            planner: self,
            senders: self.senders(asked.from, own.client),
            places,
            all: asked.all,
            endpoints_left: ALL_ENDPOINTS,
            frontends_left: MAX_FRONTENDS,
            steps: vec![Step::new(format!("{to}{from}, as node {node} knows it"))],
            notes: Vec::new(),
            frontends: Vec::new(),
        };
        match to {
            Destination::Address(at, protocol) => {
                let key = Frontend {
                    address: at.ip().to_canonical(),
                    protocol: *protocol,
                    port: at.port(),
                };
                answer.address(key, own.destination);
            }
            Destination::NodePort(port, protocol) => answer.node_port(*protocol, *port),
            Destination::Service {
                namespace,
                name,
                port,
                protocol,
            } => {
                let name = ServiceName {
                    namespace: namespace.as_str().into(),
                    name: name.as_str().into(),
                };
                let wanted = |one: &Port| {
                    port.is_none_or(|port| one.port == port)
                        && protocol.is_none_or(|protocol| one.protocol == protocol)
                };
                answer.service(&name, wanted)?;
            }
        }
        answer.steps.append(&mut answer.notes);
        Ok(Explanation {
            planned: part(self.desired(), &answer.frontends),
            steps: answer.steps,
            frontends: answer.frontends,
        })
    }

    /// Whose flows are meant. `is_own`: whether this machine has the client's address.
    fn senders(&self, client: Option<Client>, is_own: bool) -> Vec<Sender> {
        match client {
            None => [Origin::Pod, Origin::Node, Origin::Outside]
                .map(|origin| (origin, None))
                .into(),
            Some(Client::Pod) => vec![(Origin::Pod, None)],
            Some(Client::Node) => vec![(Origin::Node, None)],
            Some(Client::Outside) => vec![(Origin::Outside, None)],
            Some(Client::Address(address)) => {
                let address = address.to_canonical();
                let surroundings = &self.model.surroundings;
                let listed = &surroundings.own.addresses;
                let is_own = is_own || address.is_loopback() || listed.contains(&address);
                let origin = if is_own {
                    Origin::Node
                } else if within(&surroundings.pod_networks, address) {
                    Origin::Pod
                } else {
                    Origin::Outside
                };
                vec![(origin, Some(address))]
            }
        }
    }

    /// The Service that has a frontend, and its port.
    fn owner(&self, at: Tracked) -> Option<(Arc<ServiceName>, Arc<Spec>, usize)> {
        let served = self.model.frontend(at)?;
        let (name, spec) = (&served.claimant.service, &served.port.spec);
        let has = |port: &Port| frontends(spec, at.family(), port).any(|(one, _)| one == at);
        let index = spec.ports.iter().position(has)?;
        Some((name.clone(), spec.clone(), index))
    }

    /// Whether this port of this Service has a frontend: another Service or, in a file of
    /// manifests, another port of the same one may have it.
    fn has(&self, name: &ServiceName, port: &Port, at: Tracked) -> bool {
        let owner = self.owner(at);
        owner.is_some_and(|(owner, spec, index)| {
            let own = spec.ports.get(index);
            let is_it = |own: &Port| {
                let key = |one: &Port| (one.protocol, one.port, one.node_port);
                own.name == port.name && key(own) == key(port)
            };
            *owner == *name && own.is_some_and(is_it)
        })
    }
}

impl<'a> Answer<'a> {
    fn model(&self) -> &'a Model {
        &self.planner.model
    }

    fn address(&mut self, key: Frontend, is_local: bool) {
        let own = &self.model().surroundings.own.addresses;
        let is_local = is_local || own.contains(&key.address);
        let found = lookup::frontend(self.model(), key, is_local);
        match found.and_then(|at| Some((at, self.planner.owner(at)?))) {
            Some((at, (name, spec, index))) => {
                self.facts(&name, &spec);
                self.port(&name, &spec, index, at.family(), Some(at));
            }
            None => {
                self.frontends.push(Tracked::Address(key));
                let step = self.no_service(key, is_local);
                self.steps.push(step);
            }
        }
    }

    fn node_port(&mut self, protocol: u8, port: u16) {
        let mut found = None;
        for family in Family::BOTH {
            let at = Tracked::NodePort(NodePort {
                family,
                protocol,
                port,
            });
            self.frontends.push(at);
            if let Some((name, spec, index)) = self.planner.owner(at) {
                if found.as_ref() != Some(&name) {
                    self.facts(&name, &spec);
                }
                self.port(&name, &spec, index, family, Some(at));
                found = Some(name);
            }
        }
        if found.is_some() {
            self.notes.push(self.where_node_ports_are());
        } else {
            self.steps.push(self.no_node_port(protocol, port));
        }
    }

    fn service(
        &mut self,
        name: &ServiceName,
        wanted: impl Fn(&Port) -> bool,
    ) -> Result<(), ExplainError> {
        let unknown = || ExplainError::UnknownService(full_name(name));
        let known = self.model().registry.get(name).ok_or_else(unknown)?;
        let spec = known.spec.clone().ok_or_else(unknown)?;
        self.facts(name, &spec);
        if spec.not_ours {
            self.steps.push(none::not_ours());
            return Ok(());
        }
        let ports = spec.ports.iter().enumerate();
        let asked = ports.filter(|(_, port)| wanted(port));
        let indices: Vec<usize> = asked.map(|(index, _)| index).collect();
        let families = spec.families();
        let each = families.flat_map(|family| indices.iter().map(move |index| (family, *index)));
        let all: Vec<_> = each.collect();
        if all.is_empty() {
            return Err(ExplainError::UnknownPort(full_name(name), ports_of(&spec)));
        }
        for (family, index) in all.iter().take(MAX_PORTS) {
            self.port(name, &spec, *index, *family, None);
        }
        self.more(0, all.len().saturating_sub(MAX_PORTS), "ports");
        let refused = self.model().reserved.refused(&spec);
        let notes = refused.map(|one| Step::note(none::not_served(name, &one)));
        self.notes.extend(notes.take(MAX_NAMED));
        if spec.ports.iter().any(|port| port.node_port != 0) {
            self.notes.push(self.where_node_ports_are());
        }
        Ok(())
    }

    /// Adds what of a Service decides.
    fn facts(&mut self, name: &ServiceName, spec: &Spec) {
        self.steps.push(facts(name, spec));
        if self.model().queue.has(name) {
            let what = format!("a change of {} waits for its turn", object(name));
            self.notes.push(Step::note(what));
        }
    }

    /// Says how many are left out, if there are.
    fn more(&mut self, depth: u8, count: usize, what: &str) {
        if count > 0 {
            let step = Step::new(format!("and {count} more {what}"));
            self.steps.push(step.depth(depth));
        }
    }
}

fn full_name(name: &ServiceName) -> String {
    format!("{}/{}", name.namespace, name.name)
}

/// A Service as the object of a step.
fn object(name: &ServiceName) -> String {
    format!("Service {}", full_name(name))
}

/// The ports of a Service in words.
fn ports_of(spec: &Spec) -> String {
    let text = |port: &Port| format!("{}/{}", port.port, protocol_name(port.protocol));
    listed(spec.ports.iter().map(text), MAX_NAMED)
}

/// What of a Service decides.
fn facts(name: &ServiceName, spec: &Spec) -> Step {
    let policy = |is_local| if is_local { "Local" } else { "Cluster" };
    let kind = match spec.kind {
        Kind::ClusterIp => "ClusterIP",
        Kind::NodePort => "NodePort",
        Kind::LoadBalancer => "LoadBalancer",
    };
    let mut facts = format!("internalTrafficPolicy {}", policy(spec.internal_local));
    if spec.kind != Kind::ClusterIp || spec.external_local {
        facts += &format!(", externalTrafficPolicy {}", policy(spec.external_local));
    }
    match spec.affinity {
        Some(seconds) => facts += &format!(", affinity by client address for {seconds} s"),
        None => facts += ", no session affinity",
    }
    if let Some(port) = spec.health_check {
        facts += &format!(", health checks at port {port}");
    }
    let step = Step::new(format!("type {kind}"));
    step.object(object(name)).because(facts)
}
