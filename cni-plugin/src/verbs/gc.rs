//! GC: DEL for everything that the runtime no longer lists.

use std::{cell::RefCell, collections::HashSet};

use tweed_cni::{CniError, Command, Failures, Request};
use tweed_core::attachment::Attachment;
use tweed_ipam::plugin::{listed, report};
use tweed_ipam::record::Record;
use tweed_ipam::store::{Entry, LOCK_WAIT, Store};
use tweed_ipam::sweep::{self, Removal};

use crate::datapath::Datapath;
use crate::{Tweed, config::Place, delegate::Delegate};

/// Frees what no listed attachment of the network uses: records, addresses,
/// links. An empty list frees everything of the network; without a list only
/// records are freed whose owner is provably gone.
///
/// # Errors
/// All failures in one, after everything else has been freed.
pub fn gc<P: Datapath, D: Delegate>(
    tweed: &mut Tweed<P, D>,
    request: &Request<'_>,
) -> Result<(), CniError> {
    let place = Place::read(&request.config)?;
    let store = &place.store;
    let attachments = request.config.valid_attachments()?;
    let valid = attachments.map(|list| listed(&request.config, list));
    let mut failures = Failures::default();

    // First, as a claim without a record stays while its link is there.
    if let Some(valid) = &valid {
        let swept = tweed.datapath.sweep(store.network(), || used(store, valid));
        let failed = failures.keep(swept).unwrap_or_default();
        failed.into_iter().for_each(|error| failures.push(error));
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
            |record| shared.borrow_mut().datapath.is_gone(record),
            removal,
        ),
    };
    if let Some(swept) = failures.keep(swept) {
        report(request, swept, &mut failures);
    }
    // Leaving links whose cleanup process was killed, of whatever network.
    failures.keep(tweed.datapath.delete_leaving());
    failures.keep(tweed.forward(Command::Gc, &place.ipam, request));
    failures.into_result()
}

/// Frees what provably nobody uses any more, as a GC without a list, for an ADD that would
/// fail otherwise. Returns whether that was anything. Addresses of other IPAM plugins are left
/// to DEL and GC.
pub(super) fn free_unused<P: Datapath, D: Delegate>(
    tweed: &mut Tweed<P, D>,
    request: &Request<'_>,
    store: &Store,
) -> bool {
    let shared = RefCell::new(tweed);
    let swept = sweep::sweep(
        store,
        LOCK_WAIT,
        |record| shared.borrow_mut().datapath.is_gone(record),
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
struct Unused<'a, 'r, P, D> {
    tweed: &'a RefCell<&'a mut Tweed<P, D>>,
    request: &'a Request<'r>,
    place: &'a Place,
}

impl<P: Datapath, D: Delegate> Removal for Unused<'_, '_, P, D> {
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

fn detach<P: Datapath, D: Delegate>(
    tweed: &mut Tweed<P, D>,
    request: &Request<'_>,
    entry: &Entry,
) -> Result<(), CniError> {
    match &entry.record {
        Some(record) => tweed.datapath.detach(request, &record.attachment()),
        // It cannot be read, but the link's name follows from the name of the file.
        None => tweed.datapath.detach_named(&entry.link_name()),
    }
}

/// The names of the links that are recorded or listed. A link without a record is left
/// after somebody deleted the store.
fn used(store: &Store, valid: &[Attachment]) -> Result<HashSet<String>, CniError> {
    let (records, _) = store.records()?;
    let recorded = records.iter().map(Record::attachment);
    let names = recorded.map(|attachment| attachment.link_name());
    Ok(names
        .chain(valid.iter().map(Attachment::link_name))
        .collect())
}
