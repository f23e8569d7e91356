//! Other programs that serve Services on this node, for an agent that does so as well:
//! kube-proxy while it runs, the rules that it leaves behind when it goes (nobody removes
//! them for it), and the service proxies of other networks.
//!
//! [`find`] reads, [`problems`] judges. [`kube_proxy`] says what kube-proxy makes, so
//! that it can be found and removed by the same names.

pub mod kube_proxy;
mod running;

use tweed_core::problem::{Problem, ProblemKind};
use tweed_netlink::nf::idle::Idle;
use tweed_netlink::{Error, link, nf};

use crate::iptables_legacy;
use kube_proxy::{IPVS_LINK, Trace};
pub use running::{METRICS_PORT, kube_proxy_mode};

/// A service proxy that is part of another network, and the link by which it is known.
struct Other {
    link: &'static str,
    name: &'static str,
    cure: &'static str,
}

const OTHERS: [Other; 3] = [
    Other {
        link: "antrea-gw0",
        name: "Antrea",
        cure: "remove Antrea from this node, or set --services to off",
    },
    Other {
        link: "cilium_host",
        name: "Cilium",
        cure: "remove Cilium from this node (`cilium uninstall`, then a reboot), or set \
               --services to off",
    },
    Other {
        link: "kube-dummy-if",
        name: "kube-router",
        cure: "start kube-router with --run-service-proxy=false and run `kube-router \
               --cleanup-config` on this node, or set --services to off",
    },
];

/// What other programs have on this node for Services.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Of kube-proxy.
    pub kube_proxy: Vec<Trace>,
    /// Names of [`OTHERS`]' links that are there.
    others: Vec<&'static str>,
}

/// Why it is not known what there is.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// Links or nf_tables.
    #[error(transparent)]
    Kernel(#[from] Error),
    /// The old iptables.
    #[error(transparent)]
    Legacy(#[from] iptables_legacy::Error),
}

/// Looks in the calling thread's network namespace. It asks for few objects by their
/// names, whatever the number of Services is, except of the old iptables, whose tables
/// can only be read as a whole. `idle` keeps its socket of nf_tables.
///
/// # Errors
/// The kernel cannot be asked.
pub fn find(idle: &Idle<nf::Socket>) -> Result<Found, FindError> {
    let mut nf_tables = idle.take()?;
    let mut found = Found {
        kube_proxy: kube_proxy::of_nf_tables(&mut nf_tables)?,
        others: Vec::new(),
    };
    idle.give_back(nf_tables);
    found.kube_proxy.extend(kube_proxy::of_legacy()?);
    let mut socket = tweed_netlink::Socket::open()?;
    if link::by_name(&mut socket, IPVS_LINK)?.is_some() {
        found.kube_proxy.push(Trace::IpvsLink);
    }
    for other in OTHERS {
        if link::by_name(&mut socket, other.link)?.is_some() {
            found.others.push(other.link);
        }
    }
    Ok(found)
}

/// What is wrong with it on a node whose agent serves Services. `mode` is that of a
/// kube-proxy that is known to run.
pub fn problems(found: &Found, mode: Option<&str>) -> Vec<Problem> {
    let kube_proxy = match (mode, &found.kube_proxy[..]) {
        (Some(mode), _) => Some(beside(mode)),
        (None, []) => None,
        (None, traces) => Some(left(traces)),
    };
    let is_found = |other: &&Other| found.others.contains(&other.link);
    let others = OTHERS.iter().filter(is_found).map(|other| {
        let Other { link, name, cure } = other;
        let message = format!(
            "the link {link} is on this node: {name} may serve Services beside tweed, and \
             whoever sees a connection first decides where it goes"
        );
        Problem::new(ProblemKind::OtherServiceProxy, *name, message).with_cure(*cure)
    });
    kube_proxy.into_iter().chain(others).collect()
}

fn beside(mode: &str) -> Problem {
    let message = format!(
        "kube-proxy runs on this node in mode {mode}, beside tweed, which gets new connections \
         to Services first"
    );
    let cure = "if it is to go, take it off this node and run `tweed-install remove-kube-proxy` \
                there (docs/services.md says how); if it is to stay, set --services to off";
    Problem::new(ProblemKind::OtherServiceProxy, "kube-proxy", message).with_cure(cure)
}

fn left(traces: &[Trace]) -> Problem {
    let names: Vec<String> = traces.iter().map(Trace::to_string).collect();
    let message = format!(
        "there are rules of kube-proxy on this node: {}. If it no longer runs here, nobody \
         updates them, and they still apply to what tweed does not translate, such as node \
         ports at other addresses, and in mode nftables to source ranges of load balancers",
        names.join(", ")
    );
    Problem::new(ProblemKind::KubeProxyRules, "kube-proxy", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(found: &Found, mode: Option<&str>) -> Vec<(ProblemKind, String)> {
        let problems = problems(found, mode).into_iter();
        problems.map(|one| (one.kind, one.object)).collect()
    }

    #[test]
    fn on_a_clean_node_nothing_is_wrong() {
        assert_eq!(kinds(&Found::default(), None), []);
    }

    #[test]
    fn a_kube_proxy_that_runs_is_no_leftover() {
        let found = Found {
            kube_proxy: vec![Trace::IpvsLink],
            others: Vec::new(),
        };
        let rules = (ProblemKind::KubeProxyRules, "kube-proxy".to_owned());
        assert_eq!(kinds(&found, None), [rules]);
        let beside = (ProblemKind::OtherServiceProxy, "kube-proxy".to_owned());
        assert_eq!(kinds(&found, Some("ipvs")), std::slice::from_ref(&beside));
        assert_eq!(kinds(&Found::default(), Some("nftables")), [beside]);
    }

    #[test]
    fn each_other_proxy_is_named_with_its_own_cure() {
        let found = Found {
            kube_proxy: Vec::new(),
            others: OTHERS.iter().map(|other| other.link).collect(),
        };
        let problems = problems(&found, None);
        let objects: Vec<&str> = problems.iter().map(|one| one.object.as_str()).collect();
        assert_eq!(objects, ["Antrea", "Cilium", "kube-router"]);
        for problem in problems {
            assert_eq!(problem.kind, ProblemKind::OtherServiceProxy);
            assert!(problem.cure.contains(&problem.object), "{problem}");
        }
    }
}
