//! How the links that are being deleted ([`owned::is_leaving_link`]) are deleted:
//! one decision for plugin and agent.
//!
//! Deleting the whole group costs the kernel one grace period, where deleting
//! each link costs one per link. But the group is only a number: somebody else
//! may have a link in it, and that link must stay. So look at the links right
//! before: `Deletion::of(&link::list(socket)?).requests()`.
//!
//! What enters the group between that look and the deletion is deleted with it, since
//! rtnetlink knows no deletion on a condition, and none of a list of links. Nobody
//! gains by it: whoever may change a link's group may delete the link as well. To
//! move the links into a group of a random number first would close that gap, but
//! whoever is killed in between leaves them in a group that nobody looks for.

use tweed_core::ownership::LEAVING_LINK_GROUP;

use crate::link::{self, Link};
use crate::{owned, rt::Request};

/// What to delete, in one of two ways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deletion<'a> {
    /// The group as a whole: these links are all that is in it.
    Group(Vec<&'a Link>),
    /// Each link by its index: one link, or none, or the group has links of others.
    Links(Vec<&'a Link>),
}

impl<'a> Deletion<'a> {
    /// Decides from all links of the namespace.
    #[must_use]
    pub fn of(all: impl IntoIterator<Item = &'a Link>) -> Self {
        let (leaving, others): (Vec<&Link>, Vec<&Link>) = all
            .into_iter()
            .filter(|link| link.group == LEAVING_LINK_GROUP)
            .partition(|link| owned::is_leaving_link(link));
        match leaving.len() {
            2.. if others.is_empty() => Self::Group(leaving),
            _ => Self::Links(leaving),
        }
    }

    /// The requests that delete them.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        match self {
            Self::Group(_) => vec![link::delete_group(LEAVING_LINK_GROUP)],
            Self::Links(links) => links
                .iter()
                .map(|link| link::delete(link.index, &link.name))
                .collect(),
        }
    }
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
    fn the_group_is_deleted_at_once_unless_somebody_else_has_a_link_in_it() {
        let pod = link(2, "tw001122334455", 116);
        let leaving = [3, 4].map(|index| link(index, "twx01122334455", 117));
        let foreign = link(5, "foreign", 117);
        let [first, second] = &leaving;
        let both = vec![first, second];

        let alone = Deletion::of([&pod, first, second]);
        assert_eq!(alone, Deletion::Group(both.clone()));
        assert_eq!(alone.requests().len(), 1);

        let among_others = Deletion::of([&pod, first, second, &foreign]);
        assert_eq!(among_others, Deletion::Links(both));
        assert_eq!(among_others.requests().len(), 2);

        assert_eq!(
            Deletion::of([&pod, first]),
            Deletion::Links(vec![first]),
            "one link needs no group"
        );
        assert_eq!(Deletion::of([&pod, &foreign]), Deletion::Links(vec![]));
    }
}
