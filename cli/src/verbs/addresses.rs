//! `addresses`: who has which address on a node, from the store of addresses.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use clap::Args;
use ipnetwork::IpNetwork;
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use serde::{Deserialize, Serialize};
use tweed_core::agent_state::AGENT_STATE_FILE;
use tweed_core::attachment::{NETWORK_NAME, NetworkName};
use tweed_core::netns;
use tweed_ipam::record::{Record, State};
use tweed_ipam::store::{Entry, Store, StoreError};
use tweed_ipam::sweep::{Evidence, verdict};

use crate::answered::{Answered, Unanswered, reports};
use crate::exit::Exit;
use crate::node::Node;
use crate::output::{Format, Page};
use crate::verb::Verb;

const EXAMPLES: &str = "\
Examples:
  Who has which address, on every node:
    tweedctl addresses

  Of one node, with containers and links:
    tweedctl addresses --node worker-1 -o wide

  On a node, as root, whether its agent runs or not:
    tweedctl addresses --run-dir /run/tweed

An address is `used` by a container; `adding` and `deleting` while the plugin works;
`reserved` if it is taken and no record says by whom; `leaked` if its container is gone:
the agent frees it within seconds. Exit code 1: there are leaked ones.";

/// The arguments of `addresses`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = EXAMPLES)]
pub struct Addresses {}

/// What one node answers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Report {
    /// The node's pod CIDRs.
    #[serde(default)]
    pub ranges: Vec<Range>,
    /// The addresses that are taken, sorted by network and address.
    pub addresses: Vec<Address>,
    /// What is damaged or foreign in the store.
    #[serde(default)]
    pub problems: Vec<String>,
}

/// How full a range is, in addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// The range.
    pub range: IpNetwork,
    /// Addresses that are taken.
    pub used: u128,
    /// Addresses that can still be given.
    pub free: u128,
}

/// An address that is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Address {
    /// The network.
    pub network: String,
    /// The address.
    pub address: IpAddr,
    /// Its state.
    pub state: Holding,
    /// Namespace and name of the pod, where the runtime names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The container's ID; none of a reserved address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The interface inside the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The host's end of its link, where tweed makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Why it is leaked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// How an address is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Holding {
    /// By a container.
    Used,
    /// An ADD is at work.
    Adding,
    /// A DEL is at work.
    Deleting,
    /// It is taken, and no record that can be read has it.
    Reserved,
    /// Its owner is gone, and it is not freed yet.
    Leaked,
}

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Used => "used",
            Self::Adding => "adding",
            Self::Deleting => "deleting",
            Self::Reserved => "reserved",
            Self::Leaked => "leaked",
        })
    }
}

impl Verb for Addresses {
    type Report = Report;
    const NAME: &'static str = "addresses";

    fn local(&self, node: &Node) -> Result<Report, Unanswered> {
        // Without pods there is no store yet, and with a misspelt folder neither.
        let folder = std::fs::metadata(&node.run_dir);
        folder.map_err(|error| Unanswered::new(format!("{}: {error}", node.run_dir.display())))?;
        read(node).map_err(|error| Unanswered::new(error.to_string()))
    }

    fn render(&self, answers: &[Answered<Report>], page: &mut Page<'_>) -> io::Result<()> {
        let is_wide = page.format == Format::Wide;
        let mut header = vec!["NODE", "ADDRESS", "STATE", "POD"];
        if is_wide {
            header.extend(["NETWORK", "CONTAINER", "INTERFACE", "LINK"]);
        }
        header.push("WHY");
        let of_all = reports(answers).flat_map(|(node, report)| {
            report
                .addresses
                .iter()
                .map(move |one| row(node, one, is_wide))
        });
        let mut rows: Vec<Vec<String>> = of_all.collect();
        let is_of_one_node = answers.iter().all(|(node, _)| node.is_empty());
        if is_of_one_node {
            header.remove(0);
            rows.iter_mut().for_each(|row| drop(row.remove(0)));
        }
        page.table(&header, &rows)?;
        for (node, report) in reports(answers) {
            let of = if node.is_empty() { "" } else { ", node " };
            for Range { range, used, free } in &report.ranges {
                page.line(&format!("{range}: {used} used, {free} free{of}{node}"))?;
            }
            for problem in &report.problems {
                page.line(&format!("warning: {problem}{of}{node}"))?;
            }
        }
        page.all_unanswered(answers)
    }

    fn exit(&self, answers: &[Answered<Report>]) -> Exit {
        let mut all = reports(answers).flat_map(|(_, report)| &report.addresses);
        if all.any(|one| one.state == Holding::Leaked) {
            Exit::Findings
        } else {
            Exit::Fine
        }
    }
}

/// The cells of an address.
fn row(node: &str, one: &Address, is_wide: bool) -> Vec<String> {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let mut row = vec![
        node.to_owned(),
        one.address.to_string(),
        one.state.to_string(),
        or_dash(&one.pod),
    ];
    if is_wide {
        row.push(one.network.clone());
        row.extend([&one.container, &one.interface, &one.link].map(or_dash));
    }
    row.push(one.why.clone().unwrap_or_default());
    row
}

/// Reads the stores of a node.
fn read(node: &Node) -> Result<Report, StoreError> {
    let folder = node.run_dir.join("ipam");
    let cidrs = pod_cidrs(&node.run_dir);
    let mut report = Report::default();
    let mut networks = BTreeSet::from_iter(Store::networks(&folder)?);
    // Before its first pod a node has no store, and all of its range is free.
    networks.extend(NetworkName::new(NETWORK_NAME).ok());
    for network in networks {
        let is_the_nodes = network.as_str() == NETWORK_NAME;
        let store = Store::open(&folder, &network);
        let (records, problems) = store.records()?;
        report
            .problems
            .extend(problems.iter().map(ToString::to_string));
        let taken = store.taken_addresses()?;
        let name = network.to_string();
        report
            .addresses
            .extend(listed(&name, &records, taken, |record| {
                why_leaked(&store, record)
            }));
        let usage = cidrs.iter().filter_map(|range| {
            let usage = store.usage_of(*range)?;
            let (range, used, free) = (*range, usage.used, usage.free);
            (used > 0 || is_the_nodes).then_some(Range { range, used, free })
        });
        report.ranges.extend(usage);
    }
    Ok(report)
}

/// The addresses of a network: those of its records, then what else is taken.
fn listed(
    network: &str,
    records: &[Record],
    mut taken: BTreeSet<IpAddr>,
    leaked: impl Fn(&Record) -> Option<String>,
) -> Vec<Address> {
    let mut all = Vec::new();
    for record in records {
        let why = leaked(record);
        let state = match record.state {
            _ if why.is_some() => Holding::Leaked,
            State::Adding { .. } => Holding::Adding,
            State::Live => Holding::Used,
            State::Deleting => Holding::Deleting,
        };
        let pod = record.pod.as_ref();
        for address in &record.addresses {
            taken.remove(&address.ip());
            all.push(Address {
                network: network.to_owned(),
                address: address.ip(),
                state,
                pod: pod.map(|pod| format!("{}/{}", pod.namespace, pod.name)),
                container: Some(record.container_id.to_string()),
                interface: Some(record.ifname.to_string()),
                link: record.link.clone(),
                why: why.clone(),
            });
        }
    }
    all.extend(taken.into_iter().map(|address| Address {
        network: network.to_owned(),
        address,
        state: Holding::Reserved,
        pod: None,
        container: None,
        interface: None,
        link: None,
        why: None,
    }));
    all.sort_by_key(|one| one.address);
    all
}

/// Why the owner of a record is gone, as the agent's sweep judges it.
fn why_leaked(store: &Store, record: &Record) -> Option<String> {
    let is_here = || {
        let own = netns::own().ok();
        record.host_netns.is_some() && record.host_netns == own
    };
    let is_missing = |link: &String| if_nametoindex(link.as_str()) == Err(Errno::ENODEV);
    let evidence = Evidence {
        boot_id: &record.boot_id,
        abandoned: &|record| store.is_abandoned(record),
        link_gone: &|record| is_here() && record.link.as_ref().is_some_and(is_missing),
        releases: true,
        listed: None,
    };
    let entry = Entry {
        id: record.attachment().id(),
        record: Some(record.clone()),
    };
    verdict(&entry, &evidence).map(|reason| reason.to_string())
}

/// The node's pod CIDRs, as its agent has published them; none without an agent.
fn pod_cidrs(run_dir: &Path) -> Vec<IpNetwork> {
    let text = std::fs::read(run_dir.join(AGENT_STATE_FILE)).unwrap_or_default();
    let state: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    let cidrs = state["podCIDRs"].as_array().into_iter().flatten();
    cidrs
        .filter_map(|cidr| cidr.as_str()?.parse().ok())
        .collect()
}

/// The first address of the container of this node whose ID begins so.
///
/// # Errors
/// There is none, or more than one.
pub fn of_container(node: &Node, id: &str) -> Result<IpAddr, Unanswered> {
    let report = Addresses {}.local(node)?;
    let matching = report.addresses.iter().filter(|one| {
        let container = one.container.as_deref();
        container.is_some_and(|container| container.starts_with(id))
    });
    let of_id: Vec<&Address> = matching.collect();
    match of_id.as_slice() {
        [] => Err(Unanswered::new(format!(
            "no container {id} has an address on this node"
        ))),
        [first, others @ ..] if others.iter().all(|one| one.container == first.container) => {
            Ok(first.address)
        }
        _ => Err(Unanswered::new(format!(
            "several containers begin with {id}: type more of it"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use tweed_core::attachment::{Attachment, ContainerId, IfName, PodName};
    use tweed_ipam::record::{Owner, Process};

    use super::*;

    fn record(container: &str, address: &str, state: State) -> Record {
        let by = Process {
            pid: 1,
            start_time: 1,
            pid_namespace: None,
        };
        let attachment = Attachment {
            network: NetworkName::new("tweed").unwrap(),
            container_id: ContainerId::new(container).unwrap(),
            ifname: IfName::new("eth0").unwrap(),
        };
        Record {
            addresses: vec![address.parse().unwrap()],
            state,
            pod: Some(PodName {
                namespace: "shop".to_owned(),
                name: container.to_owned(),
            }),
            ..Record::adding(attachment, Owner::Tweed, by)
        }
    }

    #[test]
    fn a_misspelt_folder_is_no_node_without_pods() {
        let folder = tempfile::tempdir().unwrap();
        let asked = |name: &str| {
            let run_dir = folder.path().join(name);
            Addresses {}.local(&Node { run_dir })
        };
        assert_eq!(asked("").unwrap(), Report::default());
        let why = asked("tweet").unwrap_err().to_string();
        assert!(why.contains("/tweet: No such file"), "{why}");
    }

    #[test]
    fn every_taken_address_is_listed_once_with_its_state() {
        let records = [
            record("web", "10.0.1.7/24", State::Live),
            record("gone", "10.0.1.5/24", State::Live),
            record("ending", "10.0.1.6/24", State::Deleting),
        ];
        let taken = ["10.0.1.5", "10.0.1.6", "10.0.1.7", "10.0.1.9"]
            .iter()
            .map(|address| address.parse().unwrap())
            .collect();
        let leaked = |record: &Record| {
            let is_gone = record.container_id.to_string() == "gone";
            is_gone.then(|| "its link is gone".to_owned())
        };
        let addresses = listed("tweed", &records, taken, leaked);
        let shown = addresses.iter().map(|one| row("", one, false).join(" "));
        let expected = [
            " 10.0.1.5 leaked shop/gone its link is gone",
            " 10.0.1.6 deleting shop/ending ",
            " 10.0.1.7 used shop/web ",
            " 10.0.1.9 reserved - ",
        ];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
        let report = Report {
            addresses,
            ..Report::default()
        };
        let exit = |report| Addresses {}.exit(&[(String::new(), Ok(report))]);
        assert_eq!(exit(report), Exit::Findings);
        assert_eq!(exit(Report::default()), Exit::Fine);
    }

    #[test]
    fn a_node_without_a_store_has_no_address() {
        let folder = tempfile::tempdir().unwrap();
        let run_dir = folder.path().to_owned();
        let node = Node { run_dir };
        assert_eq!(Addresses {}.local(&node), Ok(Report::default()));
        let state = r#"{"podCIDRs": ["10.244.1.0/24"]}"#;
        std::fs::write(node.run_dir.join(AGENT_STATE_FILE), state).unwrap();
        let ranges = Addresses {}.local(&node).unwrap().ranges;
        let range = "10.244.1.0/24".parse().unwrap();
        let (used, free) = (0, 253);
        assert_eq!(ranges, [Range { range, used, free }]);
        let error = of_container(&node, "4f").unwrap_err();
        assert!(error.error.contains("no container 4f"), "{error}");
    }
}
