//! Removal of links, routes and the tables of nf_tables in this network namespace.
//!
//! The kernel removes addresses, neighbours and forwarding entries with their
//! links.

use tweed_core::ownership::ROUTE_PROTOCOL;
use tweed_netlink::link::{self, Link};
use tweed_netlink::owned;
use tweed_netlink::route;
use tweed_netlink::{Error, Socket};

use crate::error::InstallError;
use crate::journal::{Action, Journal};

/// Removes all of them, and says whether there were any.
pub(super) fn remove(journal: &mut Journal<'_>) -> bool {
    let had_links = match remove_links(journal) {
        Ok(had_links) => had_links,
        Err(error) => {
            journal.failed(error);
            false
        }
    };
    remove_tables(journal) || had_links
}

pub(super) fn is_ours(link: &Link) -> bool {
    owned::is_device(link) || owned::is_pod_link(link) || owned::is_leaving_link(link)
}

/// Removes links and routes, and says whether there was a link.
fn remove_links(journal: &mut Journal<'_>) -> Result<bool, Error> {
    let mut socket = Socket::open()?;
    let mut routes = route::list(&mut socket, Some(ROUTE_PROTOCOL))?;
    routes.extend(route::local(&mut socket, ROUTE_PROTOCOL)?);
    let mut links = link::list(&mut socket)?;
    links.retain(is_ours);
    // Routes first: the kernel removes some of them with a link, and a later
    // removal of those would fail.
    for route in routes.iter().filter(|route| owned::is_route(route)) {
        let object = format!("route {route} (protocol {ROUTE_PROTOCOL})");
        let request = route::delete(route);
        journal.act(Action::REMOVE, object, || execute(&mut socket, &request));
    }
    for link in &links {
        let object = match &link.alias {
            Some(alias) => format!("link {} ({alias})", link.name),
            None => format!("link {}", link.name),
        };
        let request = link::delete(link.index, &link.name);
        journal.act(Action::REMOVE, object, || execute(&mut socket, &request));
    }
    Ok(!links.is_empty())
}

/// An object that is already gone is not an error.
fn execute(socket: &mut Socket, request: &tweed_netlink::Request) -> Result<(), InstallError> {
    match socket.execute(request) {
        Err(error) if !error.is_absent() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Says whether there was a table.
fn remove_tables(journal: &mut Journal<'_>) -> bool {
    let present = match tweed_nft::present() {
        // A kernel without nf_tables has no table.
        Err(tweed_nft::Error::NoNfTables(_)) => return false,
        tables => journal.checked(tables.map_err(InstallError::from)),
    };
    let tables = present.unwrap_or_default();
    for table in &tables {
        let object = format!("nftables table {table}");
        journal.act(Action::REMOVE, object, || Ok(tweed_nft::remove(*table)?));
    }
    !tables.is_empty()
}
