//! GC: DEL for everything that the runtime no longer lists.

use std::{cell::RefCell, collections::HashSet};

use tweed_cni::{CniError, Command, Request};
use tweed_core::attachment::{Attachment, NetworkName};
use tweed_core::netns;
use tweed_ipam::plugin::{listed, report_host_local};
use tweed_ipam::record::Record;
use tweed_ipam::store::{Entry, LOCK_WAIT, Store};
use tweed_ipam::sweep::{self, Cause, Removal, Swept};
use tweed_netlink::{link::Link, owned};

use super::failures::Failures;
use crate::datapath::veth::{Kernel, ownership, refused};
use crate::{Tweed, config::Place, delegate::Delegate};

/// Frees what no listed attachment of the network uses: records, addresses,
/// links. An empty list frees everything of the network; without a list only
/// records are freed whose owner is provably gone.
///
/// # Errors
/// All failures in one, after everything else has been freed.
pub fn gc<K: Kernel, D: Delegate>(
    tweed: &mut Tweed<K, D>,
    request: &Request<'_>,
) -> Result<(), CniError> {
    let place = Place::read(&request.config)?;
    let store = &place.store;
    let valid = request.config.valid_attachments()?;
    let valid = valid.map(|list| listed(&request.config, list));
    let mut failures = Failures::default();

    // First, as a claim without a record stays while its link is there.
    if let Some(valid) = &valid {
        delete_unrecorded(tweed, store, valid, &mut failures);
    }
    let shared = RefCell::new(&mut *tweed);
    let removal = Unused {
        tweed: &shared,
        request,
        place: &place,
    };
    let swept = match &valid {
        Some(valid) => sweep::gc(store, LOCK_WAIT, valid, removal),
        None => sweep::sweep(
            store,
            LOCK_WAIT,
            |record| is_link_gone(&mut shared.borrow_mut().kernel, record),
            removal,
        ),
    };
    if let Some(swept) = failures.keep(swept) {
        report(request, swept, &mut failures);
    }
    // Leaving links whose cleanup process was killed, of whatever network.
    failures.keep(tweed.kernel.delete_leaving().map_err(refused));
    failures.keep(tweed.forward(Command::Gc, &place.ipam, request));
    failures.into_result()
}

/// Frees what provably nobody uses any more, as a GC without a list, for an ADD that would
/// fail otherwise. Returns whether that was anything. Addresses of other IPAM plugins are left
/// to DEL and GC.
pub(super) fn free_unused<K: Kernel, D: Delegate>(
    tweed: &mut Tweed<K, D>,
    request: &Request<'_>,
    store: &Store,
) -> bool {
    let shared = RefCell::new(tweed);
    let swept = sweep::sweep(
        store,
        LOCK_WAIT,
        |record| is_link_gone(&mut shared.borrow_mut().kernel, record),
        |entry: &Entry| detach(&mut shared.borrow_mut(), request, entry),
    );
    let mut failures = Failures::default();
    let swept = failures.keep(swept);
    let has_freed = swept.as_ref().is_some_and(|swept| !swept.freed.is_empty());
    if let Some(swept) = swept {
        report(request, swept, &mut failures);
    }
    if let Err(error) = failures.into_result() {
        request.log(format_args!("warning: cannot free all: {error}"));
    }
    has_freed
}

/// Removes what an attachment has that nobody uses any more: its link, and addresses
/// of another IPAM plugin.
struct Unused<'a, 'r, K, D> {
    tweed: &'a RefCell<&'a mut Tweed<K, D>>,
    request: &'a Request<'r>,
    place: &'a Place,
}

impl<K: Kernel, D: Delegate> Removal for Unused<'_, '_, K, D> {
    type Error = CniError;

    fn detach(&mut self, entry: &Entry) -> Result<(), CniError> {
        detach(&mut self.tweed.borrow_mut(), self.request, entry)
    }

    fn releases(&self) -> bool {
        true
    }

    fn release(&mut self, record: &Record) -> Result<(), CniError> {
        let mut tweed = self.tweed.borrow_mut();
        tweed.release(&self.place.ipam, self.request, record)
    }
}

/// Whether the record's link was in this network namespace and is gone, also under another
/// name. The kernel is asked for each record, while the store is locked: an older list of
/// links would lack those of ADDs that have ended since.
pub(crate) fn is_link_gone(kernel: &mut impl Kernel, record: &Record) -> bool {
    let is_own = |netns| netns::own().is_ok_and(|own| own == netns);
    let link = record.link.as_deref();
    record.host_netns.is_none_or(is_own)
        && link.is_some_and(|name| matches!(kernel.host_link(name), Ok(None)))
        && kernel.host_links().is_ok_and(|links| {
            let attachment = record.attachment();
            let mut links = links.iter();
            !links.any(|link| owned::is_renamed_link_of(link, &attachment))
        })
}

fn detach<K: Kernel, D: Delegate>(
    tweed: &mut Tweed<K, D>,
    request: &Request<'_>,
    entry: &Entry,
) -> Result<(), CniError> {
    if let Some(record) = &entry.record {
        return tweed.detach(request, &record.attachment());
    }
    // The record cannot be read, but the link's name follows from the name of the file.
    let name = entry.link_name();
    match tweed.kernel.host_link(&name).map_err(refused)? {
        Some(link) if ownership::is_named(&link, &name) => {
            tweed.kernel.delete_host_link(&link).map_err(refused)
        }
        _ => Ok(()),
    }
}

/// Deletes links of the network that have no record, as after somebody deleted the
/// store.
fn delete_unrecorded<K: Kernel, D: Delegate>(
    tweed: &mut Tweed<K, D>,
    store: &Store,
    valid: &[Attachment],
    failures: &mut Failures,
) {
    let Some(links) = failures.keep(tweed.kernel.host_links().map_err(refused)) else {
        return;
    };
    // Read after the links: an ADD writes its record before it creates its link.
    let Some((records, _)) = failures.keep(store.records()) else {
        return;
    };
    let kept: HashSet<String> = records
        .iter()
        .map(|record| record.attachment().link_name())
        .chain(valid.iter().map(Attachment::link_name))
        .collect();
    for link in unrecorded(&links, store.network(), &kept) {
        failures.keep(tweed.kernel.delete_host_link(link).map_err(refused));
    }
}

fn unrecorded<'a>(
    links: &'a [Link],
    network: &'a NetworkName,
    kept: &'a HashSet<String>,
) -> impl Iterator<Item = &'a Link> {
    links
        .iter()
        .filter(move |link| ownership::is_of_network(link, network) && !kept.contains(&link.name))
}

fn report(request: &Request<'_>, swept: Swept<CniError>, failures: &mut Failures) {
    for (freed, reason) in &swept.freed {
        request.log(format_args!("freed {freed}: {reason}"));
    }
    report_host_local(request, &swept.host_local);
    for failed in swept.failed {
        let mut error = match failed.cause {
            Cause::Store(error) => CniError::from(error),
            Cause::Removal(error) => error,
        };
        error.msg = format!("{}: {}", failed.attachment, error.msg);
        failures.push(error);
    }
    if let Some(stopped) = swept.stopped {
        failures.push(stopped.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_of_the_network_without_a_record_are_deleted() {
        let network = NetworkName::new("tweed").unwrap();
        let link = |name: &str, alias: &str| Link {
            name: name.to_owned(),
            group: tweed_core::ownership::LINK_GROUP,
            alias: Some(alias.to_owned()),
            ..Link::default()
        };
        let links = [
            link("tw000000000001", "tweed:tweed/a/eth0"),
            link("tw000000000002", "tweed:tweed/b/eth0"),
            link("tw000000000003", "tweed:other/c/eth0"),
            link("eth1", "tweed:tweed/d/eth0"),
        ];
        let kept = HashSet::from(["tw000000000002".to_owned()]);
        let names: Vec<_> = unrecorded(&links, &network, &kept)
            .map(|link| &link.name)
            .collect();
        assert_eq!(names, ["tw000000000001"]);
    }
}
