//! Removes what kube-proxy has left on a node: tables, chains and links by the names that
//! only it gives, in every mode, and nothing else. Nobody does that for it when its
//! DaemonSet goes.
//!
//! Open connections to Services stay: conntrack has their translation. That needs a chain
//! of the type nat at the same hooks, which tweed has while its agent serves Services;
//! so this is refused where it does not, and where a kube-proxy would only make its rules
//! again. IPVS keeps its connections in a table of its own, and sees their packets only
//! while the addresses of Services are the node's: the link that has them stays until
//! there are none.

mod nf_tables;
mod plan;

use std::fs;

use clap::{Args, builder::BoolishValueParser};
use tweed_core::agent_state::{AGENT_STATE_FILE, ServesServices};
use tweed_diagnosis::service_proxy::kube_proxy::{IPVS_LINK, Trace, of_legacy};
use tweed_diagnosis::service_proxy::kube_proxy_mode;
use tweed_netlink::{Socket, link};

use crate::error::InstallError;
use crate::journal::{Action, Journal};
use crate::places::{PlaceArgs, Places};
use plan::Removal;

/// The virtual services of IPVS.
const IPVS_SERVICES: &str = "/proc/thread-self/net/ip_vs";
/// Its connections, and flows of UDP.
const IPVS_CONNECTIONS: &str = "/proc/thread-self/net/ip_vs_conn";

/// Flags of `remove-kube-proxy`.
#[derive(Debug, Clone, Args)]
pub struct RemoveKubeProxyArgs {
    /// Also where the agent does not serve Services, a kube-proxy still runs, or IPVS has
    /// open connections
    #[arg(long, env = "TWEED_FORCE", value_parser = BoolishValueParser::new())]
    force: bool,

    /// Only print what would be removed
    #[arg(long, env = "TWEED_DRY_RUN", value_parser = BoolishValueParser::new())]
    dry_run: bool,

    #[command(flatten)]
    places: PlaceArgs,
}

/// Removes it. It can be run again: what does not exist is no failure.
///
/// # Errors
/// What prevents it: an agent that does not serve Services, a kube-proxy that runs.
/// Later failures are in the journal.
pub fn run(asked: &RemoveKubeProxyArgs, journal: &mut Journal<'_>) -> Result<(), InstallError> {
    if asked.dry_run {
        journal.rehearse();
    }
    if !asked.force {
        if !serves_services(&asked.places.resolve())? {
            journal.refuse(InstallError::ServicesNotServed)?;
        }
        if let Some(mode) = kube_proxy_mode() {
            journal.refuse(InstallError::KubeProxyRuns { mode })?;
        }
    }
    let removed = nf_tables::remove(journal);
    journal.checked(removed);
    let removed = remove_link(asked.force, journal);
    journal.checked(removed);
    name_legacy(journal);
    name_virtual_services(journal);
    if journal.is_empty() {
        journal.line("nothing of kube-proxy is on this machine");
    }
    Ok(())
}

/// Whether the agent of this node says that its rules serve Services.
///
/// # Errors
/// Its file cannot be read.
pub(crate) fn serves_services(places: &Places) -> Result<bool, InstallError> {
    let path = places.run_dir.join(AGENT_STATE_FILE);
    let read = InstallError::if_exists("read", &path, fs::read(&path))?;
    let state = read.map(|text| serde_json::from_slice::<ServesServices>(&text));
    match state.transpose() {
        Ok(state) => Ok(state.is_some_and(|state| state.services)),
        Err(error) => Err(InstallError::Content {
            path,
            why: error.to_string(),
        }),
    }
}

fn remove_link(force: bool, journal: &mut Journal<'_>) -> Result<(), InstallError> {
    let mut socket = Socket::open()?;
    if let Some(found) = link::by_name(&mut socket, IPVS_LINK)? {
        // Without IPVS there is no such file.
        let count = connections(&fs::read_to_string(IPVS_CONNECTIONS).unwrap_or_default());
        if count > 0 && !force {
            journal.failed(&InstallError::IpvsConnections { count });
            return Ok(());
        }
        let request = link::delete(found.index, IPVS_LINK);
        let object = format!("link {IPVS_LINK}");
        journal.act(Action::REMOVE, object, || Ok(socket.execute(&request)?));
    }
    Ok(())
}

/// Each has a line, after a heading.
fn connections(text: &str) -> usize {
    text.lines().skip(1).count()
}

/// The old iptables replaces whole tables, those of others with them.
fn name_legacy(journal: &mut Journal<'_>) {
    let found = of_legacy().map_err(InstallError::from);
    for trace in journal.checked(found).unwrap_or_default() {
        let Trace::Chains { program, table, .. } = &trace else {
            continue;
        };
        journal.failed(&InstallError::LegacyIptables {
            object: trace.to_string(),
            program: program.clone(),
            table: (*table).to_owned(),
        });
    }
}

/// Those of IPVS say not whose they are: keepalived makes such as well.
fn name_virtual_services(journal: &mut Journal<'_>) {
    let text = fs::read_to_string(IPVS_SERVICES).unwrap_or_default();
    let count = virtual_services(&text);
    if count > 0 {
        let object = format!("{count} virtual services of IPVS");
        let why = "it is not known whose they are; if nobody else (keepalived) uses IPVS on this \
                   node, `ipvsadm --clear` removes them";
        journal.kept(object, why);
    }
}

/// Each has a line that begins with its protocol or mark; those of its servers begin
/// with an arrow.
fn virtual_services(text: &str) -> usize {
    let kinds = ["TCP ", "UDP ", "SCTP ", "FWM "];
    let is_service = |line: &&str| kinds.iter().any(|kind| line.starts_with(kind));
    text.lines().filter(is_service).count()
}

/// What goes of a table, for people: not each of thousands of chains.
fn object(program: &str, table: &str, removal: &Removal) -> String {
    let named: Vec<&str> = (removal.chains.iter())
        .filter(|chain| !is_of_service(chain))
        .map(String::as_str)
        .collect();
    let others = removal.chains.len() - named.len();
    let mut text = format!("from {program} table {table}: {}", named.join(" "));
    if others > 0 {
        text += &format!(" and {others} chains of Services and endpoints");
    }
    for rule in &removal.jumps {
        let to = rule.to.as_deref().unwrap_or_default();
        text += &format!("; {} -j {to}", rule.chain);
    }
    text
}

/// Whether a chain of kube-proxy is that of a Service port or an endpoint.
fn is_of_service(chain: &str) -> bool {
    // `KUBE-SVC-` and a hash.
    chain
        .rsplit('-')
        .next()
        .is_some_and(|hash| hash.len() == 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_services_are_counted_without_their_servers() {
        let text = "IP Virtual Server version 1.2.1 (size=4096)\n\
                    Prot LocalAddress:Port Scheduler Flags\n  \
                    -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n\
                    TCP  0A600001:01BB rr  \n  \
                    -> C000020B:192B      Masq    1      0          0         \n\
                    UDP  0A600035:0035 rr  \n";
        assert_eq!(virtual_services(text), 2);
        assert_eq!(virtual_services(""), 0);
    }

    #[test]
    fn connections_are_counted_without_the_heading() {
        let heading =
            "Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData\n";
        let one = "TCP 0AF40105 9C41 0A60000A 1B58 0AF40206 1B59 ESTABLISHED     899\n";
        assert_eq!(connections(&format!("{heading}{one}{one}")), 2);
        assert_eq!(connections(heading), 0);
        assert_eq!(connections(""), 0);
    }
}
