//! How a whole table looks in the kernel: the version of the skeleton, of its chains and of
//! its sets, and the digest of what the kernel made of it, kept in a file.
//!
//! With it an agent that starts again knows an untouched table from one that
//! was changed meanwhile, without writing anything. A missing or unreadable
//! file costs one replacement of the table.

use std::{collections::BTreeMap, path::Path};

use tweed_core::atomic_file::{self, PRIVATE, ReplaceError};
use tweed_core::{limits, regular_file};

/// A table that nobody has touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Baseline {
    /// The skeleton's version.
    pub(super) version: String,
    /// The observation's digest.
    pub(super) digest: String,
    /// Each set by its name.
    pub(super) sets: BTreeMap<String, KnownSet>,
    /// The chains of the skeleton in their order, which the digest depends on.
    pub(super) chains: Vec<KnownChain>,
}

/// A chain that nobody has touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownChain {
    pub(super) name: String,
    /// [`Chain::version`](crate::table::Chain::version).
    pub(super) version: String,
}

/// The first word of a chain's line. A version that does not know of chains takes it for the
/// name of a set that no table has.
const CHAIN: &str = "chain ";

/// A set that nobody has touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownSet {
    /// [`Set::version`](crate::table::Set::version).
    pub(super) version: String,
    /// The digest of its observation.
    pub(super) digest: String,
}

impl Baseline {
    /// What the last agent left; none if there is nothing that can be used. One that an
    /// older version has left says nothing of sets, or of chains.
    pub(super) fn read(file: &Path) -> Option<Self> {
        let text = regular_file::read_text(file, limits::STATE).ok()?;
        let mut lines = text.strip_suffix('\n')?.lines();
        let (version, digest) = lines.next()?.split_once(' ')?;
        let chain = |line: &&str| line.starts_with(CHAIN);
        let (chains, sets): (Vec<&str>, Vec<&str>) = lines.partition(chain);
        let chain = |line: &str| {
            let (name, version) = line.strip_prefix(CHAIN)?.split_once(' ')?;
            Some(KnownChain {
                name: name.to_owned(),
                version: version.to_owned(),
            })
        };
        let set = |line: &str| {
            let (name, rest) = line.split_once(' ')?;
            let (version, digest) = rest.split_once(' ')?;
            let known = KnownSet {
                version: version.to_owned(),
                digest: digest.to_owned(),
            };
            Some((name.to_owned(), known))
        };
        Some(Self {
            version: version.to_owned(),
            digest: digest.to_owned(),
            sets: sets.into_iter().map(set).collect::<Option<_>>()?,
            chains: chains.into_iter().map(chain).collect::<Option<_>>()?,
        })
    }

    /// Replaces the file.
    pub(super) fn write(&self, file: &Path) -> Result<(), ReplaceError> {
        let mut text = format!("{} {}\n", self.version, self.digest);
        for (name, KnownSet { version, digest }) in &self.sets {
            text += &format!("{name} {version} {digest}\n");
        }
        for KnownChain { name, version } in &self.chains {
            text += &format!("{CHAIN}{name} {version}\n");
        }
        atomic_file::replace(file, text.as_bytes(), PRIVATE)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_baseline_comes_back_and_damage_is_as_if_there_were_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nft-skeleton");
        assert_eq!(Baseline::read(&file), None);
        let known = KnownSet {
            version: "12ab".to_owned(),
            digest: "ff".to_owned(),
        };
        let baseline = Baseline {
            version: "1-abc".to_owned(),
            digest: "0f".to_owned(),
            sets: [("s4".to_owned(), known)].into(),
            chains: ["b", "a"]
                .map(|name| KnownChain {
                    name: name.to_owned(),
                    version: "0c".to_owned(),
                })
                .into(),
        };
        baseline.write(&file).unwrap();
        assert_eq!(Baseline::read(&file), Some(baseline));
        fs::write(&file, "1-abc 0").unwrap();
        assert_eq!(Baseline::read(&file), None);
    }
}
