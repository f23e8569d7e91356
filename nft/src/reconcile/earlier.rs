//! A table that another version has left, with sets that these rules cannot go on with. It
//! stays as long as it is not known what the own sets should hold in their place: empty ones
//! would refuse what the table still serves.
//!
//! Meanwhile it is not repaired, because only the other version knows how it should look. If
//! something else changes it, it is replaced.

use super::{Outcome, Reconciler};
use crate::element::{self, Contents};
use crate::error::Error;
use crate::table::{Keeper, Set, Skeleton};

/// How such a table looked before.
pub(super) struct Earlier {
    /// The version of the skeleton that it was looked at with: the digest depends on it.
    version: String,
    digest: String,
}

impl Reconciler {
    /// Leaves the table as it is, if another version has left it and does not have all of
    /// `needed` as they are declared here. Only the sets that both declare alike, and of
    /// which the reconciler has a copy, are made to hold what `desired` says. None if this
    /// is no such table, or something else has changed it: then [`Self::reconcile`] may
    /// replace it.
    ///
    /// # Errors
    /// The kernel cannot be asked, or refused a change.
    pub fn leave_earlier(
        &mut self,
        skeleton: &Skeleton,
        needed: &[Set],
        desired: &Contents,
    ) -> Result<Option<Outcome>, Error> {
        let before = self.earlier.take();
        let Some(baseline) = self.baseline.clone() else {
            return Ok(None);
        };
        let is_declared_alike = |set: &Set| {
            let known = baseline.sets.get(&set.name);
            known.is_some_and(|known| known.version == set.version())
        };
        if baseline.version == skeleton.version || needed.iter().all(is_declared_alike) {
            return Ok(None);
        }
        let Some(seen) = self.observe(skeleton)? else {
            return Ok(None);
        };
        let is_as_before = match &before {
            Some(before) if before.version == skeleton.version => before.digest == seen.digest,
            // The rules cannot be compared.
            _ => (baseline.sets.iter())
                .all(|(name, known)| seen.sets.get(name) == Some(&known.digest)),
        };
        if !is_as_before {
            return Ok(None);
        }
        if before.is_none() {
            tracing::info!(
                table = %self.table,
                "the rules of another version stay in force until it is known what they serve"
            );
        }
        self.earlier = Some(Earlier {
            version: skeleton.version.clone(),
            digest: seen.digest,
        });
        let shared = |set: &&Set| set.keeper == Keeper::Reconciler && is_declared_alike(set);
        let shared: Vec<Set> = skeleton.sets.iter().filter(shared).cloned().collect();
        let mut changes = element::diff(&seen.contents, desired);
        changes.retain(|change| shared.iter().any(|set| set.name == change.set));
        // What is in the other sets is not known, so no change can follow without a look.
        self.contents = None;
        let messages = self.write(&shared, &changes, &[])?;
        Ok(Some(Outcome {
            changed: element::count(&changes),
            repaired: 0,
            messages,
        }))
    }
}
