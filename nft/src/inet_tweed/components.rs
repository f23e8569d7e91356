//! What the table should have of policy and Services, and who provides the elements of their
//! sets. Pure.

use tweed_planner::policy::desired::Desired as PolicyDesired;
use tweed_planner::services::desired::Desired as ServicesDesired;

use super::kept::Kept;
use super::{policy, services};
use crate::element::Element;
use crate::error::Error;
use crate::provided::Provider;
use crate::table::Set;

/// What the table should have of a component.
#[derive(Debug, Clone, Copy, Default)]
pub enum Wanted<T> {
    /// Nothing: no rules and no sets.
    #[default]
    No,
    /// What it has, from an earlier run too: it is not known yet what it should have.
    AsItIs,
    /// This.
    As(T),
}

impl<'a, D: Provider> Wanted<&'a D> {
    pub(super) fn is_no(&self) -> bool {
        matches!(self, Self::No)
    }

    pub(super) fn provider(&self, kept: &'a Kept) -> &'a dyn Provider {
        match self {
            Self::As(desired) => *desired,
            Self::No | Self::AsItIs => kept,
        }
    }
}

/// What the table should have besides what it has on every node. The planner keeps the
/// elements; the table has no copy.
#[derive(Debug, Clone, Copy, Default)]
pub struct Components<'a> {
    /// Policy. One that is not active adds nothing.
    pub policy: Wanted<&'a PolicyDesired>,
    /// Whether packets that policy drops are logged.
    pub log: bool,
    /// Services.
    pub services: Wanted<&'a ServicesDesired>,
}

/// Which components were left as they are, though they are desired otherwise.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Left {
    pub policy: bool,
    pub services: bool,
}

impl Components<'_> {
    /// The same with one component left as it is: policy, and then Services.
    pub(super) fn with_one_as_it_is(self) -> impl Iterator<Item = (Self, Left)> {
        let policy = matches!(self.policy, Wanted::As(_)).then_some((
            Self {
                policy: Wanted::AsItIs,
                ..self
            },
            Left {
                policy: true,
                services: false,
            },
        ));
        let services = matches!(self.services, Wanted::As(_)).then_some((
            Self {
                services: Wanted::AsItIs,
                ..self
            },
            Left {
                policy: false,
                services: true,
            },
        ));
        policy.into_iter().chain(services)
    }

    /// The provided sets of components of which it is not known what they should hold, of
    /// those that the table has, in this version or another.
    pub(super) fn unknown(&self, has_policy: bool, has_services: bool) -> Vec<Set> {
        let mut sets = Vec::new();
        if has_policy && matches!(self.policy, Wanted::AsItIs) {
            sets.extend(policy::provided());
        }
        if has_services && matches!(self.services, Wanted::AsItIs) {
            sets.extend(services::provided());
        }
        sets
    }

    /// The same without a policy that is not active.
    pub(super) fn without_inactive(&self) -> Self {
        match self.policy {
            Wanted::As(desired) if !desired.active => Self {
                policy: Wanted::No,
                ..*self
            },
            _ => *self,
        }
    }
}

/// The providers of all components; one that is missing provides empty sets.
pub(super) struct Provided<'a> {
    pub(super) policy: Option<&'a dyn Provider>,
    pub(super) services: Option<&'a dyn Provider>,
}

impl Provider for Provided<'_> {
    fn prepare(&self) -> Result<(), Error> {
        let mut all = self.policy.iter().chain(&self.services);
        all.try_for_each(|provider| provider.prepare())
    }

    fn elements<'a>(&'a self, set: &str) -> Box<dyn Iterator<Item = Element> + 'a> {
        let provider = if services::provided().any(|known| known.name == set) {
            self.services
        } else {
            self.policy
        };
        match provider {
            Some(provider) => provider.elements(set),
            None => Box::new(std::iter::empty()),
        }
    }
}
