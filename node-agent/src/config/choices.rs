//! Flags whose value is one of a few words. The types belong to crates that do
//! not depend on clap, so their words are defined here.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use tweed_core::family::Family;
use tweed_planner::config::{Backend, Masquerade, MasqueradeNodes};

use super::LogFormat;

/// A type with one word on the command line for each of its values.
pub(super) trait Choice: Copy + Send + Sync + 'static {
    /// Each value, its word, and what it means.
    const WORDS: &'static [(Self, &'static str, &'static str)];
}

impl Choice for Backend {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Vxlan, "vxlan", "VXLAN to every node"),
        (Self::Direct, "direct", "Plain routes to every node"),
        (
            Self::CrossSubnet,
            "cross-subnet",
            "Plain routes to nodes on the same link, VXLAN to the others",
        ),
    ];
}

impl Choice for Family {
    const WORDS: &'static [(Self, &'static str, &'static str)] =
        &[(Self::V4, "ipv4", "IPv4"), (Self::V6, "ipv6", "IPv6")];
}

impl Choice for Masquerade {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (
            Self::RandomFully,
            "random-fully",
            "Chosen at random for each flow",
        ),
        (Self::Random, "random", "Randomised by a hash of the flow"),
        (Self::Off, "off", "Packets keep the pod's address"),
    ];
}

impl Choice for MasqueradeNodes {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (
            Self::Auto,
            "auto",
            "On with the backends vxlan and cross-subnet, off with direct",
        ),
        (Self::On, "on", "Always"),
        (Self::Off, "off", "Never"),
    ];
}

impl Choice for LogFormat {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Text, "text", "Plain text"),
        (Self::Json, "json", "One JSON object a line"),
    ];
}

/// A parser that takes the words of `T` and lists them in the help.
pub(super) fn choice<T: Choice>() -> impl TypedValueParser<Value = T> {
    let words = (T::WORDS.iter()).map(|(_, word, help)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(words).try_map(|typed| {
        let value = T::WORDS.iter().find(|(_, word, _)| *word == typed);
        value
            .map(|(value, ..)| *value)
            .ok_or("not one of the words")
    })
}
