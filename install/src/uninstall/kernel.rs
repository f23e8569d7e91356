//! Removal of links, routes and the tables of nf_tables in this network namespace.
//!
//! The kernel removes addresses, neighbours and forwarding entries with their
//! links.

use tweed_core::ownership::ROUTE_PROTOCOL;
use tweed_netlink::link::{self, Link};
use tweed_netlink::owned;
use tweed_netlink::route::{self, Route};
use tweed_netlink::{Error, Socket};

use crate::error::InstallError;
use crate::journal::{Action, Journal};

/// Removes all of them, and says whether there were any.
pub(super) fn remove(journal: &mut Journal<'_>) -> bool {
    let had_links = match look() {
        Ok((mut socket, found)) => {
            remove_found(&mut socket, &found, journal);
            !found.links.is_empty()
        }
        Err(error) => {
            journal.failed(&error.into());
            false
        }
    };
    remove_tables(journal) || had_links
}

struct Found {
    routes: Vec<Route>,
    links: Vec<Link>,
}

fn look() -> Result<(Socket, Found), Error> {
    let mut socket = Socket::open()?;
    let routes = route::list(&mut socket, Some(ROUTE_PROTOCOL))?;
    let mut links = link::list(&mut socket)?;
    links.retain(is_ours);
    Ok((socket, Found { routes, links }))
}

pub(super) fn is_ours(link: &Link) -> bool {
    owned::is_device(link) || owned::is_pod_link(link) || owned::is_leaving_link(link)
}

fn remove_found(socket: &mut Socket, found: &Found, journal: &mut Journal<'_>) {
    // Routes first: the kernel removes some of them with a link, and a later
    // removal of those would fail.
    for route in found.routes.iter().filter(|route| owned::is_route(route)) {
        let object = format!("route {route} (protocol {ROUTE_PROTOCOL})");
        let request = route::delete(route);
        journal.act(Action::REMOVE, object, || execute(socket, &request));
    }
    for link in &found.links {
        let object = match &link.alias {
            Some(alias) => format!("link {} ({alias})", link.name),
            None => format!("link {}", link.name),
        };
        let request = link::delete(link.index, &link.name);
        journal.act(Action::REMOVE, object, || execute(socket, &request));
    }
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
    match tweed_nft::present() {
        Ok(tables) => {
            for table in &tables {
                let object = format!("nftables table {table}");
                journal.act(Action::REMOVE, object, || Ok(tweed_nft::remove(*table)?));
            }
            !tables.is_empty()
        }
        // A kernel without nf_tables has no table.
        Err(tweed_nft::Error::NoNfTables(_)) => false,
        Err(error) => {
            journal.failed(&error.into());
            false
        }
    }
}
