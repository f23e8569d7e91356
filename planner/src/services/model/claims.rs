//! Which Service has a frontend, where several claim it: two may have the same external
//! IP, or a watch may tell of the new owner of a cluster IP before it tells that the old
//! one is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::value::{ServiceName, Tracked};

/// Maximum number of Services that are named for a frontend: anybody who may write Services
/// can make any number of them claim one.
const MAX_NAMED: usize = 8;

/// Why a Service has a frontend; the first wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// It is a cluster IP: nobody may take that.
    ClusterIp,
    /// It is an address of a load balancer.
    LoadBalancer,
    /// It is an external IP, which a user can choose.
    ExternalIp,
    /// It is a node port.
    NodePort,
}

/// A Service's claim to a frontend. The first by class, then by age, then by name has
/// it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claimant {
    /// Why.
    pub class: Class,
    /// When the Service was created.
    pub created: Option<i64>,
    /// The Service.
    pub service: Arc<ServiceName>,
}

/// A frontend that several Services claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The frontend.
    pub frontend: Tracked,
    /// The first of the Services, the one that has it before the others.
    pub services: Vec<Arc<ServiceName>>,
    /// Whether there are more of them.
    pub more: bool,
}

/// All claims.
#[derive(Debug, Default)]
pub struct Claims {
    all: BTreeMap<(Tracked, Claimant), usize>,
    /// The frontends that several Services claim.
    several: BTreeSet<Tracked>,
}

/// Less than every other claimant, where a range of claims begins.
fn lowest() -> Claimant {
    Claimant {
        class: Class::ClusterIp,
        created: None,
        service: Arc::new(ServiceName {
            namespace: "".into(),
            name: "".into(),
        }),
    }
}

impl Claims {
    /// Sets a claim to what one of the claimant's ports leads to, by its place in
    /// [`Service::ports`](super::service::Service::ports), or takes it back.
    pub fn set(&mut self, frontend: Tracked, claimant: Claimant, port: Option<usize>) {
        let key = (frontend, claimant);
        let old = match port {
            Some(port) => self.all.insert(key, port),
            None => self.all.remove(&key),
        };
        if old.is_some() == port.is_some() {
            return;
        }
        // A Service has one claim of each class at most, so this soon ends, however many
        // Services there are.
        let are_several = {
            let mut services = self.of(frontend).map(|(claimant, _)| &claimant.service);
            let first = services.next();
            services.any(|service| Some(service) != first)
        };
        if are_several {
            self.several.insert(frontend)
        } else {
            self.several.remove(&frontend)
        };
    }

    /// What a claim leads to.
    pub fn get(&self, claim: &(Tracked, Claimant)) -> Option<usize> {
        self.all.get(claim).copied()
    }

    /// The claims to a frontend; the first has it.
    fn of(&self, frontend: Tracked) -> impl Iterator<Item = (&Claimant, usize)> {
        let claims = self.all.range((frontend, lowest())..);
        claims
            .take_while(move |((one, _), _)| *one == frontend)
            .map(|((_, claimant), port)| (claimant, *port))
    }

    /// Who has a frontend, and the port that it leads to.
    pub fn first(&self, frontend: Tracked) -> Option<(&Claimant, usize)> {
        self.of(frontend).next()
    }

    /// The frontends that several Services claim. It costs nothing of the number of the
    /// others, nor of that of the Services: it is asked for each second.
    pub fn conflicts(&self) -> impl Iterator<Item = Conflict> {
        self.several.iter().map(|frontend| {
            let mut services: Vec<Arc<ServiceName>> = Vec::new();
            let mut more = false;
            for (claimant, _) in self.of(*frontend) {
                if services.contains(&claimant.service) {
                    continue;
                }
                more = services.len() == MAX_NAMED;
                if more {
                    break;
                }
                services.push(claimant.service.clone());
            }
            Conflict {
                frontend: *frontend,
                services,
                more,
            }
        })
    }
}
