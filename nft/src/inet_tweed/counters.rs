//! What the counters of the table have counted.

use super::policy::{self, Dropped};
use super::services::{self, Refused};
use super::table::Table;
use crate::error::Error;

impl Table {
    /// How many packets policy has dropped since the table was made; none while it has no
    /// rules of policy.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub fn dropped(&mut self) -> Result<Option<Dropped>, Error> {
        let [ingress, egress, isolated] = policy::COUNTERS;
        let mut counted = |counter| self.reconciler.counted(counter);
        let Some(ingress) = counted(ingress)? else {
            return Ok(None);
        };
        Ok(Some(Dropped {
            ingress,
            egress: counted(egress)?.unwrap_or_default(),
            isolated: counted(isolated)?.unwrap_or_default(),
        }))
    }

    /// How many packets the rules of Services have dropped since the table was made; none
    /// while it has no such rules.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub fn refused(&mut self) -> Result<Option<Refused>, Error> {
        let mut counts = [0; services::COUNTERS.len()];
        for (counter, count) in services::COUNTERS.iter().zip(&mut counts) {
            let Some(counted) = self.reconciler.counted(counter)? else {
                return Ok(None);
            };
            *count = counted;
        }
        Ok(Some(counts.into()))
    }
}
