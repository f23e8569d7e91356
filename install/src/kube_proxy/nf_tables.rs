//! What kube-proxy has in nf_tables: tables of its own, and chains of iptables.

use std::collections::BTreeSet;

use tweed_diagnosis::service_proxy::kube_proxy::{FAMILIES, IPTABLES, TABLE};
use tweed_netlink::Error;
use tweed_netlink::nf::attributes::{each, find, text};
use tweed_netlink::nf::object::{
    CHAIN_NAME, DELETE_CHAIN, DELETE_RULE, DELETE_TABLE, EXPRESSION_DATA, EXPRESSION_NAME,
    RULE_CHAIN, RULE_EXPRESSIONS, RULE_HANDLE, TABLE_NAME, TableKey, chains,
};
use tweed_netlink::nf::verdict::Verdict;
use tweed_netlink::nf::{Attributes, Message, Socket, Transaction, iptables_word};

use super::plan::{Removal, Rule, Table, plan};
use crate::error::InstallError;
use crate::journal::{Action, Journal};

/// Removes them, a table at a time: each whole or not at all. Returns the names of the
/// chains that others need.
pub(super) fn remove(journal: &mut Journal<'_>) -> Result<BTreeSet<String>, InstallError> {
    let mut socket = Socket::open()?;
    let mut kept = BTreeSet::new();
    for family in FAMILIES {
        let own = TableKey {
            family,
            name: TABLE,
        };
        if own.get(&mut socket)?.is_some() {
            let mut transaction = Transaction::new(format!("table {own}"));
            transaction.delete(own.message(DELETE_TABLE, Attributes::new()));
            let object = format!("nftables table {own}");
            journal.act(Action::REMOVE, object, || Ok(socket.commit(&transaction)?));
        }
        for name in IPTABLES {
            let key = TableKey { family, name };
            let removal = plan(&read(&mut socket, key)?);
            remove_chains(&mut socket, key, &removal, journal);
            kept.extend(removal.kept.into_keys());
        }
    }
    Ok(kept)
}

fn remove_chains(
    socket: &mut Socket,
    key: TableKey<'_>,
    removal: &Removal,
    journal: &mut Journal<'_>,
) {
    let program = iptables_word(key.family);
    for (chain, owner) in &removal.kept {
        let object = format!("chain {chain} of {program} table {}", key.name);
        let why = format_args!(
            "a rule of chain {owner} needs it; once that rule is gone, this can be run again"
        );
        journal.kept(object, why);
    }
    if removal.jumps.is_empty() && removal.chains.is_empty() {
        return;
    }
    let object = super::object(program, key.name, removal);
    let transaction = transaction(key, removal);
    journal.act(Action::REMOVE, object, || Ok(socket.commit(&transaction)?));
}

/// First the rules that lead to the chains, then what the chains hold, since they lead to
/// each other, then the chains.
fn transaction(key: TableKey<'_>, removal: &Removal) -> Transaction {
    let mut transaction = Transaction::new(format!("table {key}"));
    let in_chain = |chain: &str| Attributes::new().text(RULE_CHAIN, chain);
    for rule in &removal.jumps {
        let one = in_chain(&rule.chain).bytes(RULE_HANDLE, &rule.handle.to_be_bytes());
        transaction.delete(key.message(DELETE_RULE, one));
    }
    for chain in &removal.chains {
        transaction.delete(key.message(DELETE_RULE, in_chain(chain)));
    }
    for chain in &removal.chains {
        let name = Attributes::new().text(CHAIN_NAME, chain);
        transaction.delete(key.message(DELETE_CHAIN, name));
    }
    transaction
}

fn read(socket: &mut Socket, key: TableKey<'_>) -> Result<Table, Error> {
    let mut table = Table::default();
    for chain in chains(socket)? {
        let is_in_table = chain.family == key.family && chain.text(TABLE_NAME) == Some(key.name);
        if let Some(name) = chain.text(CHAIN_NAME).filter(|_| is_in_table) {
            let is_base = chain.hook().is_some();
            table.chains.insert(name.to_owned(), is_base);
        }
    }
    if !table.chains.is_empty() {
        let rules = key.rules(socket, None)?;
        table.rules = rules.iter().filter_map(rule).collect();
    }
    Ok(table)
}

fn rule(message: &Message) -> Option<Rule> {
    let handle = message.attribute(RULE_HANDLE)?.try_into().ok()?;
    let expressions = message.attribute(RULE_EXPRESSIONS).unwrap_or_default();
    Some(Rule {
        chain: message.text(RULE_CHAIN)?.to_owned(),
        handle: u64::from_be_bytes(handle),
        to: each(expressions).find_map(|(_, expression)| target(expression)),
    })
}

/// The chain that an expression leads to. iptables has no maps of verdicts.
fn target(expression: &[u8]) -> Option<String> {
    /// `NFTA_IMMEDIATE_DATA`
    const DATA: u16 = 2;
    if find(expression, EXPRESSION_NAME).and_then(text) != Some("immediate") {
        return None;
    }
    match Verdict::read(find(find(expression, EXPRESSION_DATA)?, DATA)?)? {
        Verdict::Jump(chain) | Verdict::Goto(chain) => Some(chain),
        Verdict::Accept | Verdict::Drop | Verdict::Return => None,
    }
}
