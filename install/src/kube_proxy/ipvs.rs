//! What kube-proxy has made in its mode `ipvs` besides rules: a link with the addresses of
//! all Services.
//!
//! IPVS translates a connection by a table of its own, at the hook for packets to local
//! addresses. The link makes those of Services local, so without it the packets of open
//! connections would leave the node for an address that nobody has. It stays until they
//! have ended.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use tweed_diagnosis::service_proxy::kube_proxy::IPVS_LINK;
use tweed_netlink::{Socket, address, link};

use crate::error::InstallError;
use crate::journal::{Action, Journal};

/// The virtual services of IPVS.
const SERVICES: &str = "/proc/thread-self/net/ip_vs";
/// Its connections.
const CONNECTIONS: &str = "/proc/thread-self/net/ip_vs_conn";
/// States in which nothing is sent any more.
const ENDED: [&str; 2] = ["CLOSE", "TIME_WAIT"];

/// Removes the link if no open connection needs it, or by `force`.
pub(super) fn remove_link(force: bool, journal: &mut Journal<'_>) -> Result<(), InstallError> {
    let mut socket = Socket::open()?;
    let Some(found) = link::by_name(&mut socket, IPVS_LINK)? else {
        return Ok(());
    };
    let addresses: BTreeSet<IpAddr> = (address::list(&mut socket)?.into_iter())
        .filter(|address| address.index == found.index)
        .map(|address| address.network.ip())
        .collect();
    let count = open_connections(&read(CONNECTIONS)?, &addresses);
    if count > 0 && !force {
        return journal.refuse(InstallError::Other(format!(
            "cannot remove link kube-ipvs0: {count} open connections of IPVS would be cut. Drain \
             the node (kubectl drain --ignore-daemonsets), or wait until they have ended, and run \
             it again; --force cuts them"
        )));
    }
    let request = link::delete(found.index, IPVS_LINK);
    let object = format!("link {IPVS_LINK}");
    journal.act(Action::REMOVE, object, || Ok(socket.execute(&request)?));
    Ok(())
}

/// Those of IPVS say not whose they are: keepalived makes such as well.
pub(super) fn name_virtual_services(journal: &mut Journal<'_>) {
    let text = journal.checked(read(SERVICES)).unwrap_or_default();
    let count = virtual_services(&text);
    if count > 0 {
        let object = format!("{count} virtual services of IPVS");
        let why = "it is not known whose they are; if nobody else (keepalived) uses IPVS on this \
                   node, `ipvsadm --clear` removes them";
        journal.kept(object, why);
    }
}

/// A file of IPVS; without IPVS there is none.
fn read(path: &str) -> Result<String, InstallError> {
    let text = InstallError::if_exists("read", Path::new(path), fs::read_to_string(path))?;
    Ok(text.unwrap_or_default())
}

/// Each has a line that begins with its protocol or mark; those of its servers begin
/// with an arrow.
fn virtual_services(text: &str) -> usize {
    let kinds = ["TCP ", "UDP ", "SCTP ", "FWM "];
    let is_service = |line: &&str| kinds.iter().any(|kind| line.starts_with(kind));
    text.lines().filter(is_service).count()
}

/// How many connections to these addresses have not ended.
fn open_connections(text: &str, addresses: &BTreeSet<IpAddr>) -> usize {
    let is_open = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Protocol, client and its port, Service and its port, server and its port.
        let [_, _, from_port, to, _, _, _, state, ..] = fields[..] else {
            return false;
        };
        // Which server a client with session affinity has is no connection.
        let is_template = from_port == "0000";
        let is_to_them = ip(to).is_some_and(|ip| addresses.contains(&ip));
        is_to_them && !is_template && !ENDED.contains(&state)
    };
    text.lines().filter(is_open).count()
}

/// An address as IPVS prints it: eight digits, or as IPv6 is written.
fn ip(text: &str) -> Option<IpAddr> {
    match u32::from_str_radix(text, 16) {
        Ok(number) => Some(Ipv4Addr::from(number).into()),
        Err(_) => text.parse().ok(),
    }
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
    fn connections_are_open_until_they_end_and_those_of_others_do_not_count() {
        let head =
            "Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData\n";
        let open = "TCP 0AF40105 9C40 0A600001 01BB C000020B 192B ESTABLISHED     899\n\
                    UDP 0AF40105 9C41 0A600035 0035 0AF40206 0035 UDP             299\n\
                    TCP fd00:0000:0000:0000:0000:0000:0000:0005 9C40 \
                    fd00:0000:0000:0000:0000:0000:0060:0001 01BB \
                    2001:0db8:0000:0000:0000:0000:0000:000b 192B ESTABLISHED     899\n";
        let other = "TCP 0AF40105 9C42 0A600001 01BB C000020B 192B TIME_WAIT       100\n\
                     TCP 0AF40105 9C43 0A600001 01BB C000020B 192B CLOSE             5\n\
                     TCP 0AF40105 0000 0A600001 01BB C000020B 192B NONE           9000\n\
                     TCP CB007105 9C42 C633640A 01BB C000020B 192B ESTABLISHED     899\n";
        let texts = ["10.96.0.1", "10.96.0.53", "fd00::60:1"];
        let addresses = texts.map(|ip| ip.parse().unwrap()).into();
        assert_eq!(
            open_connections(&[head, open, other].concat(), &addresses),
            3
        );
        assert_eq!(open_connections(&[head, other].concat(), &addresses), 0);
        assert_eq!(open_connections("", &addresses), 0);
    }
}
