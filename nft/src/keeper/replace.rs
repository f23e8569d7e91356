//! Replaces the table, or its rules around the sets that keep their elements.

use std::collections::BTreeSet;

use tweed_netlink::nf::Socket;
use tweed_netlink::nf::object::generation;

use super::{Keeper, Known, Outcome};
use crate::baseline::{Baseline, KnownChain, KnownSet};
use crate::connection::Connection;
use crate::element::Contents;
use crate::error::Error;
use crate::observe::Observation;
use crate::provider::Provider;
use crate::table::Skeleton;
use crate::{observe, present};

/// How often a new table is read back, if others change rules at that moment.
const TRUST_TRIES: usize = 3;

/// What became of rules that were to be replaced around the sets.
enum Around {
    Replaced(Outcome),
    /// They were, but others have changed something of nf_tables meanwhile, and it may have
    /// been these rules.
    Disturbed,
    /// The sets cannot stay, or the table does not look as it should afterwards.
    Impossible,
}

impl Keeper {
    /// Replaces the table and learns how the kernel shows it: only its rules where the sets
    /// can stay, else all of it.
    pub(super) fn replace(
        &mut self,
        nft: &mut Connection,
        skeleton: &Skeleton,
        desired: Contents,
        provider: Option<&dyn Provider>,
        outcome: Outcome,
    ) -> Result<Outcome, Error> {
        let mut around = self.replace_around(nft, skeleton, &desired, provider, outcome);
        // What others change, in whatever table, is no reason to lose what sets remember.
        for _ in 1..TRUST_TRIES {
            if matches!(around, Ok(Around::Disturbed)) {
                around = self.replace_around(nft, skeleton, &desired, provider, outcome);
            }
        }
        match around {
            Ok(Around::Replaced(outcome)) => {
                self.contents = Some(desired);
                Ok(outcome)
            }
            Ok(Around::Impossible | Around::Disturbed) => {
                self.replace_all(nft, skeleton, desired, provider, outcome)
            }
            Err(refusal @ Error::NftRefused { .. }) => {
                let outcome = self.replace_all(nft, skeleton, desired, provider, outcome)?;
                // What is refused both times is the caller's to report.
                tracing::warn!(
                    error = %refusal,
                    "the table was replaced with all its elements: its rules alone were refused"
                );
                Ok(outcome)
            }
            Err(error) => Err(error),
        }
    }

    /// Puts back the rules of a table of which it is not known what the provided sets should
    /// hold: they keep what they have. The others are to hold what `desired` says. Where that
    /// is not possible, the table stays as it is.
    pub(crate) fn restore(
        &mut self,
        nft: &mut Connection,
        skeleton: &Skeleton,
        desired: Contents,
    ) -> Result<Outcome, Error> {
        let Some(digest) = self.known_digest(skeleton) else {
            return Ok(Outcome::default());
        };
        let is_whole = |seen: Observation| seen.digest == digest && seen.needed.is_empty();
        let seen = self.observe(nft, skeleton, &desired)?;
        if seen.is_none_or(is_whole) {
            return Ok(Outcome::default());
        }
        let outcome = Outcome {
            repaired: 1,
            ..Outcome::default()
        };
        Ok(
            match self.replace_around(nft, skeleton, &desired, None, outcome)? {
                Around::Replaced(outcome) => {
                    self.contents = Some(desired);
                    outcome
                }
                Around::Impossible | Around::Disturbed => Outcome::default(),
            },
        )
    }

    /// Replaces the rules around the sets.
    fn replace_around(
        &mut self,
        nft: &mut Connection,
        skeleton: &Skeleton,
        desired: &Contents,
        provider: Option<&dyn Provider>,
        mut outcome: Outcome,
    ) -> Result<Around, Error> {
        let Some(baseline) = &self.baseline else {
            return Ok(Around::Impossible);
        };
        // What others have changed since the last time is heard of now, and of what they
        // change from here on the generation tells.
        let before = generation(&mut nft.socket)?;
        let unchanged = if baseline.version == skeleton.version {
            // It was damaged, and nobody knows where.
            BTreeSet::new()
        } else {
            unchanged(&mut nft.socket, skeleton, baseline)?
        };
        let present = present::look(&mut nft.socket, skeleton, &baseline.sets, &unchanged)?;
        let Some(present) = present else {
            return Ok(Around::Impossible);
        };
        let known = self.known_digest(skeleton);
        self.is_touched(nft)?;
        let provided = self.provided;
        let script = skeleton.script_around(&present, desired, provider);
        self.load(nft, &script)?;
        let seen = self.observe(nft, skeleton, desired)?;
        let alone = generation(&mut nft.socket)? == before.map(|id| id.wrapping_add(1));
        let is_whole = |seen: &Observation| match &known {
            Some(digest) => seen.digest == *digest,
            None => !seen.has_foreign,
        };
        let Some(seen) = seen.filter(is_whole) else {
            return Ok(Around::Impossible);
        };
        // Nothing else tells that it is whole.
        if known.is_none() && !alone {
            return Ok(Around::Disturbed);
        }
        self.learn(skeleton, &seen)?;
        if alone {
            self.provided = provided;
        }
        outcome.messages = 1 + self.write(nft, &skeleton.sets, &seen.needed, &[])?;
        Ok(Around::Replaced(outcome))
    }

    /// Replaces the whole table and learns how the kernel shows it. If anybody
    /// changed rules between the two, it might have been these: what is seen is
    /// then trusted only if it is known to be whole, its elements included: nothing
    /// would tell of them again. A table that somebody was breaking at that moment
    /// would otherwise be kept so until it is looked at without a reason.
    pub(super) fn replace_all(
        &mut self,
        nft: &mut Connection,
        skeleton: &Skeleton,
        desired: Contents,
        provider: Option<&dyn Provider>,
        mut outcome: Outcome,
    ) -> Result<Outcome, Error> {
        let known = self.known_digest(skeleton);
        for messages in 1..=TRUST_TRIES {
            let scripts = match self.table.get(&mut nft.socket)? {
                Some(_) => vec![skeleton.script(&desired, provider)],
                None => skeleton.scripts_from_nothing(&desired, provider).into(),
            };
            let own = u32::try_from(scripts.len()).unwrap_or(u32::MAX);
            let before = generation(&mut nft.socket)?;
            for (made, script) in scripts.iter().enumerate() {
                if let Err(error) = self.load(nft, script) {
                    // Sets without rules look as if they were in force.
                    if made > 0 && matches!(error, Error::NftRefused { .. }) {
                        nft.load(self.table, &format!("delete table {}\n", self.table))?;
                    }
                    return Err(error);
                }
            }
            drop(scripts);
            let seen = self.observe(nft, skeleton, &desired)?;
            let after = generation(&mut nft.socket)?;
            let alone = after == before.map(|id| id.wrapping_add(own));
            let is_known =
                |seen: &Observation| known.as_ref() == Some(&seen.digest) && seen.needed.is_empty();
            let is_whole = |seen: &Observation| alone || is_known(seen);
            let Some(seen) = seen.filter(is_whole) else {
                continue;
            };
            self.learn(skeleton, &seen)?;
            self.contents = seen.needed.is_empty().then_some(desired);
            if alone && provider.is_some() {
                self.provided = Known::Now;
            }
            outcome.messages = messages;
            return Ok(outcome);
        }
        Err(Error::Interrupted(self.table.to_string(), TRUST_TRIES))
    }

    /// Loads the script. If it is refused, the sets are as they were, and what is known of
    /// them stays known. Otherwise it counts as a replacement, whatever became of it.
    fn load(&mut self, nft: &mut Connection, script: &str) -> Result<(), Error> {
        let loaded = nft.load(self.table, script);
        // A program that was killed may have loaded it all the same.
        let is_refused = matches!(loaded, Err(Error::NftRefused { .. }));
        if !is_refused || self.is_touched(nft)? {
            self.replacements += 1;
            self.doubt_provided();
        }
        loaded
    }

    /// Remembers how the whole table looks.
    pub(super) fn learn(&mut self, skeleton: &Skeleton, seen: &Observation) -> Result<(), Error> {
        let sets = skeleton.sets.iter().filter_map(|set| {
            let known = KnownSet {
                version: set.version(),
                digest: seen.sets.get(&set.name)?.clone(),
            };
            Some((set.name.clone(), known))
        });
        let chains = skeleton.chains.iter().map(|chain| KnownChain {
            name: chain.name.to_string(),
            version: chain.version(),
        });
        let baseline = Baseline {
            version: skeleton.version.clone(),
            digest: seen.digest.clone(),
            sets: sets.collect(),
            chains: chains.collect(),
        };
        baseline.write(&self.baseline_file)?;
        self.baseline = Some(baseline);
        Ok(())
    }
}

/// The chains of the skeleton whose rules another skeleton has left in the kernel as they are
/// wanted. Rules that stay are not made again: the kernel shows the elements of the sets
/// without names that rules have, of ranges above all, only some time after the rules (up to a
/// millisecond with all rules of Services, Linux 6.18), and packets would be taken for others
/// until then.
fn unchanged(
    socket: &mut Socket,
    skeleton: &Skeleton,
    baseline: &Baseline,
) -> Result<BTreeSet<String>, Error> {
    let chains = &baseline.chains;
    let names = chains.iter().map(|chain| &*chain.name);
    if observe::digest(socket, skeleton.table, names)?.as_ref() != Some(&baseline.digest) {
        return Ok(BTreeSet::new());
    }
    let unchanged = skeleton.chains.iter().filter(|wanted| {
        let known = chains.iter().find(|known| known.name == wanted.name);
        known.is_some_and(|known| known.version == wanted.version())
    });
    Ok(unchanged.map(|chain| chain.name.to_string()).collect())
}
