//! Other tables that drop what pods send or get. The table `inet tweed` cannot
//! overrule them, so they are named, with the cure.
//!
//! Looked at are the chains at the hook forward and what they jump to, read
//! only. A chain is reported if its policy, or a rule without condition such as
//! firewalld's last one, drops a packet from a pod or of an open flow to a pod.
//! It is no longer reported when its policy accepts, or when rules before the
//! drop accept both by the link's name (`tw*`) or group alone: as the cures do,
//! in the chain itself or in one that every packet comes by.
//!
//! The old iptables (`iptables-legacy`) is no part of nf_tables: `tweed_diagnosis::iptables_legacy`
//! sees to it.

use std::collections::BTreeSet;

use crate::error::Error;
use crate::notices::is_forward;
use crate::observe::{CHAIN_NAME, NAME, RULE_CHAIN, RULE_EXPRESSIONS, TABLE_NAME};
use crate::socket::{Query, Requests};
use crate::walk::{Fate, Probe, Walk};
use crate::wire::{self, Attributes};
use tweed_core::problem::{Problem, ProblemKind};

const GET_CHAIN: u8 = 4;
const GET_RULE: u8 = 7;
/// `NFTA_CHAIN_POLICY`.
const POLICY: u16 = 5;
/// `NF_DROP`.
const DROP: u32 = 0;

/// A chain at the hook forward.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Chain {
    family: u8,
    table: String,
    name: String,
    drops_by_policy: bool,
}

/// Family, table and name of a chain.
pub(super) type ChainName = (u8, String, String);

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Findings {
    /// One for each chain that drops.
    pub(super) problems: Vec<Problem>,
    /// The chains that were gone through.
    pub(super) chains: BTreeSet<ChainName>,
}

/// Looks at all tables but the own one.
pub(super) fn find(requests: &mut Requests) -> Result<Findings, Error> {
    let chains = requests.dump(&Query {
        message: GET_CHAIN,
        family: wire::FAMILY_ANY,
        attributes: Attributes::new(),
        object: "the chains at the hook forward",
    })?;
    let mut findings = Findings::default();
    for chain in chains
        .iter()
        .filter_map(|chain| read(chain.family, &chain.attributes))
    {
        let (problem, passed) = examine(requests, &chain)?;
        findings.problems.extend(problem);
        let name = |name| (chain.family, chain.table.clone(), name);
        findings.chains.extend(passed.into_iter().map(name));
    }
    Ok(findings)
}

fn read(family: u8, attributes: &[u8]) -> Option<Chain> {
    let text = |kind| wire::attribute(attributes, kind).and_then(wire::text);
    let table = text(TABLE_NAME)?;
    let ours = family == wire::FAMILY_INET && table == NAME;
    let routed = matches!(
        family,
        wire::FAMILY_INET | wire::FAMILY_IPV4 | wire::FAMILY_IPV6
    );
    (routed && !ours && is_forward(attributes)).then_some(Chain {
        family,
        table: table.to_owned(),
        name: text(CHAIN_NAME)?.to_owned(),
        drops_by_policy: wire::attribute(attributes, POLICY).and_then(wire::number) == Some(DROP),
    })
}

/// What `chain` drops, and the names of the chains that packets came by.
fn examine(
    requests: &mut Requests,
    chain: &Chain,
) -> Result<(Option<Problem>, BTreeSet<String>), Error> {
    let mut passed = BTreeSet::new();
    let mut dropped = Vec::new();
    for (probe, what) in [
        (Probe::FromPod, "what pods send"),
        (Probe::ToPod, "the answers to pods"),
    ] {
        let mut walk = Walk::new(probe, |name: &str| rules(requests, chain, name));
        let fate = walk.enter(&chain.name)?;
        passed.extend(walk.entered().iter().cloned());
        if fate == Fate::Dropped || (fate == Fate::Through && chain.drops_by_policy) {
            dropped.push(what);
        }
    }
    if dropped.is_empty() {
        return Ok((None, passed));
    }
    let family = family_word(chain.family);
    let how = if chain.drops_by_policy {
        "its policy is drop and no rule accepts them"
    } else {
        "a rule refuses them"
    };
    let problem = Problem::new(
        ProblemKind::ForwardDrop,
        format!("{family} {} {}", chain.table, chain.name),
        format!(
            "chain {} of table {family} {} drops {}: {how}",
            chain.name,
            chain.table,
            dropped.join(" and ")
        ),
    );
    Ok((Some(problem.with_cure(cure(chain, &passed))), passed))
}

fn rules(requests: &mut Requests, chain: &Chain, name: &str) -> Result<Vec<Vec<u8>>, Error> {
    let rules = requests.dump(&Query {
        message: GET_RULE,
        family: chain.family,
        attributes: Attributes::new()
            .text(TABLE_NAME, &chain.table)
            .text(RULE_CHAIN, name),
        object: name,
    })?;
    Ok(rules
        .iter()
        .filter_map(|rule| wire::attribute(&rule.attributes, RULE_EXPRESSIONS))
        .map(<[u8]>::to_vec)
        .collect())
}

/// The commands that make the chain let pods' packets pass and that whoever
/// manages it keeps. Names that begin with `tw` are pod links and `tweed.1`.
fn cure(chain: &Chain, passed: &BTreeSet<String>) -> String {
    let by = |prefix: &str| passed.iter().any(|name| name.starts_with(prefix));
    if chain.family == wire::FAMILY_INET && chain.table == "firewalld" {
        return "run `firewall-cmd --permanent --zone=trusted --add-interface=tw+ && \
                firewall-cmd --reload`"
            .to_owned();
    }
    if by("ufw-") || by("ufw6-") {
        return "run `ufw route allow in on tw+ && ufw route allow out on tw+`".to_owned();
    }
    let family = family_word(chain.family);
    if chain.family != wire::FAMILY_INET && chain.table == "filter" && chain.name == "FORWARD" {
        let program = match chain.family {
            wire::FAMILY_IPV6 => "ip6tables",
            _ => "iptables",
        };
        let target = if by("DOCKER-USER") {
            "DOCKER-USER"
        } else {
            "FORWARD"
        };
        return format!(
            "run `{program} -I {target} -i tw+ -j ACCEPT && {program} -I {target} -o tw+ -j ACCEPT`, \
             and after each reboot"
        );
    }
    let place = format!("nft insert rule {family} {} {}", chain.table, chain.name);
    format!(
        "run `{place} iifname 'tw*' accept && {place} oifname 'tw*' accept`, \
         and add both rules to the file that the table comes from"
    )
}

fn family_word(family: u8) -> &'static str {
    match family {
        wire::FAMILY_IPV4 => "ip",
        wire::FAMILY_IPV6 => "ip6",
        _ => "inet",
    }
}
