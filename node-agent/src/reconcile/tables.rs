//! The tables of all components in the kernel: `inet tweed`, `inet tweed-policy` and
//! `inet tweed-services`. Each is written by itself, so what is refused of one holds no other
//! one back. That a component is off means that its table is deleted.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tweed_component::Step;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_core::{keyed, version::Version};
use tweed_netlink::nf::Membership;
use tweed_nft::overlay::OverlayTable;
use tweed_nft::policy::{Dropped, PolicyTable};
use tweed_nft::services::{Refused, ServicesTable};
use tweed_nft::{Connection, Error, Joint, Table};
use tweed_planner::overlay::desired::Ruleset;
use tweed_planner::overlay::{Network, OverlayPlanner};
use tweed_planner::policy::Desired as PolicyDesired;
use tweed_planner::services::desired::Desired as ServicesDesired;

use super::outcome::{ObjectKind, Outcome};
use crate::config::{Config, PolicyLog};

/// What to do if the table of policies is refused.
const POLICY_REFUSED: &str = "mend what it names; if this kernel or nft does not take these \
    rules, set --policy to off, which leaves everything open; the agent tries again by itself, \
    and until then no policy comes into force and no new pod is served";

/// What to do if the table of Services is refused.
const SERVICES_REFUSED: &str = "mend what it names; if this kernel or nft does not take these \
    rules, set --services to off and let kube-proxy serve Services; the agent tries again by \
    itself";

/// The addresses of local pods, each with the index of its link.
pub type PodLinks = BTreeSet<(IpAddr, u32)>;

/// A step of a plan, and from where it leads.
#[derive(Debug)]
pub struct Planned<D> {
    /// How the plan differs from the one before.
    pub step: Step<D>,
    /// Whether the kernel held the plan before: [`tweed_component::Progress::planned`].
    pub held: bool,
}

/// The tables, and what they share.
pub struct Tables {
    config: Arc<Config>,
    /// Cancelled when the agent is to end: a program `nft` that hangs is then
    /// not waited for.
    stop: CancellationToken,
    /// None until it could be opened.
    opened: Option<Opened>,
    /// The plan of the overlay that its table held when last nothing failed, and the links of
    /// pods.
    written: Option<(Version, PodLinks)>,
}

/// The tables, once there is a connection.
struct Opened {
    nft: Connection,
    overlay: OverlayTable,
    policy: PolicyTable,
    services: ServicesTable,
    /// The table of a version that had all components in one, while it is in force.
    joint: Option<Joint>,
    /// Which of the other tables this run has written, so that they can take its place.
    ready: Ready,
}

/// Of which components this run has written the table, or found that there is to be none.
#[derive(Debug, Clone, Copy, Default)]
struct Ready {
    policy: Option<bool>,
    services: Option<bool>,
}

impl Tables {
    /// Opens nothing yet.
    pub fn new(config: &Arc<Config>, stop: CancellationToken) -> Self {
        Self {
            config: Arc::clone(config),
            stop,
            opened: None,
            written: None,
        }
    }

    /// Opens the connection, if it is not open.
    fn open(&mut self) -> Result<&mut Opened, Error> {
        match &mut self.opened {
            Some(opened) => Ok(opened),
            empty => {
                let run_dir = &self.config.run_dir;
                let log = self.config.policy_log == PolicyLog::On;
                let mut nft = Connection::open(run_dir, &self.config.nft)?;
                let mut policy = PolicyTable::new(run_dir, log);
                let mut services = ServicesTable::new(run_dir);
                let joint = Joint::find(&mut nft, &mut policy, &mut services)?;
                Ok(empty.insert(Opened {
                    nft: nft.stopped_by(self.stop.clone()),
                    overlay: OverlayTable::new(run_dir),
                    policy,
                    services,
                    joint,
                    ready: Ready::default(),
                }))
            }
        }
    }

    /// Readable when there are notifications; none before the tables are open.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.opened.as_ref().map(|opened| opened.nft.as_fd())
    }

    /// Reads the notifications that have come, and says whether something else may have
    /// changed a table that this run has written.
    pub fn has_changes(&mut self) -> bool {
        let Some(opened) = &mut self.opened else {
            return false;
        };
        let (nft, ready) = (&mut opened.nft, opened.ready);
        // If the socket fails, the reconcile says why.
        self.written.is_some() && opened.overlay.is_touched(nft).unwrap_or(true)
            || ready.policy.is_some() && opened.policy.is_touched(nft).unwrap_or(true)
            || ready.services.is_some() && opened.services.is_touched(nft).unwrap_or(true)
    }

    /// Has what else listens to nf_tables pause during large changes.
    pub fn pause_with(&mut self, other: Option<Membership>) {
        if let Some(opened) = &mut self.opened {
            opened.nft.pause_with(other);
        }
    }

    /// Whether this kernel has nftables and the tables were opened.
    pub fn is_open(&self) -> bool {
        self.opened.is_some()
    }

    /// Whether the table of an earlier version is still in force, and so no plan.
    pub fn is_joint(&self) -> bool {
        let opened = self.opened.as_ref();
        opened.is_some_and(|opened| opened.joint.is_some())
    }

    /// How many packets policies have dropped since their table was made, where that is
    /// known.
    pub fn dropped(&mut self) -> Option<Dropped> {
        let opened = self.opened.as_mut()?;
        // A kernel that cannot be asked is a problem of the next resync.
        opened.policy.dropped(&mut opened.nft).ok()?
    }

    /// The same of Services.
    pub fn refused(&mut self) -> Option<Refused> {
        let opened = self.opened.as_mut()?;
        opened.services.refused(&mut opened.nft).ok()?
    }

    /// Whether the kernel has rules of policies, be it from an earlier run. If it cannot
    /// be asked, it is taken for one that has.
    pub fn has_policies(&mut self) -> bool {
        let asked = self.open().and_then(|opened| {
            let is_joint = opened.joint.is_some_and(|joint| joint.policy);
            Ok(is_joint || opened.policy.dropped(&mut opened.nft)?.is_some())
        });
        asked.unwrap_or(true)
    }

    /// Asks the table of Services.
    pub fn ask_services<T>(
        &mut self,
        ask: impl FnOnce(&mut ServicesTable, &mut Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let opened = self.open()?;
        ask(&mut opened.services, &mut opened.nft)
    }

    /// Whether the kernel's table of Services has a pod CIDR of this node. If it cannot be
    /// asked, it is taken for one that has.
    pub fn serves_local_pods(&mut self) -> bool {
        let asked = self.ask_services(|table, nft| table.has_local_cidrs(nft));
        asked.unwrap_or_else(|error| {
            tracing::debug!(%error, "the table of Services cannot be asked for pod CIDRs");
            true
        })
    }

    /// Makes the overlay's table as `network`, the planner's last, and the local pods say. With
    /// `resync` it is read even if no change of it is known.
    pub fn write_overlay(
        &mut self,
        planner: &OverlayPlanner,
        network: &Network,
        pod_links: &PodLinks,
        resync: bool,
    ) -> Outcome {
        let written = self.written.take();
        let planned = overlay_step(planner, written, pod_links);
        let desired = Ruleset {
            pod_links: pod_links.clone(),
            ..network.desired.ruleset.clone()
        };
        let wrote = self.open().and_then(|opened| match opened.joint {
            Some(joint) => opened.switch(joint, &desired),
            None => {
                let (nft, table) = (&mut opened.nft, &mut opened.overlay);
                write(nft, table, &planned, &desired, resync).map(Some)
            }
        });
        if matches!(wrote, Ok(Some(_))) {
            self.written = Some((planner.version(), pod_links.clone()));
        }
        outcome::<OverlayTable>(wrote.map(Option::unwrap_or_default), None)
    }

    /// Makes the table of policies as planned.
    pub fn write_policy(
        &mut self,
        planned: &Planned<<PolicyTable as Table>::Delta>,
        desired: &PolicyDesired,
        resync: bool,
    ) -> Outcome {
        let wrote = self.open().and_then(|opened| {
            let (nft, table) = (&mut opened.nft, &mut opened.policy);
            let repaired = write(nft, table, planned, desired, resync)?;
            opened.ready.policy = Some(desired.active);
            Ok(repaired)
        });
        outcome::<PolicyTable>(wrote, Some(POLICY_REFUSED))
    }

    /// Makes the table of Services as planned.
    pub fn write_services(
        &mut self,
        planned: &Planned<<ServicesTable as Table>::Delta>,
        desired: &ServicesDesired,
        resync: bool,
    ) -> Outcome {
        let wrote = self.open().and_then(|opened| {
            let (nft, table) = (&mut opened.nft, &mut opened.services);
            let repaired = write(nft, table, planned, desired, resync)?;
            opened.ready.services = Some(true);
            Ok(repaired)
        });
        outcome::<ServicesTable>(wrote, Some(SERVICES_REFUSED))
    }

    /// Makes only the sets of policies follow a step. Whether they now hold what is planned;
    /// if not, [`Self::write_policy`] looks at all of them.
    pub fn follow_policy(&mut self, planned: &Planned<<PolicyTable as Table>::Delta>) -> bool {
        let followed = self
            .open()
            .and_then(|opened| follow(&mut opened.nft, &mut opened.policy, planned));
        is_in_force(followed, "policies are")
    }

    /// The same for Services.
    pub fn follow_services(&mut self, planned: &Planned<<ServicesTable as Table>::Delta>) -> bool {
        let followed = self
            .open()
            .and_then(|opened| follow(&mut opened.nft, &mut opened.services, planned));
        is_in_force(followed, "Services are")
    }

    /// Deletes the tables of components that are off. Called again, it costs nothing.
    pub fn remove(&mut self, policy: bool, services: bool) -> Outcome {
        let mut all = Outcome::default();
        if policy {
            let removed = self.open().and_then(|opened| {
                opened.policy.remove(&mut opened.nft)?;
                opened.ready.policy = Some(false);
                Ok(0)
            });
            all.merge(outcome::<PolicyTable>(removed, None));
        }
        if services {
            let removed = self.open().and_then(|opened| {
                opened.services.remove(&mut opened.nft)?;
                opened.ready.services = Some(false);
                Ok(0)
            });
            all.merge(outcome::<ServicesTable>(removed, None));
        }
        all
    }
}

impl Opened {
    /// Puts the tables of all components in the place of the joint one, if they are ready.
    /// None if they are not.
    fn switch(&mut self, joint: Joint, ruleset: &Ruleset) -> Result<Option<usize>, Error> {
        let Ready { policy, services } = self.ready;
        let (Some(policy), Some(services)) = (
            policy.or((!joint.policy).then_some(false)),
            services.or((!joint.services).then_some(false)),
        ) else {
            return Ok(None);
        };
        let policy = (policy && joint.policy).then_some(&mut self.policy);
        let services = (services && joint.services).then_some(&mut self.services);
        tweed_nft::switch(&mut self.nft, &mut self.overlay, ruleset, policy, services)?;
        self.joint = None;
        tracing::info!("the table of an earlier version was replaced by one for each component");
        Ok(Some(0))
    }
}

/// Makes a table hold what is desired. Gives the number of objects that were put back.
fn write<T: Table>(
    nft: &mut Connection,
    table: &mut T,
    planned: &Planned<T::Delta>,
    desired: &T::Desired,
    resync: bool,
) -> Result<usize, Error> {
    if follow(nft, table, planned)? {
        if !resync && !table.is_touched(nft)? {
            return Ok(0);
        }
    } else {
        table.forget();
    }
    Ok(table.reconcile(nft, desired, resync)?.repaired)
}

/// Makes a table follow a step. Whether it holds what is planned, as far as nobody else has
/// changed it.
fn follow<T: Table>(
    nft: &mut Connection,
    table: &mut T,
    planned: &Planned<T::Delta>,
) -> Result<bool, Error> {
    match &planned.step {
        Step::Unchanged | Step::Hold(_) => Ok(planned.held),
        Step::Delta(delta) if planned.held => Ok(table.follow(nft, delta)?.is_some()),
        Step::Delta(_) | Step::Full => Ok(false),
    }
}

/// Whether a table holds what is planned, after it was to follow.
fn is_in_force(followed: Result<bool, Error>, what: &str) -> bool {
    followed.unwrap_or_else(|error| {
        // What lasts is a problem of the reconcile that compares the whole table.
        tracing::debug!(%error, "{what} written by the next comparison of the whole table");
        false
    })
}

/// What became of a table, of which so many objects were put back.
fn outcome<T: Table>(wrote: Result<usize, Error>, refused: Option<&'static str>) -> Outcome {
    let mut outcome = Outcome::default();
    match wrote {
        Ok(repaired) => outcome.wrote(ObjectKind::Nftables, repaired as u64),
        Err(error) => {
            let table = T::KEY.to_string();
            let problem = Problem::new(ProblemKind::Nftables, table, error.to_string());
            outcome.fail(match refused.filter(|_| error.is_of_nft()) {
                Some(cure) => problem.with_cure(cure),
                None => problem,
            });
        }
    }
    outcome
}

/// How the overlay's plan of now differs from what its table was `written` with.
fn overlay_step(
    planner: &OverlayPlanner,
    written: Option<(Version, PodLinks)>,
    pod_links: &PodLinks,
) -> Planned<(Ruleset, Ruleset)> {
    let step = written.and_then(|(version, links)| {
        let (mut removed, mut added) = sides(planner, version)?;
        removed.pod_links = &links - pod_links;
        added.pod_links = pod_links - &links;
        let nothing = Ruleset::default();
        Some(if removed == nothing && added == nothing {
            Step::Unchanged
        } else {
            Step::Delta(Box::new((removed, added)))
        })
    });
    Planned {
        held: step.is_some(),
        step: step.unwrap_or(Step::Full),
    }
}

/// What the plan of now removes from the sets since `written`, and what it adds,
/// where that is known.
fn sides(planner: &OverlayPlanner, written: Version) -> Option<(Ruleset, Ruleset)> {
    if written == planner.version() {
        return Some((Ruleset::default(), Ruleset::default()));
    }
    let delta = planner.delta_since(written)?;
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
