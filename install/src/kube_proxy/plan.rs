//! What of a table of iptables goes with kube-proxy, whichever iptables made it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use tweed_diagnosis::service_proxy::kube_proxy::{MARK, POSTROUTING, is_chain, is_entry};

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    /// The chain that it is in.
    pub(super) chain: String,
    /// By which it can be deleted.
    pub(super) handle: u64,
    /// The chain that it leads to, if any.
    pub(super) to: Option<String>,
}

/// The chains and rules of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Table {
    /// Names of the chains, and whether each is one of iptables itself, at a hook.
    pub(super) chains: BTreeMap<String, bool>,
    /// Their rules.
    pub(super) rules: Vec<Rule>,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Removal {
    /// Rules that lead to kube-proxy's chains from those of iptables itself.
    pub(super) jumps: Vec<Rule>,
    /// Chains to be emptied and deleted.
    pub(super) chains: BTreeSet<String>,
    /// Chains of kube-proxy that stay, each with the chain of somebody else whose rule
    /// leads there, directly or not.
    pub(super) kept: BTreeMap<String, String>,
}

/// What goes: kube-proxy's chains and the rules that lead to them, but no chain to which
/// a rule of somebody else leads, nor what such a chain leads to. Packets that are marked
/// for masquerading need the chain that does it, and the rule that leads there. Where
/// nobody has such rules, nothing of kube-proxy stays.
pub(super) fn plan(table: &Table) -> Removal {
    let mut removal = Removal::default();
    let mut waiting: Vec<(&str, &str)> = Vec::new();
    let mut inner: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for rule in &table.rules {
        let Some(to) = rule.to.as_deref().filter(|to| is_chain(to)) else {
            continue;
        };
        let is_base = table.chains.get(&rule.chain).is_some_and(|base| *base);
        if is_base && is_entry(to) {
            removal.jumps.push(rule.clone());
        } else if is_chain(&rule.chain) {
            inner.entry(&rule.chain).or_default().push(to);
        } else {
            waiting.push((to, &rule.chain));
        }
    }
    while let Some((chain, owner)) = waiting.pop() {
        if removal.kept.contains_key(chain) {
            continue;
        }
        removal.kept.insert(chain.to_owned(), owner.to_owned());
        if chain == MARK && table.chains.contains_key(POSTROUTING) {
            waiting.push((POSTROUTING, owner));
        }
        let next = inner.get(chain).into_iter().flatten();
        waiting.extend(next.map(|to| (*to, owner)));
    }
    if removal.kept.contains_key(POSTROUTING) {
        let leads_elsewhere = |rule: &Rule| rule.to.as_deref() != Some(POSTROUTING);
        removal.jumps.retain(leads_elsewhere);
    }
    let all = table.chains.keys().filter(|name| is_chain(name));
    let gone = all.filter(|name| !removal.kept.contains_key(*name));
    removal.chains = gone.cloned().collect();
    removal
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of rules as words: `chain > target`; chains in lower case are at hooks.
    fn table(rules: &[&str]) -> Table {
        let mut table = Table::default();
        for (handle, text) in (1..).zip(rules) {
            let (chain, to) = text.split_once(" > ").unwrap();
            for name in [chain, to] {
                let is_base = name.bytes().all(|byte| byte.is_ascii_lowercase());
                table.chains.insert(name.to_owned(), is_base);
            }
            table.rules.push(Rule {
                chain: chain.to_owned(),
                handle,
                to: Some(to.to_owned()),
            });
        }
        table
    }

    fn handles(removal: &Removal) -> Vec<u64> {
        removal.jumps.iter().map(|rule| rule.handle).collect()
    }

    #[test]
    fn all_of_kube_proxy_goes_and_nothing_else() {
        let removal = plan(&table(&[
            "prerouting > KUBE-SERVICES",
            "prerouting > MINE",
            "output > KUBE-SERVICES",
            "output > KUBE-FIREWALL",
            "KUBE-SERVICES > KUBE-SVC-AAAAAAAAAAAAAAAA",
            "KUBE-SVC-AAAAAAAAAAAAAAAA > KUBE-MARK-MASQ",
            "postrouting > KUBE-POSTROUTING",
        ]));
        assert_eq!(handles(&removal), [1, 3, 7]);
        let gone: Vec<&str> = removal.chains.iter().map(String::as_str).collect();
        let expected = [
            "KUBE-MARK-MASQ",
            "KUBE-POSTROUTING",
            "KUBE-SERVICES",
            "KUBE-SVC-AAAAAAAAAAAAAAAA",
        ];
        assert_eq!(gone, expected);
        assert!(removal.kept.is_empty());
    }

    /// The plugin portmap can be told to use kube-proxy's chain, and so can people.
    #[test]
    fn what_somebody_else_uses_stays_with_what_it_needs() {
        let removal = plan(&table(&[
            "prerouting > KUBE-SERVICES",
            "KUBE-SERVICES > KUBE-EXT-AAAAAAAAAAAAAAAA",
            "MINE > KUBE-EXT-AAAAAAAAAAAAAAAA",
            "KUBE-EXT-AAAAAAAAAAAAAAAA > KUBE-MARK-MASQ",
        ]));
        assert_eq!(handles(&removal), [1]);
        assert_eq!(removal.chains, BTreeSet::from(["KUBE-SERVICES".to_owned()]));
        let kept: Vec<(&str, &str)> = (removal.kept.iter())
            .map(|(chain, owner)| (chain.as_str(), owner.as_str()))
            .collect();
        let expected = [
            ("KUBE-EXT-AAAAAAAAAAAAAAAA", "MINE"),
            ("KUBE-MARK-MASQ", "MINE"),
        ];
        assert_eq!(kept, expected);
        // What is marked has to be masqueraded.
        let removal = plan(&table(&[
            "postrouting > KUBE-POSTROUTING",
            "prerouting > KUBE-SERVICES",
            "MINE > KUBE-MARK-MASQ",
        ]));
        assert_eq!(handles(&removal), [2]);
        assert_eq!(removal.chains, BTreeSet::from(["KUBE-SERVICES".to_owned()]));
        // kube-proxy marks nothing in a chain at a hook.
        let removal = plan(&table(&["prerouting > KUBE-MARK-MASQ"]));
        assert!(removal.jumps.is_empty());
        assert_eq!(removal.kept["KUBE-MARK-MASQ"], "prerouting");
    }
}
