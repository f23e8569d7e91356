//! How the links that are being deleted ([`owned::is_leaving_link`]) are deleted:
//! one decision for plugin and agent.
//!
//! Deleting a whole group costs the kernel one grace period, where deleting
//! each link costs one per link. But a group is only a number: somebody else
//! may have a link in it, or put one there at any moment, and that link must stay. So
//! the links are moved, by their indices, into a group of a number that is drawn for
//! this deletion and that no link has, and that group is deleted, all in one message to
//! the kernel: `Deletion::of(&link::list(socket)?, draw).requests()`.
//!
//! Whoever is killed in between, which takes more links than one message has, leaves
//! links in a group of [`DELETION_GROUPS`]: these are leaving links too, and the next
//! deletion takes them along. A program of a version before these groups does not see
//! them, and leaves them to the others and to the end of the pod's namespace.

use std::collections::{BTreeSet, hash_map::RandomState};
use std::hash::BuildHasher as _;

use tweed_core::ownership::DELETION_GROUPS;

use crate::link::{self, Link};
use crate::{owned, rt::Request};

/// What to delete, in one of two ways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deletion<'a> {
    /// All at once, in this group, which no link has.
    Group(u32, Vec<&'a Link>),
    /// Each link by its index: one link, or none.
    Links(Vec<&'a Link>),
}

impl<'a> Deletion<'a> {
    /// Decides from all links of the namespace; `random` says where to begin to look for
    /// a free group.
    pub fn of(
        links: impl IntoIterator<Item = &'a Link, IntoIter: Clone>,
        random: impl FnOnce() -> u32,
    ) -> Self {
        let all = links.into_iter();
        let leaving: Vec<&Link> = all.clone().filter(|l| owned::is_leaving_link(l)).collect();
        match leaving.len() {
            2.. => Self::Group(free_group(all, random()), leaving),
            _ => Self::Links(leaving),
        }
    }

    /// The requests that delete them.
    pub fn requests(&self) -> Vec<Request> {
        match self {
            Self::Group(group, links) => {
                let named = links.iter().map(|link| (link.index, link.name.as_str()));
                delete_in_group(*group, named)
            }
            Self::Links(links) => links
                .iter()
                .map(|link| link::delete(link.index, &link.name))
                .collect(),
        }
    }
}

/// The requests that move these links, given by index and name, into `group` and delete
/// it.
pub fn delete_in_group<'a>(
    group: u32,
    links: impl IntoIterator<Item = (u32, &'a str)>,
) -> Vec<Request> {
    let moved = links.into_iter().map(|(index, name)| {
        let change = link::Change::of(index, name);
        change.group(group).request()
    });
    moved.chain([link::delete_group(group)]).collect()
}

/// A number that nobody can know before, for [`Deletion::of`].
pub fn draw() -> u32 {
    let [a, b, c, d, ..] = RandomState::new().hash_one(()).to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

/// A group of [`DELETION_GROUPS`] that none of the links is in.
fn free_group<'a>(all: impl Iterator<Item = &'a Link>, random: u32) -> u32 {
    let used: BTreeSet<u32> = all.map(|link| link.group).collect();
    let (first, last) = DELETION_GROUPS.into_inner();
    let drawn = first | random & (last - first);
    // There are more groups than the kernel can have links.
    let mut from = (drawn..=last).chain(first..drawn);
    from.find(|group| !used.contains(group)).unwrap_or(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, group: u32) -> Link {
        Link {
            index,
            name: name.to_owned(),
            group,
            alias: Some("tweed:tweed/c/eth0".to_owned()),
            ..Link::default()
        }
    }

    #[test]
    fn several_links_are_deleted_at_once_in_a_group_that_no_other_link_has() {
        let pod = link(2, "tw001122334455", 116);
        let first = link(3, "twx01122334455", 117);
        // Of a deletion that was cut off.
        let second = link(4, "twx11122334455", 0x74ab_cdef);
        let foreign = [link(5, "foreign", 117), link(6, "other", 0x7400_0007)];
        let of = |links: &[&Link], random| match Deletion::of(links.iter().copied(), || random) {
            Deletion::Group(group, links) => (group, links.iter().map(|l| l.index).collect()),
            Deletion::Links(links) => (0, links.iter().map(|l| l.index).collect::<Vec<_>>()),
        };

        let all = [&pod, &first, &second, &foreign[0], &foreign[1]];
        assert_eq!(of(&all, 0xff00_0001), (0x7400_0001, vec![3, 4]));
        assert_eq!(
            of(&all, 7),
            (0x7400_0008, vec![3, 4]),
            "another one is in 7"
        );
        assert_eq!(of(&all, 0xab_cdef), (0x74ab_cdf0, vec![3, 4]));
        let at_the_end = link(7, "last", 0x74ff_ffff);
        assert_eq!(
            of(&[&first, &second, &at_the_end], u32::MAX),
            (0x7400_0000, vec![3, 4])
        );
        assert_eq!(Deletion::of(all, || 1).requests().len(), 3);

        assert_eq!(
            of(&[&pod, &second, &foreign[0]], 1),
            (0, vec![4]),
            "one needs no group"
        );
        assert_eq!(of(&[&pod, &foreign[0]], 1), (0, vec![]));
    }
}
