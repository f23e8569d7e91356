//! What Services are made of.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;

use tweed_core::object::endpoint_slice::EndpointSlice;
use tweed_core::object::service::Service;
use tweed_core::object::service_cidr::ServiceCidr;
use tweed_core::object::{Event, Object as _};
use tweed_core::problem::ProblemKind;
use tweed_planner::services::{Options, ServicePlanner};

use super::{Index, Input};

/// The planner of Services with its objects.
pub type ServiceIndex = Index<Collection>;

/// Objects that one source delivers for Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Collection {
    /// All Services.
    Services,
    /// All EndpointSlices.
    EndpointSlices,
    /// All ServiceCIDRs.
    ServiceCidrs,
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Services => Service::KINDS,
            Self::EndpointSlices => EndpointSlice::KINDS,
            Self::ServiceCidrs => ServiceCidr::KINDS,
        })
    }
}

impl super::Collection for Collection {
    type Planner = ServicePlanner;

    const NEEDED: &'static [Self] = &[Self::Services, Self::EndpointSlices, Self::ServiceCidrs];
    const FORBIDDEN: ProblemKind = ProblemKind::ServicesForbidden;
    const UNREADABLE: ProblemKind = ProblemKind::ServicesUnreadable;

    /// The API server has Services and EndpointSlices in every version.
    fn without(&self) -> &'static str {
        match self {
            Self::Services | Self::EndpointSlices => "",
            Self::ServiceCidrs => ", so packets to addresses that no Service has are not dropped",
        }
    }
}

impl Input<Collection> for Service {
    fn apply(planner: &mut ServicePlanner, _: &Collection, event: Event<Self>) -> bool {
        planner.apply_services(event)
    }
}

impl Input<Collection> for EndpointSlice {
    fn apply(planner: &mut ServicePlanner, _: &Collection, event: Event<Self>) -> bool {
        planner.apply_endpoint_slices(event)
    }
}

impl Input<Collection> for ServiceCidr {
    fn apply(planner: &mut ServicePlanner, _: &Collection, event: Event<Self>) -> bool {
        planner.apply_service_cidrs(event)
    }
}

impl ServiceIndex {
    /// The index before any event.
    pub fn new(options: Options) -> Self {
        Self::of(ServicePlanner::new(options))
    }

    /// Sets where the sources connect to. Says whether anything changed by it.
    pub fn set_api_servers(&mut self, servers: &BTreeSet<SocketAddr>) -> bool {
        let changed = self.planner.set_api_servers(servers);
        self.note(changed)
    }
}
