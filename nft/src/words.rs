//! What the rules of all tables are written with.

use std::borrow::Cow;

use tweed_core::family::Family;

use crate::table::{Chain, Hook};

/// The digit of a family at the end of a name.
pub(crate) fn digit(family: Family) -> char {
    match family {
        Family::V4 => '4',
        Family::V6 => '6',
    }
}

/// A chain that packets enter by themselves.
pub(crate) fn base(
    name: &'static str,
    (kind, hook, priority): (&'static str, &'static str, i32),
    rules: Vec<String>,
) -> Chain {
    let hook = Some(Hook {
        kind,
        hook,
        priority,
    });
    let name = name.into();
    Chain { name, hook, rules }
}

/// A chain that packets enter only from other chains.
pub(crate) fn regular(name: impl Into<Cow<'static, str>>, rules: Vec<String>) -> Chain {
    Chain {
        name: name.into(),
        hook: None,
        rules,
    }
}

/// What differs between the families in the text of a rule.
pub(crate) struct Words {
    /// The protocol: `ip`.
    pub(crate) ip: &'static str,
    /// The sets' digit.
    pub(crate) digit: char,
    /// The range of multicast.
    pub(crate) multicast: &'static str,
}

/// IPv4's and IPv6's, in the order in which the table names them.
pub(crate) const WORDS: [Words; 2] = [
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
