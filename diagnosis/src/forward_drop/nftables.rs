//! Finds the chains of other tables that drop what pods send or get.
//!
//! Looked at are the chains at the hook forward and what they jump to. A chain is
//! reported if its policy, or a rule without condition such as firewalld's last one,
//! drops a packet from a pod or of an open flow to a pod. It is no longer reported
//! when its policy accepts, or when rules before the drop accept both by the link's
//! name (`tw*`) or group alone: as the cures do, in the chain itself or in one that
//! every packet passes through.

use std::collections::BTreeSet;

use tweed_core::problem::{Problem, ProblemKind};
use tweed_netlink::nf::object::{
    self, CHAIN_NAME, CHAIN_POLICY, RULE_EXPRESSIONS, TABLE_NAME, TableKey,
};
use tweed_netlink::nf::{FAMILY_INET, FAMILY_IPV4, FAMILY_IPV6, Message, Socket, family_word};
use tweed_netlink::{Error, nf::attributes::number};

use super::walk::{Fate, Walk};
use super::{is_at_forward, is_own};
use crate::probe;

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

impl Chain {
    fn table(&self) -> TableKey<'_> {
        TableKey {
            family: self.family,
            name: &self.table,
        }
    }
}

/// Family, table and name of a chain.
pub(super) type ChainName = (u8, String, String);

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Findings {
    /// One for each chain that drops.
    pub(super) problems: Vec<Problem>,
    /// The chains that forwarded packets pass through.
    pub(super) chains: BTreeSet<ChainName>,
}

/// Looks at all tables but the own one.
pub(super) fn find(socket: &mut Socket) -> Result<Findings, Error> {
    let chains = object::chains(socket)?;
    let mut findings = Findings::default();
    for chain in chains.iter().filter_map(read) {
        let (problem, passed) = examine(socket, &chain)?;
        findings.problems.extend(problem);
        let name = |name| (chain.family, chain.table.clone(), name);
        findings.chains.extend(passed.into_iter().map(name));
    }
    Ok(findings)
}

fn read(chain: &Message) -> Option<Chain> {
    let is_routed = matches!(chain.family, FAMILY_INET | FAMILY_IPV4 | FAMILY_IPV6);
    let table = chain.text(TABLE_NAME)?;
    (is_routed && !is_own(chain.family, table) && is_at_forward(chain)).then_some(Chain {
        family: chain.family,
        table: table.to_owned(),
        name: chain.text(CHAIN_NAME)?.to_owned(),
        drops_by_policy: chain.attribute(CHAIN_POLICY).and_then(number) == Some(DROP),
    })
}

/// What `chain` drops, and the names of the chains that packets passed through.
fn examine(
    socket: &mut Socket,
    chain: &Chain,
) -> Result<(Option<Problem>, BTreeSet<String>), Error> {
    let mut passed = BTreeSet::new();
    let dropped = probe::dropped(|probe| {
        let mut walk = Walk::new(probe, |name: &str| rules(socket, chain, name));
        let fate = walk.enter(&chain.name)?;
        passed.extend(walk.entered);
        Ok(fate == Fate::Dropped || (fate == Fate::Through && chain.drops_by_policy))
    })?;
    let Some(dropped) = dropped else {
        return Ok((None, passed));
    };
    let Chain { table, name, .. } = chain;
    let family = family_word(chain.family);
    let how = match chain.drops_by_policy {
        true => "its policy is drop and no rule accepts them",
        false => "a rule refuses them",
    };
    let problem = Problem::new(
        ProblemKind::ForwardDrop,
        format!("{family} {table} {name}"),
        format!("chain {name} of table {family} {table} drops {dropped}: {how}"),
    );
    Ok((Some(problem.with_cure(cure(chain, &passed))), passed))
}

fn rules(socket: &mut Socket, chain: &Chain, name: &str) -> Result<Vec<Vec<u8>>, Error> {
    let rules = chain.table().rules(socket, Some(name))?;
    let expressions = |rule: &Message| Some(rule.attribute(RULE_EXPRESSIONS)?.to_vec());
    Ok(rules.iter().filter_map(expressions).collect())
}

/// The commands that make the chain let pods' packets pass and that whoever
/// manages it keeps. Names that begin with `tw` are pod links and `tweed.1`.
fn cure(chain: &Chain, passed: &BTreeSet<String>) -> String {
    let by = |prefix: &str| passed.iter().any(|name| name.starts_with(prefix));
    if chain.family == FAMILY_INET && chain.table == "firewalld" {
        return "run `firewall-cmd --permanent --zone=trusted --add-interface=tw+ && \
                firewall-cmd --reload`"
            .to_owned();
    }
    if by("ufw-") || by("ufw6-") {
        return "run `ufw route allow in on tw+ && ufw route allow out on tw+`".to_owned();
    }
    let family = family_word(chain.family);
    if chain.family != FAMILY_INET && chain.table == "filter" && chain.name == "FORWARD" {
        let program = match chain.family {
            FAMILY_IPV6 => "ip6tables",
            _ => "iptables",
        };
        let target = match by("DOCKER-USER") {
            true => "DOCKER-USER",
            false => "FORWARD",
        };
        return probe::iptables_cure(program, target);
    }
    let place = format!("nft insert rule {family} {} {}", chain.table, chain.name);
    format!(
        "run `{place} iifname 'tw*' accept && {place} oifname 'tw*' accept`, \
         and add both rules to the file that the table comes from"
    )
}
