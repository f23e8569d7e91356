//! Flags whose value is one of a few words. The types belong to crates that do
//! not depend on clap, so their words are defined here.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use tweed_core::family::Family;
use tweed_planner::config::{Backend, Masquerade, MasqueradeIpv6, MasqueradeNodes};

use super::{FastPath, LogFormat, MetricsAuth};

/// A type with one word on the command line for each of its values.
pub(super) trait Choice: Copy + Send + Sync + 'static {
    /// Each value, its word, and what it means.
    const WORDS: &'static [(Self, &'static str, &'static str)];
}

macro_rules! choices {
    ($($type:ident { $($value:ident, $word:literal, $help:literal;)+ })+) => {$(
        impl Choice for $type {
            const WORDS: &'static [(Self, &'static str, &'static str)] =
                &[$((Self::$value, $word, $help)),+];
        }
    )+};
}

choices! {
    Backend {
        Vxlan, "vxlan", "VXLAN to every node";
        Direct, "direct", "Plain routes to every node";
        CrossSubnet, "cross-subnet", "Plain routes to nodes on the same link, VXLAN to the others";
    }
    Family {
        V4, "ipv4", "IPv4";
        V6, "ipv6", "IPv6";
    }
    FastPath {
        Off, "off", "They do not; programs of an earlier run are removed";
        Auto, "auto", "They do, where this node can; where it cannot, its status says why";
        On, "on", "They do; where this node cannot, that is a warning";
    }
    Masquerade {
        RandomFully, "random-fully", "Chosen at random for each flow";
        Random, "random", "Randomised by a hash of the flow";
        Off, "off", "Packets keep the pod's address";
    }
    MasqueradeIpv6 {
        Auto, "auto", "Unless this node's IPv6 pod CIDR is global unicast (2000::/3)";
        On, "on", "Always, unless --masquerade is off";
        Off, "off", "Never";
    }
    MasqueradeNodes {
        Auto, "auto", "On with the backends vxlan and cross-subnet, off with direct";
        On, "on", "Always, unless --masquerade is off";
        Off, "off", "Never";
    }
    MetricsAuth {
        None, "none", "Everybody who reaches the address, by plain HTTP";
        TokenReview, "token-review", "Who sends a bearer token that the API server accepts for the path, over TLS with a self-signed certificate";
    }
    LogFormat {
        Text, "text", "Plain text";
        Json, "json", "One JSON object a line";
    }
}

/// A parser that takes `on` and `off`, with what each means in the help.
pub(super) fn switch(on: &'static str, off: &'static str) -> impl TypedValueParser<Value = bool> {
    let words = [("on", on), ("off", off)].map(|(word, help)| PossibleValue::new(word).help(help));
    PossibleValuesParser::new(words).map(|typed| typed == "on")
}

/// A parser that takes the words of `T` and lists them in the help.
pub(super) fn choice<T: Choice>() -> impl TypedValueParser<Value = T> {
    let words = (T::WORDS.iter()).map(|(_, word, help)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(words).try_map(|typed| {
        let found = T::WORDS.iter().find(|(_, word, _)| *word == typed);
        found.map(|found| found.0).ok_or("not one of the words")
    })
}
