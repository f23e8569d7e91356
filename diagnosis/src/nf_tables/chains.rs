//! Finds the chains of other tables that drop packets of the overlay or of pods, or that
//! translate those from pod to pod.
//!
//! Looked at are the chains at the hooks forward, input and output, those of type `nat` at
//! the hook postrouting, and what they jump to. A chain at the hook forward is reported if its policy, or a rule without condition
//! such as firewalld's last one, drops a packet from a pod or of an open flow to a
//! pod, or, with direct routes, one that a pod of another node opens a flow with. It is no
//! longer reported when its policy accepts, or when rules before the drop
//! accept both by the link's name (`tw*`) or group alone: as the cures do, in the chain
//! itself or in one that every packet passes through. A chain at the hook input or
//! output is reported if no rule accepts, and none may accept, the VXLAN packets of other
//! nodes or to them. A chain at the hook postrouting is reported if a rule certainly gives
//! the first packet of TCP from pod to pod another source, and none may accept it or return
//! before. A chain for a family that no pod has, or not the overlay, is left out.
//!
//! A table that is dormant (`flags dormant`) filters nothing: its chains are left out.

use std::collections::BTreeSet;

use tweed_core::{family::Family, problem::Problem};
use tweed_netlink::nf::object::{
    self, CHAIN_NAME, CHAIN_POLICY, ELEMENTS, RULE_EXPRESSIONS, TABLE_FLAG_DORMANT, TABLE_FLAGS,
    TABLE_NAME, TableKey,
};
use tweed_netlink::nf::{
    FAMILY_INET, FAMILY_IPV4, FAMILY_IPV6, Message, Socket, family_word, iptables_word,
};
use tweed_netlink::{Error, nf::attributes::number};

use super::rule::judge;
use super::{hook, is_own, set};
use crate::probe::{self, Hook, Packets, Probe};
use crate::walk::{Rule, Walk};

/// `NF_DROP`.
const DROP: u32 = 0;

/// A chain at a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Chain {
    family: u8,
    table: String,
    name: String,
    hook: Hook,
    drops_by_policy: bool,
}

impl Chain {
    fn table(&self) -> TableKey<'_> {
        TableKey {
            family: self.family,
            name: &self.table,
        }
    }

    /// The packets that have to pass it.
    fn probes(&self, packets: &Packets) -> Vec<Probe> {
        let family = match self.family {
            FAMILY_IPV4 => Some(Family::V4),
            FAMILY_IPV6 => Some(Family::V6),
            _ => None,
        };
        self.hook.probes(packets, family)
    }
}

/// Family, table and name of a chain.
pub(super) type ChainName = (u8, String, String);

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Findings {
    /// One for each chain that drops.
    pub(super) problems: Vec<Problem>,
    /// The chains that the packets pass through.
    pub(super) chains: BTreeSet<ChainName>,
}

/// Where the tables are read from.
pub trait Ruleset {
    /// Why they cannot be read.
    type Error;

    /// The tables of all families.
    ///
    /// # Errors
    /// They cannot be read; likewise the others.
    fn tables(&mut self) -> Result<Vec<Message>, Self::Error>;

    /// The chains of all tables and families.
    ///
    /// # Errors
    /// As [`Self::tables`].
    fn chains(&mut self) -> Result<Vec<Message>, Self::Error>;

    /// The rules of a chain, in their order.
    ///
    /// # Errors
    /// As [`Self::tables`].
    fn rules(&mut self, table: TableKey<'_>, chain: &str) -> Result<Vec<Message>, Self::Error>;

    /// The elements of a set, in several messages.
    ///
    /// # Errors
    /// As [`Self::tables`].
    fn elements(&mut self, table: TableKey<'_>, set: &str) -> Result<Vec<Message>, Self::Error>;
}

/// The tables of the kernel.
impl Ruleset for Socket {
    type Error = Error;

    fn tables(&mut self) -> Result<Vec<Message>, Error> {
        object::tables(self)
    }

    fn chains(&mut self) -> Result<Vec<Message>, Error> {
        object::chains(self)
    }

    fn rules(&mut self, table: TableKey<'_>, chain: &str) -> Result<Vec<Message>, Error> {
        table.rules(self, Some(chain))
    }

    fn elements(&mut self, table: TableKey<'_>, set: &str) -> Result<Vec<Message>, Error> {
        table.elements(self, set)
    }
}

/// Looks at all tables but the own one.
pub(super) fn find<R: Ruleset>(ruleset: &mut R, packets: &Packets) -> Result<Findings, R::Error> {
    let mut dormant = ruleset.tables()?;
    dormant.retain(is_dormant);
    let mut findings = Findings::default();
    let chains = ruleset.chains()?;
    for chain in chains.iter().filter_map(read) {
        let is_its = |table: &Message| {
            (table.family, table.text(TABLE_NAME)) == (chain.family, Some(&chain.table))
        };
        if dormant.iter().any(is_its) {
            continue;
        }
        let (problem, passed) = examine(ruleset, &chain, &chain.probes(packets))?;
        findings.problems.extend(problem);
        let name = |name| (chain.family, chain.table.clone(), name);
        findings.chains.extend(passed.into_iter().map(name));
    }
    Ok(findings)
}

/// Whether no packet passes through the chains of this table.
fn is_dormant(table: &Message) -> bool {
    let flags = table.attribute(TABLE_FLAGS).and_then(number);
    flags.unwrap_or_default() & TABLE_FLAG_DORMANT != 0
}

fn read(chain: &Message) -> Option<Chain> {
    let is_routed = matches!(chain.family, FAMILY_INET | FAMILY_IPV4 | FAMILY_IPV6);
    let table = chain.text(TABLE_NAME)?;
    (is_routed && !is_own(chain.family, table)).then_some(Chain {
        family: chain.family,
        table: table.to_owned(),
        name: chain.text(CHAIN_NAME)?.to_owned(),
        hook: hook(chain)?,
        drops_by_policy: chain.attribute(CHAIN_POLICY).and_then(number) == Some(DROP),
    })
}

/// What `chain` drops, and the names of the chains that packets passed through.
fn examine<R: Ruleset>(
    ruleset: &mut R,
    chain: &Chain,
    probes: &[Probe],
) -> Result<(Option<Problem>, BTreeSet<String>), R::Error> {
    let mut passed = BTreeSet::new();
    let dropped = probe::dropped(probes, |probe: &Probe| {
        let table = chain.table();
        let mut walk = Walk::new(|chain: &String| rules(ruleset, table, chain, probe));
        let outcomes = walk.enter(&chain.name)?;
        passed.append(&mut walk.entered);
        Ok(probe.is_harmed(&outcomes, chain.drops_by_policy))
    })?;
    let Some(dropped) = dropped else {
        return Ok((None, passed));
    };
    let Chain { table, name, .. } = chain;
    let family = family_word(chain.family);
    let how = if chain.drops_by_policy {
        "its policy is drop and no rule accepts them"
    } else {
        "a rule refuses them"
    };
    let object = format!("{family} {table} {name}");
    let what = format!("{name} of table {family} {table}");
    let problem = chain.hook.problem(object, &what, &dropped, how);
    let cure = cure(chain, &passed, probes);
    Ok((Some(problem.with_cure(cure)), passed))
}

/// The rules of a chain that the packet meets or may meet.
fn rules<R: Ruleset>(
    ruleset: &mut R,
    table: TableKey<'_>,
    chain: &str,
    probe: &Probe,
) -> Result<Vec<Rule<String>>, R::Error> {
    let dumped = ruleset.rules(table, chain)?;
    let mut sets = |set: &str| {
        let dump = ruleset.elements(table, set)?;
        let lists = dump.iter().filter_map(|part| part.attribute(ELEMENTS));
        Ok::<_, R::Error>(set::read(lists))
    };
    let mut rules = Vec::new();
    for rule in dumped {
        let expressions = rule.attribute(RULE_EXPRESSIONS).unwrap_or_default();
        rules.extend(judge(expressions, probe, &mut sets)?);
    }
    Ok(rules)
}

/// By firewalld's own program: it replaces its table at each reload, and may own it.
/// What pods of other nodes send by direct routes comes in by the link of another zone.
fn firewalld_cure(hook: Hook, vxlan: Option<u16>, has_peers: bool) -> String {
    let run =
        |what: &str| format!("run `firewall-cmd --permanent {what} && firewall-cmd --reload`");
    match (hook, vxlan) {
        (Hook::Input, Some(port)) => format!(
            "{}; if the link to the other nodes is not in the default zone (`firewall-cmd \
             --get-active-zones` names its zone), with `--zone=ZONE --add-port={port}/udp`",
            run(&format!("--add-port={port}/udp"))
        ),
        (Hook::Output, Some(port)) => format!(
            "{}, with the name of the policy that refuses them (`firewall-cmd \
             --list-all-policies`)",
            run(&format!("--policy=POLICY --add-port={port}/udp"))
        ),
        (Hook::Postrouting, _) => format!(
            "{}, with the zone of that link (`firewall-cmd --get-active-zones` names it): what \
             pods send to the world is masqueraded by tweed",
            run("--zone=ZONE --remove-masquerade")
        ),
        _ if has_peers => {
            let arguments = [
                "--new-policy=tweed",
                "--policy=tweed --add-ingress-zone=ANY",
                "--policy=tweed --add-egress-zone=trusted",
                "--policy=tweed --set-target=ACCEPT",
            ];
            let commands = arguments.map(|what| format!(" && firewall-cmd --permanent {what}"));
            run(&format!(
                "--zone=trusted --add-interface=tw+{}",
                commands.concat()
            ))
        }
        _ => run("--zone=trusted --add-interface=tw+"),
    }
}

/// The commands that make the chain let the packets pass and that whoever manages it
/// keeps. Names that begin with `tw` are pod links and `tweed.1`.
fn cure(chain: &Chain, passed: &BTreeSet<String>, probes: &[Probe]) -> String {
    let by = |name: &str| passed.contains(name);
    let vxlan = probes.iter().find_map(|probe| probe.port);
    if chain.family == FAMILY_INET && chain.table == "firewalld" {
        return firewalld_cure(chain.hook, vxlan, probes.iter().any(Probe::is_from_peer));
    }
    // What `ufw` is told gets into these. It leaves others behind when it is disabled.
    let of_user = chain.hook.chain().to_lowercase();
    if ["ufw", "ufw6"]
        .iter()
        .any(|ufw| by(&format!("{ufw}-user-{of_user}")))
    {
        return match vxlan {
            Some(port) if chain.hook == Hook::Output => format!("run `ufw allow out {port}/udp`"),
            Some(port) => format!("run `ufw allow {port}/udp`"),
            None => "run `ufw route allow in on tw+ && ufw route allow out on tw+`".to_owned(),
        };
    }
    let family = family_word(chain.family);
    let iptables = chain.hook.chain();
    let is_iptables = chain.table == chain.hook.table() && chain.name == iptables;
    if chain.family != FAMILY_INET && is_iptables {
        let program = iptables_word(chain.family);
        let target = if by("DOCKER-USER") {
            "DOCKER-USER"
        } else {
            iptables
        };
        return probe::iptables_cure(program, target, probes);
    }
    let place = format!("nft insert rule {family} {} {}", chain.table, chain.name);
    if chain.hook == Hook::Postrouting {
        return probe::translation_cure(probes, |of, from, to| {
            let ip = if of == Family::V4 { "ip" } else { "ip6" };
            format!("{place} meta mark and 0x4000 == 0 {ip} saddr {from} {ip} daddr {to} accept")
        });
    }
    match vxlan {
        Some(port) => format!(
            "run `{place} udp dport {port} accept`, and add the rule to the file that the table \
             comes from"
        ),
        None => format!(
            "run `{place} iifname 'tw*' accept && {place} oifname 'tw*' accept`, \
             and add both rules to the file that the table comes from"
        ),
    }
}
