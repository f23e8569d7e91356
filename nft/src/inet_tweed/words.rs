//! What the rules of all parts of the table are written with.

use std::borrow::Cow;

use super::Stage;
use crate::table::{Chain, Hook};

/// A chain that packets enter by themselves.
pub(super) fn base(
    name: &'static str,
    (kind, hook, stage): (&'static str, &'static str, Stage),
    rules: Vec<String>,
) -> Chain {
    let hook = Some(Hook {
        kind,
        hook,
        priority: stage as i32,
    });
    let name = name.into();
    Chain { name, hook, rules }
}

/// A chain that packets enter only from other chains.
pub(super) fn regular(name: impl Into<Cow<'static, str>>, rules: Vec<String>) -> Chain {
    Chain {
        name: name.into(),
        hook: None,
        rules,
    }
}

/// What differs between the families in the text of a rule.
pub(super) struct Words {
    /// The protocol: `ip`.
    pub(super) ip: &'static str,
    /// The sets' digit.
    pub(super) digit: char,
    /// The range of multicast.
    pub(super) multicast: &'static str,
}

/// IPv4's and IPv6's, in the order in which the table names them.
pub(super) const WORDS: [Words; 2] = [
    Words {
        ip: "ip",
        digit: '4',
        multicast: "224.0.0.0/4",
    },
    Words {
        ip: "ip6",
        digit: '6',
        multicast: "ff00::/8",
    },
];
