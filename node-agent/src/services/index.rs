//! What the sources have said of Services, as far as the planner has taken it in, and
//! which of the sources can be read.

use std::collections::BTreeSet;
use std::mem;
use std::net::SocketAddr;

use tweed_core::object::endpoint_slice::EndpointSlice;
use tweed_core::object::service::Service;
use tweed_core::object::service_cidr::ServiceCidr;
use tweed_core::object::{Event, Loss, Object as _};
use tweed_core::problem::{Problem, ProblemKind};
use tweed_planner::services::{Options, ServicePlanner};
use tweed_watch::Kind;

use crate::serve::services::sync::CountedObject;
use crate::sources::state::SourceState;

/// The planner of Services with the objects that it knows, and the state of their
/// sources.
#[derive(Debug)]
pub struct ServiceIndex {
    /// Holds the objects, in the form that it needs.
    pub planner: ServicePlanner,
    sources: Sources,
    /// Whether anything has changed since [`ServiceIndex::take_changed`].
    changed: bool,
}

#[derive(Debug, Default)]
struct Sources {
    services: SourceState,
    endpoint_slices: SourceState,
    service_cidrs: SourceState,
}

impl Sources {
    /// Each with the kind of its objects, in the plural.
    fn each(&self) -> [(&'static str, &SourceState); 3] {
        [
            (Service::KINDS, &self.services),
            (EndpointSlice::KINDS, &self.endpoint_slices),
            (ServiceCidr::KINDS, &self.service_cidrs),
        ]
    }
}

/// A kind of objects that the planner of Services takes in.
pub trait ServiceObject: Kind + CountedObject {
    /// Gives the index an event, and says whether it changed the source or the objects.
    fn apply(index: &mut ServiceIndex, event: Event<Self>) -> bool;
}

impl ServiceObject for Service {
    fn apply(index: &mut ServiceIndex, event: Event<Self>) -> bool {
        index.sources.services.apply(&event) | index.planner.apply_services(event)
    }
}

impl ServiceObject for EndpointSlice {
    fn apply(index: &mut ServiceIndex, event: Event<Self>) -> bool {
        index.sources.endpoint_slices.apply(&event) | index.planner.apply_endpoint_slices(event)
    }
}

impl ServiceObject for ServiceCidr {
    fn apply(index: &mut ServiceIndex, event: Event<Self>) -> bool {
        index.sources.service_cidrs.apply(&event) | index.planner.apply_service_cidrs(event)
    }
}

impl ServiceIndex {
    /// The index before any event.
    pub fn new(options: Options) -> Self {
        Self {
            planner: ServicePlanner::new(options),
            sources: Sources::default(),
            changed: true,
        }
    }

    /// Takes in an event. Says whether anything changed by it: the objects, or the state
    /// of the source.
    pub fn apply<K: ServiceObject>(&mut self, event: Event<K>) -> bool {
        let changed = K::apply(self, event);
        self.changed |= changed;
        changed
    }

    /// Sets where the sources connect to. Says whether anything changed by it.
    pub fn set_api_servers(&mut self, servers: &BTreeSet<SocketAddr>) -> bool {
        let changed = self.planner.set_api_servers(servers);
        self.changed |= changed;
        changed
    }

    /// Whether every source has listed its objects or said that it cannot.
    pub fn has_reported(&self) -> bool {
        let mut sources = self.sources.each().into_iter();
        sources.all(|(_, source)| source.has_reported())
    }

    /// Whether any source cannot be read: then a list that is missing may never come.
    pub fn any_lost(&self) -> bool {
        let mut sources = self.sources.each().into_iter();
        sources.any(|(_, source)| source.lost.is_some())
    }

    /// Whether anything has changed since [`ServiceIndex::take_changed`].
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Whether anything has changed since this was last called.
    pub fn take_changed(&mut self) -> bool {
        mem::take(&mut self.changed)
    }

    /// A problem for each source that cannot be read.
    pub fn unreadable(&self) -> impl Iterator<Item = Problem> {
        self.sources
            .each()
            .into_iter()
            .filter_map(|(kinds, source)| {
                let Loss { reason, forbidden } = source.lost.as_ref()?;
                let kind = match forbidden {
                    true => ProblemKind::ServicesForbidden,
                    false => ProblemKind::ServicesUnreadable,
                };
                let text = format!("the {kinds} cannot be read: {reason}");
                Some(Problem::new(kind, kinds, text))
            })
    }

    /// Why there are no objects of a kind, and what follows from it. The API server has
    /// Services and EndpointSlices in every version.
    pub fn absent(&self) -> impl Iterator<Item = String> {
        let cidrs = self.sources.service_cidrs.absence(ServiceCidr::KINDS);
        cidrs.into_iter().map(|absence| {
            format!("{absence}, so packets to addresses that no Service has are not dropped")
        })
    }
}

#[cfg(test)]
mod tests;
