//! The table of a version that had the rules of all components in `inet tweed`: taken over
//! without a packet being lost.
//!
//! 1. The tables of policies and of Services are made without the chains that packets enter
//!    by themselves ([`Joint::find`] says so to them), and
//! 2. filled in the usual way, while the old rules are in force.
//! 3. One transaction ([`switch`]) adds these chains and replaces the rules of `inet tweed`
//!    by those of the overlay.

use tweed_netlink::nf::object::generation;
use tweed_planner::overlay::desired::Ruleset;

use crate::connection::Connection;
use crate::error::Error;
use crate::keeper::Outcome;
use crate::overlay::OverlayTable;
use crate::policy::PolicyTable;
use crate::services::ServicesTable;
use crate::tables::{TABLE, has_set};

/// What `inet tweed` has besides the overlay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joint {
    /// Policies.
    pub policy: bool,
    /// Services.
    pub services: bool,
}

impl Joint {
    /// Looks for it, and has the two tables take over from it. None if there is no such table.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub fn find(
        nft: &mut Connection,
        policy: &mut PolicyTable,
        services: &mut ServicesTable,
    ) -> Result<Option<Self>, Error> {
        let joint = Self {
            policy: has_set(nft, TABLE, "policy_entry")?,
            services: has_set(nft, TABLE, "service_parts")?,
        };
        if joint.policy {
            policy.take_over(nft)?;
        }
        if joint.services {
            services.take_over();
        }
        Ok((joint.policy || joint.services).then_some(joint))
    }
}

/// Puts those of the two tables in force that are given, and the overlay's in place of the
/// joint one, in one transaction.
///
/// # Errors
/// Then the joint table is still in force.
pub fn switch(
    nft: &mut Connection,
    overlay: &mut OverlayTable,
    ruleset: &Ruleset,
    mut policy: Option<&mut PolicyTable>,
    mut services: Option<&mut ServicesTable>,
) -> Result<Outcome, Error> {
    let mut hooks = String::new();
    if let Some(table) = &mut policy {
        hooks += &table.hooks(nft)?;
    }
    if let Some(table) = &mut services {
        hooks += &table.hooks(nft)?;
    }
    let before = generation(&mut nft.socket)?;
    let outcome = overlay.replace_with(nft, ruleset, hooks)?;
    // The rules, and elements that have changed meanwhile.
    let own = 1 + u32::from(outcome.messages > 1);
    let after = generation(&mut nft.socket)?;
    let alone = before.is_some() && after == before.map(|id| id.wrapping_add(own));
    if let Some(table) = policy {
        table.hooked(nft, alone)?;
    }
    if let Some(table) = services {
        table.hooked(nft, alone)?;
    }
    Ok(outcome)
}
