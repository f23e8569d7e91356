//! The tables of a node, as an agent keeps them.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use tweed_nft::overlay::OverlayTable;
use tweed_nft::policy::PolicyTable;
use tweed_nft::services::ServicesTable;
use tweed_nft::{Connection, Error, Outcome, Table};
use tweed_planner::overlay::desired::Ruleset;
use tweed_planner::policy::desired::Desired as Policies;
use tweed_planner::services::desired::Desired as Services;

/// All tables and what they share.
pub struct Tables {
    pub nft: Connection,
    pub overlay: OverlayTable,
    pub policy: PolicyTable,
    pub services: ServicesTable,
}

impl Tables {
    /// Of an agent that starts. With `log` policies log what they drop.
    pub fn open(run_dir: &Path, nft: &Path, log: bool) -> Result<Self, Error> {
        Ok(Self {
            nft: Connection::open(run_dir, nft)?,
            overlay: OverlayTable::new(run_dir, log),
            policy: PolicyTable::new(run_dir, log, Box::new(drop)),
            services: ServicesTable::new(run_dir, log),
        })
    }

    /// Makes the overlay's table.
    pub fn reconcile(&mut self, ruleset: &Ruleset, force: bool) -> Result<Outcome, Error> {
        self.overlay.reconcile(&mut self.nft, ruleset, force)
    }

    /// Makes the table of policies.
    pub fn police(&mut self, desired: &Policies, force: bool) -> Result<Outcome, Error> {
        self.policy.reconcile(&mut self.nft, desired, force)
    }

    /// Makes the table of Services.
    pub fn serve(&mut self, desired: &Services, force: bool) -> Result<Outcome, Error> {
        self.services.reconcile(&mut self.nft, desired, force)
    }

    /// Whether something else may have changed the overlay's table.
    pub fn due(&mut self) -> bool {
        self.overlay.is_touched(&mut self.nft).unwrap()
    }
}

impl AsFd for Tables {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.nft.as_fd()
    }
}
