//! The tables of all components in the kernel: `inet tweed`, `inet tweed-policy` and
//! `inet tweed-services`. Each is written by itself, so what is refused of one holds no other
//! one back. That a component is off means that its table is deleted.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::mem;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tweed_component::Step;
use tweed_component::schema::Sets as _;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_core::version::Version;
use tweed_netlink::nf::Membership;
use tweed_nft::overlay::OverlayTable;
use tweed_nft::policy::PolicyTable;
use tweed_nft::services::ServicesTable;
use tweed_nft::{Connection, Error, Table};
use tweed_planner::overlay::desired::{Ruleset, RulesetDelta};
use tweed_planner::overlay::{Network, OverlayPlanner};

use super::flow_epoch::Epoch;
use super::outcome::{ObjectKind, Outcome};
use crate::config::Config;

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
    /// Is told which policies are in force.
    epoch: Epoch,
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
pub struct Opened {
    nft: Connection,
    overlay: OverlayTable,
    policy: ComponentTable<PolicyTable>,
    services: ComponentTable<ServicesTable>,
}

/// A table of a component besides the overlay's.
pub struct ComponentTable<T> {
    table: T,
    /// Whether this run has looked at it, so that it matters what others do to it.
    is_followed: bool,
}

impl<T> ComponentTable<T> {
    fn new(table: T) -> Self {
        Self {
            table,
            is_followed: false,
        }
    }
}

impl<T: Table> ComponentTable<T> {
    /// Whether something else may have changed it. If the socket fails, the reconcile says
    /// why.
    fn is_touched(&mut self, nft: &mut Connection) -> bool {
        self.is_followed && self.table.is_touched(nft).unwrap_or(true)
    }
}

/// The table of a component besides the overlay's.
pub trait Managed: Table + Sized {
    /// What to do if it is refused.
    const REFUSED: &'static str;

    /// It, among all tables, and the connection.
    fn of(opened: &mut Opened) -> (&mut Connection, &mut ComponentTable<Self>);
}

impl Managed for PolicyTable {
    const REFUSED: &'static str = "mend what it names; if this kernel or nft does not take these \
        rules, set --policy to off, which leaves everything open; the agent tries again by \
        itself, and until then no policy comes into force and no new pod is served";

    fn of(opened: &mut Opened) -> (&mut Connection, &mut ComponentTable<Self>) {
        (&mut opened.nft, &mut opened.policy)
    }
}

impl Managed for ServicesTable {
    const REFUSED: &'static str = "mend what it names; if this kernel or nft does not take these \
        rules, set --services to off and let kube-proxy serve Services; the agent tries again \
        by itself";

    fn of(opened: &mut Opened) -> (&mut Connection, &mut ComponentTable<Self>) {
        (&mut opened.nft, &mut opened.services)
    }
}

impl Tables {
    /// Opens nothing yet.
    pub fn new(config: &Arc<Config>, epoch: Epoch, stop: CancellationToken) -> Self {
        Self {
            config: Arc::clone(config),
            epoch,
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
                let nft = Connection::open(run_dir, &self.config.nft)?;
                let log = self.config.policy_log;
                let epoch = self.epoch.clone();
                let on_in_force = Box::new(move |in_force| epoch.set_in_force(in_force));
                Ok(empty.insert(Opened {
                    nft: nft.stopped_by(self.stop.clone()),
                    overlay: OverlayTable::new(run_dir, log),
                    policy: ComponentTable::new(PolicyTable::new(run_dir, log, on_in_force)),
                    services: ComponentTable::new(ServicesTable::new(run_dir, log)),
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
        // If the socket fails, the reconcile says why.
        let nft = &mut opened.nft;
        self.written.is_some() && opened.overlay.is_touched(nft).unwrap_or(true)
            || opened.policy.is_touched(nft)
            || opened.services.is_touched(nft)
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

    /// Whether the kernel has rules of policies, be it from an earlier run. If it cannot
    /// be asked, it is taken for one that has.
    pub fn has_policies(&mut self) -> bool {
        let asked = self
            .open()
            .and_then(|opened| opened.policy.table.is_there(&mut opened.nft));
        asked.unwrap_or(true)
    }

    /// Asks the table of Services.
    pub fn ask_services<T>(
        &mut self,
        ask: impl FnOnce(&mut ServicesTable, &mut Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let opened = self.open()?;
        ask(&mut opened.services.table, &mut opened.nft)
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
        // It has elements of all Nodes, and is mostly not needed.
        let desired = || Ruleset {
            pod_links: pod_links.clone(),
            ..network.desired.ruleset.clone()
        };
        let wrote = self.open().and_then(|opened| {
            let (nft, table) = (&mut opened.nft, &mut opened.overlay);
            write(nft, table, &planned, desired, resync)
        });
        if wrote.is_ok() {
            self.written = Some((planner.version(), pod_links.clone()));
        }
        outcome::<OverlayTable>(wrote, None)
    }

    /// Makes the table of a component as planned.
    pub fn write<T: Managed>(
        &mut self,
        planned: &Planned<T::Delta>,
        desired: &T::Desired,
        resync: bool,
    ) -> Outcome {
        let wrote = self.open().and_then(|opened| {
            let (nft, kept) = T::of(opened);
            kept.is_followed = true;
            write(nft, &mut kept.table, planned, || desired, resync)
        });
        outcome::<T>(wrote, Some(T::REFUSED))
    }

    /// Makes only the sets of a component follow a step. Whether they now hold what is
    /// planned; if not, [`Self::write`] looks at all of them.
    pub fn follow<T: Managed>(&mut self, planned: &Planned<T::Delta>) -> bool {
        let followed = self.open().and_then(|opened| {
            let (nft, kept) = T::of(opened);
            follow(nft, &mut kept.table, planned)
        });
        followed.unwrap_or_else(|error| {
            // What lasts is a problem of the reconcile that compares the whole table.
            let table = T::KEY;
            tracing::debug!(%error, %table, "written by the next comparison of the whole table");
            false
        })
    }

    /// Puts back the rules that others have changed in the table of a component, around what
    /// its sets hold, while it is not known what they should hold. With `resync` it is read
    /// even if no change of it is known.
    pub fn restore<T: Managed>(&mut self, resync: bool) -> Outcome {
        let restored = self.open().and_then(|opened| {
            let (nft, kept) = T::of(opened);
            let is_first = !mem::replace(&mut kept.is_followed, true);
            if !(resync || is_first || kept.table.is_touched(nft)?) {
                return Ok(0);
            }
            Ok(kept.table.restore(nft)?.repaired)
        });
        outcome::<T>(restored, Some(T::REFUSED))
    }

    /// Deletes the table of a component that is off. Called again, it costs nothing.
    pub fn remove<T: Managed>(&mut self) -> Outcome {
        let removed = self.open().and_then(|opened| {
            let (nft, kept) = T::of(opened);
            kept.is_followed = true;
            kept.table.remove(nft)?;
            Ok(0)
        });
        outcome::<T>(removed, None)
    }
}

/// Makes a table hold what is desired. Gives the number of objects that were put back.
fn write<T: Table, D: Borrow<T::Desired>>(
    nft: &mut Connection,
    table: &mut T,
    planned: &Planned<T::Delta>,
    desired: impl FnOnce() -> D,
    resync: bool,
) -> Result<usize, Error> {
    if follow(nft, table, planned)? {
        if !resync && !table.is_touched(nft)? {
            return Ok(0);
        }
    } else {
        table.forget();
    }
    Ok(table.reconcile(nft, desired().borrow(), resync)?.repaired)
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

/// What became of a table, of which so many objects were put back.
fn outcome<T: Table>(wrote: Result<usize, Error>, refused: Option<&'static str>) -> Outcome {
    let mut outcome = Outcome::default();
    match wrote {
        Ok(repaired) => {
            outcome.wrote(ObjectKind::Nftables, repaired as u64, &T::KEY.to_string());
        }
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
) -> Planned<RulesetDelta> {
    let step = written.and_then(|(version, links)| {
        let mut delta = if version == planner.version() {
            RulesetDelta::default()
        } else {
            planner.delta_since(version)?.ruleset.clone()
        };
        delta.pod_links = links.change_to(pod_links);
        Some(if delta.is_empty() {
            Step::Unchanged
        } else {
            Step::Delta(Box::new(delta))
        })
    });
    Planned {
        held: step.is_some(),
        step: step.unwrap_or(Step::Full),
    }
}
