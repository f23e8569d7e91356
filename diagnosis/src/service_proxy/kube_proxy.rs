//! What kube-proxy makes in the kernel, in each of its modes, as of Kubernetes 1.35, and
//! as far back as nodes may still have it.
//!
//! Not kube-proxy's, though their names begin in the same way: `KUBE-FIREWALL`,
//! `KUBE-IPTABLES-HINT`, `KUBE-KUBELET-CANARY` and `KUBE-MARK-DROP`, which the kubelet
//! makes and needs, and the chains of kube-router (`KUBE-ROUTER-…`, `KUBE-NWPLCY-…`).

use std::fmt;

use tweed_netlink::Error;
use tweed_netlink::nf::object::TableKey;
use tweed_netlink::nf::{FAMILY_IPV4, FAMILY_IPV6, Socket, family_word, iptables_word};

use crate::iptables_legacy;

/// The table of its mode `nftables`, one of each family.
pub const TABLE: &str = "kube-proxy";
/// The dummy link of its mode `ipvs`, with the addresses of all Services.
pub const IPVS_LINK: &str = "kube-ipvs0";
/// The tables of iptables in which it has chains.
pub const IPTABLES: [&str; 3] = ["filter", "mangle", "nat"];
/// The families that it serves.
pub const FAMILIES: [u8; 2] = [FAMILY_IPV4, FAMILY_IPV6];

/// Its chain that marks packets, to which rules of others may lead (the plugin portmap can
/// be told to use it)…
pub const MARK: &str = "KUBE-MARK-MASQ";
/// … and the one that masquerades the packets that are marked.
pub const POSTROUTING: &str = "KUBE-POSTROUTING";
/// The table of iptables in which these two are.
const NAT: &str = "nat";

/// Its chains that chains of iptables itself (`INPUT`, …) lead to.
const ENTRIES: [&str; 9] = [
    "KUBE-EXTERNAL-SERVICES",
    "KUBE-FORWARD",
    "KUBE-IPVS-FILTER",
    "KUBE-IPVS-OUT-FILTER",
    "KUBE-NODE-PORT",
    "KUBE-NODEPORTS",
    POSTROUTING,
    "KUBE-PROXY-FIREWALL",
    "KUBE-SERVICES",
];
/// Its other chains with fixed names.
const INNER: [&str; 4] = [
    "KUBE-LOAD-BALANCER",
    MARK,
    "KUBE-PROXY-CANARY",
    "KUBE-SOURCE-RANGES-FIREWALL",
];
/// How the names of its chains for a Service port or an endpoint begin; a hash follows.
const OF_SERVICES: [&str; 6] = [
    "KUBE-EXT-",
    "KUBE-FW-",
    "KUBE-SEP-",
    "KUBE-SVC-",
    "KUBE-SVL-",
    "KUBE-XLB-",
];
/// The length of that hash.
const HASH: usize = 16;

/// Whether a chain of iptables is kube-proxy's.
pub fn is_chain(name: &str) -> bool {
    let is_hash = |hash: &str| {
        let is_base32 = |byte| matches!(byte, b'A'..=b'Z' | b'2'..=b'7');
        hash.len() == HASH && hash.bytes().all(is_base32)
    };
    let mut prefixes = OF_SERVICES.iter();
    is_fixed(name) || prefixes.any(|prefix| name.strip_prefix(prefix).is_some_and(is_hash))
}

/// Whether a rule that leads from a chain of iptables itself to this one is kube-proxy's.
pub fn is_entry(name: &str) -> bool {
    ENTRIES.contains(&name)
}

fn is_fixed(name: &str) -> bool {
    is_entry(name) || INNER.contains(&name)
}

/// Something that only a kube-proxy makes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trace {
    /// The table of its mode `nftables`.
    Table {
        /// `NFPROTO_…`.
        family: u8,
    },
    /// Chains in a table of iptables.
    Chains {
        /// The program that shows them.
        program: String,
        /// The table.
        table: &'static str,
        /// Those with fixed names.
        names: Vec<String>,
    },
    /// The link of its mode `ipvs`.
    IpvsLink,
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table { family } => write!(f, "nftables table {} {TABLE}", family_word(*family)),
            Self::Chains {
                program,
                table,
                names,
            } => write!(f, "{program} table {table} ({})", names.join(" ")),
            Self::IpvsLink => write!(f, "link {IPVS_LINK}"),
        }
    }
}

/// What nf_tables has of it: its own tables, and chains that iptables made there.
///
/// # Errors
/// The kernel cannot be asked.
pub fn of_nf_tables(socket: &mut Socket) -> Result<Vec<Trace>, Error> {
    let mut traces = Vec::new();
    for family in FAMILIES {
        if (TableKey {
            family,
            name: TABLE,
        })
        .get(socket)?
        .is_some()
        {
            traces.push(Trace::Table { family });
        }
        for table in IPTABLES {
            let key = TableKey {
                family,
                name: table,
            };
            if key.get(socket)?.is_none() {
                continue;
            }
            let mut names = Vec::new();
            for chain in ENTRIES.iter().chain(&INNER) {
                if key.chain(socket, chain)?.is_some() {
                    names.push((*chain).to_owned());
                }
            }
            traces.extend(chains(iptables_word(family), table, names));
        }
    }
    Ok(traces)
}

/// What the old iptables has of it.
///
/// # Errors
/// The kernel cannot be asked.
pub fn of_legacy() -> Result<Vec<Trace>, iptables_legacy::Error> {
    let mut traces = Vec::new();
    for table in IPTABLES {
        for (program, mut names) in iptables_legacy::chains(table)? {
            names.retain(|name| is_fixed(name));
            traces.extend(chains(&program, table, names));
        }
    }
    Ok(traces)
}

/// What there is in a table. The chains that others may use are none of kube-proxy's rules
/// by themselves: they only do what others ask them for.
fn chains(program: &str, table: &'static str, names: Vec<String>) -> Option<Trace> {
    let is_trace = |name: &String| !is_for_others(table, name);
    names.iter().any(is_trace).then(|| Trace::Chains {
        program: program.to_owned(),
        table,
        names,
    })
}

fn is_for_others(table: &str, chain: &str) -> bool {
    table == NAT && [MARK, POSTROUTING].contains(&chain)
}

/// An extended regular expression for the lines of kube-proxy in what `iptables-save`
/// prints of a table: its chains, of which there are those of fixed `names`, what is in
/// them, and the rules that lead to them from chains of iptables itself. Not those that
/// others may use: in the saved text nothing says whether anybody does.
pub fn saved_lines(table: &str, names: &[String]) -> String {
    let own = |name: &&str| !is_for_others(table, name);
    let fixed: Vec<&str> = names.iter().map(String::as_str).filter(own).collect();
    let entries: Vec<&str> = (fixed.iter().copied())
        .filter(|name| is_entry(name))
        .collect();
    let of_services = format!("({})[A-Z2-7]{{{HASH}}}", OF_SERVICES.join("|"));
    let chains = [&fixed[..], &[&of_services]].concat().join("|");
    let mut lines = format!("^(:|-A )({chains}) ");
    if !entries.is_empty() {
        let targets = entries.join("|");
        lines +=
            &format!("|^-A (PREROUTING|INPUT|FORWARD|OUTPUT|POSTROUTING) (.* )?-j ({targets})$");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_chains_are_told_from_those_of_kubelet_and_kube_router() {
        for own in [
            "KUBE-SERVICES",
            "KUBE-PROXY-CANARY",
            "KUBE-MARK-MASQ",
            "KUBE-SVC-CDGGSHYLG3RE2FKL",
            "KUBE-SEP-OAIGUPJHOE4YU7HS",
        ] {
            assert!(is_chain(own), "{own}");
        }
        for other in [
            "INPUT",
            "KUBE-FIREWALL",
            "KUBE-IPTABLES-HINT",
            "KUBE-KUBELET-CANARY",
            "KUBE-MARK-DROP",
            "KUBE-NWPLCY-CDGGSHYLG3RE2FKL",
            "KUBE-ROUTER-SERVICES",
            "KUBE-SVC-mine",
            "KUBE-SVC-",
            "MY-KUBE-SERVICES",
        ] {
            assert!(!is_chain(other), "{other}");
        }
    }
}
