//! Which Service has a frontend, where several claim it: two may have the same external
//! IP, or a watch may tell of the new owner of a cluster IP before it tells that the old
//! one is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::desired::{
    Endpoint, Frontend, Masquerade, NodePort, Number, ServiceName, Target, Tracked,
};
use super::tables::{Tables, put};

/// Maximum number of Services that are named for a frontend: anybody who may write Services
/// can make any number of them claim one.
const MAX_NAMED: usize = 8;

/// Why a Service has a frontend; the first wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claimant {
    /// Why.
    pub class: Class,
    /// When the Service was created.
    pub created: Option<i64>,
    /// The Service.
    pub service: Arc<ServiceName>,
}

/// What a frontend is if a claim to it wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Where it leads to.
    pub target: Target,
    /// Where it leads to from outside, if that is another target.
    pub outside: Option<Target>,
    /// Which flows are masqueraded, if that is not as for cluster IPs.
    pub masquerade: Option<Masquerade>,
    /// Who may use it.
    pub limit: Option<Number>,
    /// The serving endpoints, if conntrack is to be kept clean of others.
    pub tracked: Option<Arc<BTreeSet<Endpoint>>>,
}

/// A frontend that several Services claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contest {
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
    all: BTreeMap<(Tracked, Claimant), Claim>,
    /// The frontends that several Services claim.
    contested: BTreeSet<Tracked>,
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
    /// Sets a claim, or takes it back.
    pub fn set(
        &mut self,
        tables: &mut Tables,
        frontend: Tracked,
        claimant: Claimant,
        claim: Option<Claim>,
    ) {
        let key = (frontend, claimant);
        match claim {
            Some(claim) if self.all.get(&key) == Some(&claim) => return,
            Some(claim) => self.all.insert(key, claim),
            None => self.all.remove(&key),
        };
        let is_contested = {
            let mut claims = self.of(frontend);
            let first = claims.next();
            write(tables, frontend, first.map(|(_, claim)| claim));
            // A Service has one claim of each class at most, so this soon ends, however many
            // Services there are.
            first.is_some_and(|(first, _)| {
                claims.any(|(claimant, _)| claimant.service != first.service)
            })
        };
        match is_contested {
            true => self.contested.insert(frontend),
            false => self.contested.remove(&frontend),
        };
    }

    /// The claims to a frontend; the first has it.
    fn of(&self, frontend: Tracked) -> impl Iterator<Item = (&Claimant, &Claim)> {
        let claims = self.all.range((frontend, lowest())..);
        claims
            .take_while(move |((one, _), _)| *one == frontend)
            .map(|((_, claimant), claim)| (claimant, claim))
    }

    /// Who has a frontend.
    pub fn owner(&self, frontend: Tracked) -> Option<&Claimant> {
        self.of(frontend).next().map(|(claimant, _)| claimant)
    }

    /// The frontends that several Services claim. It costs nothing of the number of the
    /// others, nor of that of the Services: it is asked for each second.
    pub fn contested(&self) -> impl Iterator<Item = Contest> {
        self.contested.iter().map(|frontend| {
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
            Contest {
                frontend: *frontend,
                services,
                more,
            }
        })
    }
}

/// Makes the tables hold what a frontend is, or nothing.
fn write(tables: &mut Tables, frontend: Tracked, claim: Option<&Claim>) {
    let tracked = claim.and_then(|claim| claim.tracked.clone());
    put!(tables, tracked, frontend, tracked);
    match frontend {
        Tracked::Address(key) => write_address(tables, key, claim),
        Tracked::NodePort(key) => write_node_port(tables, key, claim),
    }
}

fn write_address(tables: &mut Tables, key: Frontend, claim: Option<&Claim>) {
    put!(tables, addresses.targets, key, claim.map(|one| one.target));
    put!(
        tables,
        addresses.outside,
        key,
        claim.and_then(|one| one.outside)
    );
    put!(
        tables,
        addresses.masquerade,
        key,
        claim.and_then(|one| one.masquerade)
    );
    put!(tables, limits, key, claim.and_then(|one| one.limit));
}

fn write_node_port(tables: &mut Tables, key: NodePort, claim: Option<&Claim>) {
    put!(tables, node_ports.targets, key, claim.map(|one| one.target));
    put!(
        tables,
        node_ports.outside,
        key,
        claim.and_then(|one| one.outside)
    );
    put!(
        tables,
        node_ports.masquerade,
        key,
        claim.and_then(|one| one.masquerade)
    );
}
