//! What of the mirror has to be read again.

use std::collections::BTreeSet;

use super::mirror::MirrorPart;

/// Maximum number of links that are read one by one. To read more of them, a few dumps of
/// whole parts are cheaper.
const MAX_LINKS: usize = 16;
/// The parts that have all that is on links of others.
const WITH_LINKS: [MirrorPart; 5] = [
    MirrorPart::Links,
    MirrorPart::Addresses,
    MirrorPart::Connected,
    MirrorPart::Routes,
    MirrorPart::Neighbours,
];

/// Parts of the mirror, and links with what is on them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stale {
    /// Parts that are read as a whole.
    parts: BTreeSet<MirrorPart>,
    /// Indices of links that are read by themselves.
    links: BTreeSet<u32>,
}

impl Stale {
    /// The link with this index, and what is on it.
    pub fn link(index: u32) -> Self {
        Self {
            links: BTreeSet::from([index]),
            ..Self::default()
        }
    }

    /// Whether nothing has to be read.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.links.is_empty()
    }

    /// Whether anything of `part` has to be read.
    pub fn concerns(&self, part: MirrorPart) -> bool {
        let of_links = !self.links.is_empty() && WITH_LINKS.contains(&part);
        self.parts.contains(&part) || of_links
    }

    /// Adds `other`. Links are left out where all parts are read that they are in.
    pub fn extend(&mut self, other: Self) {
        self.parts.extend(other.parts);
        self.links.extend(other.links);
        if self.links.len() > MAX_LINKS {
            self.parts.extend(WITH_LINKS);
        }
        if WITH_LINKS.iter().all(|part| self.parts.contains(part)) {
            self.links.clear();
        }
    }

    /// Whether `part` has to be read as a whole, which is then taken for done.
    pub fn take_part(&mut self, part: MirrorPart) -> bool {
        self.parts.remove(&part)
    }

    /// A link that has to be read, which is then taken for done.
    pub fn take_link(&mut self) -> Option<u32> {
        self.links.pop_first()
    }

    /// Takes the link with this index for read.
    pub fn forget_link(&mut self, index: u32) {
        self.links.remove(&index);
    }
}

impl FromIterator<MirrorPart> for Stale {
    fn from_iter<I: IntoIterator<Item = MirrorPart>>(parts: I) -> Self {
        Self {
            parts: parts.into_iter().collect(),
            ..Self::default()
        }
    }
}

impl<const N: usize> From<[MirrorPart; N]> for Stale {
    fn from(parts: [MirrorPart; N]) -> Self {
        parts.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_links_at_once_are_read_with_everything_else() {
        let mut stale = Stale::default();
        for index in 0..16 {
            stale.extend(Stale::link(index));
        }
        assert!(stale.parts.is_empty());
        assert!(stale.concerns(MirrorPart::Addresses) && !stale.concerns(MirrorPart::Fdb));
        stale.extend(Stale::link(16));
        assert_eq!(stale, WITH_LINKS.into());
        stale.extend(Stale::link(17));
        assert_eq!(stale, WITH_LINKS.into());
    }
}
