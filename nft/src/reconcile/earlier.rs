//! A table that another version has left, with sets that these rules cannot go on with. Its
//! rules stay as long as it is not known what the own sets should hold in their place: empty
//! ones would refuse what the table still serves.
//!
//! Sets that both versions declare alike mean the same to both, so those follow what is
//! desired. The rules and the other sets are not repaired, because only the other version
//! knows how they should look. Once something else has changed the rules, they are replaced.

use super::{Outcome, Reconciler};
use crate::baseline::Baseline;
use crate::element::{self, Contents};
use crate::error::Error;
use crate::observe::{self, Observation};
use crate::table::{Set, Skeleton};

/// How such a table looked before.
pub(super) struct Earlier {
    /// The version of the skeleton that it was looked at with: the digest depends on it.
    version: String,
    digest: String,
}

impl Reconciler {
    /// Leaves the rules as they are, if another version has left the table and does not have
    /// all of `needed` as they are declared here. Of `desired`, what sets should hold of which
    /// the reconciler has a copy, those follow that both declare alike. None if this is no
    /// such table, or something else has changed it: then [`Self::reconcile`] may replace it.
    ///
    /// # Errors
    /// The kernel cannot be asked, or refused a change.
    pub fn leave_earlier(
        &mut self,
        skeleton: &Skeleton,
        needed: &[Set],
        desired: &Contents,
    ) -> Result<Option<Outcome>, Error> {
        let Some(baseline) = self.baseline.clone() else {
            return Ok(None);
        };
        if baseline.version == skeleton.version || baseline.declares_alike(needed) {
            self.earlier = None;
            return Ok(None);
        }
        let seen = self.observe(skeleton)?;
        let before = self.earlier.take();
        let Some(seen) = seen else {
            return Ok(None);
        };
        let is_as_before = match &before {
            Some(before) if before.version == skeleton.version => before.digest == seen.digest,
            _ => self.is_as_left(&baseline, &seen)?,
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
        let is_shared = |set: &&Set| {
            desired.contains_key(&set.name) && baseline.declares_alike(std::slice::from_ref(*set))
        };
        let shared: Vec<Set> = skeleton.sets.iter().filter(is_shared).cloned().collect();
        let mut changes = element::diff(&seen.contents, desired);
        changes.retain(|change| shared.iter().any(|set| set.name == change.set));
        // What is in the other sets is not known, so `contents` stays none: no change can
        // follow without a look.
        let messages = self.write(&shared, &changes, &[])?;
        Ok(Some(Outcome {
            changed: element::count(&changes),
            repaired: 0,
            messages,
        }))
    }

    /// Whether the table looks as the other version has left it. One that does not say which
    /// chains there were does not let the rules be compared.
    fn is_as_left(&mut self, baseline: &Baseline, seen: &Observation) -> Result<bool, Error> {
        if baseline.chains.is_empty() {
            let mut sets = baseline.sets.iter();
            return Ok(sets.all(|(name, known)| seen.sets.get(name) == Some(&known.digest)));
        }
        let names = baseline.chains.iter().map(|chain| &*chain.name);
        let digest = observe::digest(&mut self.socket, self.table, names)?;
        Ok(digest.as_ref() == Some(&baseline.digest))
    }

    /// Whether another version has left sets whose names begin so.
    #[must_use]
    pub fn earlier_has(&self, prefix: &str) -> bool {
        let mut names = self
            .baseline
            .iter()
            .flat_map(|baseline| baseline.sets.keys());
        names.any(|name| name.starts_with(prefix))
    }

    /// Whether the table, be it another version's, has all of these sets as they are declared
    /// here.
    #[must_use]
    pub fn declares_alike(&self, sets: &[Set]) -> bool {
        let baseline = self.baseline.as_ref();
        baseline.is_some_and(|baseline| baseline.declares_alike(sets))
    }
}

impl Baseline {
    fn declares_alike(&self, sets: &[Set]) -> bool {
        sets.iter().all(|set| {
            let known = self.sets.get(&set.name);
            known.is_some_and(|known| known.version == set.version())
        })
    }
}
