//! Looks for other firewalls that drop what pods send or get.
//!
//! It writes nothing and runs after everything was written, so that no Node and
//! no pod waits for it. [`tweed_nft`] and [`tweed_diagnosis`] interpret the rules.

use std::fmt::Display;

use tweed_core::problem::{Problem, ProblemKind};
use tweed_diagnosis::iptables_legacy;
use tweed_nft::Table;

use super::outcome::Outcome;
use super::schedule::{Due, ResyncTarget};

/// Names other firewalls' rules that drop forwarded packets.
#[derive(Debug, Default)]
pub struct FirewallInspector {
    /// What iptables-legacy drops, as last read. Its changes have no
    /// notification, and all its rules have to be read, so that is rare.
    legacy: Vec<Problem>,
}

impl FirewallInspector {
    /// Reads the rules of other tables if `table`, which has the notifications,
    /// knows of a change, and those of iptables-legacy when they are due.
    pub fn inspect(&mut self, table: Option<&mut Table>, due: Due) -> Outcome {
        let mut outcome = Outcome::default();
        match table.map(Table::foreign_drops) {
            Some(Ok(drops)) => outcome.problems.extend(drops),
            Some(Err(error)) => outcome.fail(unreadable("nf_tables", &error)),
            None => {}
        }
        if due.has(ResyncTarget::IptablesLegacy) {
            self.legacy = iptables_legacy::forward_drops()
                .unwrap_or_else(|error| vec![unreadable("iptables-legacy", &error)]);
        }
        outcome.problems.extend(self.legacy.iter().cloned());
        outcome
    }
}

/// Rules of others cannot be read. What they drop is not known, but tweed's own
/// table is as planned.
fn unreadable(whose: &str, error: &dyn Display) -> Problem {
    Problem::new(
        ProblemKind::OtherTablesUnreadable,
        whose,
        format!("whether other tables drop what pods send is not known: {error}"),
    )
}
