//! The reconciler of the table `inet tweed`.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;
use std::{collections::BTreeSet, mem, net::IpAddr, sync::Arc};

use tokio_util::sync::CancellationToken;
use tweed_core::family::Family;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_core::{keyed, version::Version};
use tweed_netlink::nf::Membership;
use tweed_nft::inet_tweed::{Components, Dropped, Refused, Wanted};
use tweed_nft::{Error, Outcome as Written, Table};
use tweed_planner::overlay::desired::Ruleset;
use tweed_planner::overlay::{Network, OverlayPlanner};
use tweed_planner::services::KnownNumbers;
use tweed_planner::services::desired::{Endpoint, Number};

use super::earlier::{EarlierWait, Waiting};
use super::outcome::{ObjectKind, Outcome};
use super::target::{Change, PolicyTarget, ServiceTarget, Target};
use crate::config::{Config, PolicyLog};

/// What to do if a table with rules of policy is refused.
const POLICY_REFUSED: &str = "mend what it names; if this kernel or nft takes the table only \
    without the rules of policy, set --policy to off, which leaves everything open; the agent \
    tries again by itself, and until then no policy comes into force and no new pod is served";

/// What to do if a table with rules of Services is refused.
const SERVICES_REFUSED: &str = "mend what it names; if this kernel or nft takes the table only \
    without the rules of Services, set --services to off and let kube-proxy serve them; the agent \
    tries again by itself";

/// What the table is to hold of all components.
#[derive(Debug, Clone, Copy)]
pub struct Targets<'a> {
    /// Of policies.
    pub policy: PolicyTarget<'a>,
    /// Of Services.
    pub services: ServiceTarget<'a>,
}

/// Of which components the sets held what was planned, when last nothing failed.
#[derive(Debug, Clone, Copy, Default)]
struct Agreed {
    policy: bool,
    services: bool,
}

/// Keeps the table as planned.
pub struct NftReconciler {
    config: Arc<Config>,
    /// Cancelled when the agent is to end: a program `nft` that hangs is then
    /// not waited for.
    stop: CancellationToken,
    /// None until it could be opened.
    table: Option<Table>,
    /// Version of the plan that the table agreed with when last nothing failed.
    agreed: Option<Version>,
    /// The links of pods that it agreed with then.
    pod_links: PodLinks,
    /// Whether its sets of components held what was planned then.
    agreed_components: Agreed,
    /// The plan that rules of another version keep from coming into force.
    wait: EarlierWait,
}

/// The addresses of local pods, each with the index of its link.
pub type PodLinks = BTreeSet<(IpAddr, u32)>;

impl NftReconciler {
    /// Opens nothing yet.
    pub fn new(config: &Arc<Config>, stop: CancellationToken) -> Self {
        Self {
            config: Arc::clone(config),
            stop,
            table: None,
            agreed: None,
            pod_links: PodLinks::new(),
            agreed_components: Agreed::default(),
            wait: EarlierWait::default(),
        }
    }

    /// Readable when there are notifications; none before the table is open.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.table.as_ref().map(AsFd::as_fd)
    }

    /// Reads the notifications that have come, and says whether there is
    /// anything to reconcile.
    pub fn has_changes(&mut self) -> bool {
        let changed = |table: &mut Table| table.drain_notifications().unwrap_or(true);
        self.table.as_mut().is_some_and(changed)
    }

    /// Has what else listens to nf_tables pause during large changes.
    pub fn pause_with(&mut self, other: Option<Membership>) {
        if let Some(table) = &mut self.table {
            table.pause_with(other);
        }
    }

    /// Whether this kernel has nftables and the table was opened.
    pub fn is_open(&self) -> bool {
        self.table.is_some()
    }

    /// How many packets policies have dropped since the table was made, where that is
    /// known.
    pub fn dropped(&mut self) -> Option<Dropped> {
        // A kernel that cannot be asked is a problem of the next resync.
        self.table.as_mut()?.dropped().ok()?
    }

    /// How many packets the rules of Services have dropped since the table was made, where
    /// that is known.
    pub fn refused(&mut self) -> Option<Refused> {
        self.table.as_mut()?.refused().ok()?
    }

    /// Whether the kernel's table has rules of policies, be it from an earlier run. If it
    /// cannot be asked, it is taken for one that has.
    pub fn has_policies(&mut self) -> bool {
        let asked = self.open().and_then(Table::dropped);
        asked.map_or(true, |dropped| dropped.is_some())
    }

    /// Whether the kernel's table has rules of Services, be it from an earlier run.
    pub fn has_services(&mut self) -> Result<bool, Error> {
        Ok(self.open()?.refused()?.is_some())
    }

    /// What the numbers of Services mean that the table has from an earlier run.
    pub fn service_numbers(&mut self) -> Result<KnownNumbers, Error> {
        self.open()?.service_numbers()
    }

    /// Which endpoints a group of Services has in the table, from an earlier run too.
    pub fn service_endpoints(
        &mut self,
        family: Family,
        group: Number,
    ) -> Result<BTreeSet<Endpoint>, Error> {
        self.open()?.service_endpoints(family, group)
    }

    /// Whether the kernel's table has a pod CIDR of this node. If it cannot be asked, it is
    /// taken for one that has.
    pub fn has_local_cidrs(&mut self) -> bool {
        let asked = self.open().and_then(Table::has_local_cidrs);
        asked.unwrap_or_else(|error| {
            tracing::debug!(%error, "the table cannot be asked for pod CIDRs");
            true
        })
    }

    /// Makes the table as `network`, the planner's last, the local pods and `targets` say.
    /// Without a network it has nothing of the overlay. With `resync` the table is read even
    /// if no change of it is known.
    pub fn reconcile(
        &mut self,
        planner: &OverlayPlanner,
        network: Option<&Network>,
        pod_links: &PodLinks,
        targets: Targets<'_>,
        resync: bool,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let agreed = self.agreed.take();
        let agreed_components = mem::take(&mut self.agreed_components);
        let sides = agreed.filter(|_| !resync).and_then(|version| {
            let (mut removed, mut added) = sides(planner, version)?;
            removed.pod_links = &self.pod_links - pod_links;
            added.pod_links = pod_links - &self.pod_links;
            Some((removed, added))
        });
        let (followed, repaired) = self.follow(targets, agreed_components);
        let sides = sides.filter(|_| followed);
        match self.write(network, pod_links, targets, sides, resync) {
            Ok(more) if self.keeps_earlier() => {
                self.agreed_components = self.known();
                outcome.wrote(ObjectKind::Nftables, (repaired + more) as u64);
                let waiting = self.waiting(targets);
                outcome
                    .problems
                    .extend(self.wait.report(waiting, Instant::now()));
            }
            Ok(more) => {
                self.wait = EarlierWait::default();
                self.agreed = network.map(|_| planner.version());
                self.agreed_components = Agreed {
                    policy: true,
                    services: true,
                };
                self.pod_links.clone_from(pod_links);
                outcome.wrote(ObjectKind::Nftables, (repaired + more) as u64);
            }
            Err(error) => {
                self.agreed_components = self.known();
                outcome.fail(problem(&error, targets));
            }
        }
        outcome
    }

    /// Of which components the sets hold what was last desired.
    fn known(&self) -> Agreed {
        let table = self.table.as_ref();
        Agreed {
            policy: table.is_some_and(Table::knows_policy),
            services: table.is_some_and(Table::knows_services),
        }
    }

    /// Whether the rules of another version are in force: [`Table::keeps_earlier`].
    pub fn keeps_earlier(&self) -> bool {
        self.table.as_ref().is_some_and(Table::keeps_earlier)
    }

    /// Which component is planned, while rules of another version keep its plan from coming
    /// into force because the other one is not known.
    fn waiting(&self, targets: Targets<'_>) -> Option<Waiting> {
        let known = self.agreed_components;
        match targets {
            Targets {
                policy: Target::Planned { .. },
                ..
            } if !known.policy => Some(Waiting::Policies),
            Targets {
                services: Target::Planned { .. },
                ..
            } if !known.services => Some(Waiting::Services),
            _ => None,
        }
    }

    /// Makes only the sets of policy follow the last step of its plan, if they held what
    /// was planned before. Whether they now do; if not, the next
    /// [`Self::reconcile`] looks at all of them.
    pub fn follow_policy(&mut self, policy: PolicyTarget<'_>) -> bool {
        let agreed = mem::take(&mut self.agreed_components.policy);
        let followed = self.write_policy(policy, agreed);
        self.agreed_components.policy = now_agrees(followed, "policies are").0;
        self.agreed_components.policy
    }

    /// The same for Services.
    pub fn follow_services(&mut self, services: ServiceTarget<'_>) -> bool {
        let agreed = mem::take(&mut self.agreed_components.services);
        let followed = self.write_services(services, agreed);
        self.agreed_components.services = now_agrees(followed, "Services are").0;
        self.agreed_components.services
    }

    /// Whether the sets of policy held what was planned when they were last written.
    pub fn agrees_with_policy(&self) -> bool {
        self.agreed_components.policy
    }

    /// The same for Services.
    pub fn agrees_with_services(&self) -> bool {
        self.agreed_components.services
    }

    /// Makes the sets of all components follow the last steps of their plans, where
    /// `agreed` says that they held what was planned before. Says whether all now do, and
    /// how many objects were put back; if not, the whole table has to be looked at.
    fn follow(&mut self, targets: Targets<'_>, agreed: Agreed) -> (bool, usize) {
        let policy = self.write_policy(targets.policy, agreed.policy);
        let (policy, repaired) = now_agrees(policy, "policies are");
        let services = self.write_services(targets.services, agreed.services);
        let (services, more) = now_agrees(services, "Services are");
        (policy && services, repaired + more)
    }

    fn write_policy(
        &mut self,
        policy: PolicyTarget<'_>,
        agreed: bool,
    ) -> Result<(bool, usize), Error> {
        let (follow, forget) = (Table::follow_policy, Table::forget_policy);
        self.write_component(policy, agreed, follow, forget)
    }

    fn write_services(
        &mut self,
        services: ServiceTarget<'_>,
        agreed: bool,
    ) -> Result<(bool, usize), Error> {
        let (follow, forget) = (Table::follow_services, Table::forget_services);
        self.write_component(services, agreed, follow, forget)
    }

    /// Makes the sets of one component follow. `follow` writes a change, and says nothing
    /// if the table has to be looked at; `forget` has that done.
    fn write_component<D, C>(
        &mut self,
        target: Target<'_, D, C>,
        agreed: bool,
        follow: impl FnOnce(&mut Table, &C) -> Result<Option<Written>, Error>,
        forget: impl FnOnce(&mut Table),
    ) -> Result<(bool, usize), Error> {
        let Target::Planned { change, .. } = target else {
            return Ok((agreed, 0));
        };
        let table = self.open()?;
        match change {
            Change::None if agreed => return Ok((true, 0)),
            Change::Delta(delta) if agreed => {
                if let Some(written) = follow(table, delta)? {
                    return Ok((true, written.repaired));
                }
            }
            _ => {}
        }
        forget(table);
        Ok((false, 0))
    }

    /// Gives the number of objects that were put back. `sides` is what the sets are
    /// known to differ by from what they were left with: elements to remove, and to
    /// add.
    fn write(
        &mut self,
        network: Option<&Network>,
        pod_links: &PodLinks,
        targets: Targets<'_>,
        sides: Option<(Ruleset, Ruleset)>,
        resync: bool,
    ) -> Result<usize, Error> {
        let log = self.config.policy_log == PolicyLog::On;
        let table = self.open()?;
        if let Some((removed, added)) = sides {
            let nothing = Ruleset::default();
            if removed == nothing && added == nothing && !table.drain_notifications()? {
                return Ok(0);
            }
            if let Some(outcome) = table.follow(&removed, &added)? {
                return Ok(outcome.repaired);
            }
        }
        let of_network = network.map(|network| network.desired.ruleset.clone());
        let ruleset = Ruleset {
            pod_links: pod_links.clone(),
            ..of_network.unwrap_or_default()
        };
        let components = Components {
            policy: wanted(targets.policy),
            log,
            services: wanted(targets.services),
        };
        Ok(table.reconcile_all(&ruleset, &components, resync)?.repaired)
    }

    fn open(&mut self) -> Result<&mut Table, Error> {
        match &mut self.table {
            Some(table) => Ok(table),
            empty => {
                let table = Table::open(&self.config.run_dir, &self.config.nft)?;
                Ok(empty.insert(table.stopped_by(self.stop.clone())))
            }
        }
    }
}

/// Whether a component's sets agree with its plan after they were to follow it, and how
/// many objects were put back.
fn now_agrees(followed: Result<(bool, usize), Error>, what: &str) -> (bool, usize) {
    followed.unwrap_or_else(|error| {
        // What lasts is a problem of the reconcile that looks at the whole table.
        tracing::debug!(%error, "{what} written by the next look at the whole table");
        (false, 0)
    })
}

fn wanted<'a, D, C>(target: Target<'a, D, C>) -> Wanted<&'a D> {
    match target {
        Target::Off => Wanted::No,
        Target::Kept => Wanted::AsItIs,
        Target::Planned { desired, .. } => Wanted::As(desired),
    }
}

/// The table could not be read or written.
fn problem(error: &Error, targets: Targets<'_>) -> Problem {
    let problem = Problem::new(ProblemKind::Nftables, "inet tweed", error.to_string());
    if !error.is_of_nft() {
        return problem;
    }
    let (policy, services) = (targets.policy, targets.services);
    match matches!(policy, Target::Planned { desired, .. } if desired.active) {
        true => problem.with_cure(POLICY_REFUSED),
        false if matches!(services, Target::Planned { .. }) => problem.with_cure(SERVICES_REFUSED),
        false => problem,
    }
}

/// What the plan of now removes from the sets since `agreed`, and what it adds,
/// where that is known.
fn sides(planner: &OverlayPlanner, agreed: Version) -> Option<(Ruleset, Ruleset)> {
    if agreed == planner.version() {
        return Some((Ruleset::default(), Ruleset::default()));
    }
    let delta = planner.delta_since(agreed)?;
    let side = |added: bool| Ruleset {
        cluster_cidrs: keys(&delta.cluster_cidrs, added),
        node_addresses: keys(&delta.node_addresses, added),
        underlay_addresses: keys(&delta.underlay_addresses, added),
        vxlan_sources: keys(&delta.vxlan_sources, added),
        ..Ruleset::default()
    };
    Some((side(false), side(true)))
}

fn keys<K: Ord + Copy>(delta: &keyed::Delta<K, ()>, added: bool) -> BTreeSet<K> {
    let entries = if added { &delta.added } else { &delta.removed };
    entries.keys().copied().collect()
}
