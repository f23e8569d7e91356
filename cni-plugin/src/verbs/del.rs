//! DEL: put the link out of use, then free the address. It needs nothing but the
//! attachment's names: not the container's namespace, not prevResult, not the agent.
//! In a namespace that is still there, the interface's name is free when it returns.
//!
//! Deleting a link takes some 20 ms, the kernel's grace periods. The runtime does
//! not wait for that: [`Datapath::delete_leaving_later`].

use tweed_cni::{CniError, Command, Failures, Request, Target};
use tweed_core::attachment::Attachment;
use tweed_ipam::record::State;
use tweed_ipam::store::{Held, LOCK_WAIT, Locked, Store, StoreError};

use crate::datapath::Datapath;
use crate::tweed::{Tweed, warn_of_other_ipam};
use crate::{config::Place, delegate::Delegate};

/// Detaches a container. It continues after a failure, with three exceptions: an
/// address whose link could not be put out of use is not freed; a record stays while
/// another IPAM plugin has not taken its addresses back, as it has GC ask for that
/// too; and nothing is removed while an ADD of the attachment has not ended.
///
/// # Errors
/// All failures in one. The next DEL does the rest.
pub fn del<P: Datapath, D: Delegate>(
    tweed: &mut Tweed<P, D>,
    request: &Request<'_>,
    target: &Target,
) -> Result<(), CniError> {
    let attachment = &target.attachment;
    let place = Place::read(&request.config)?;
    let mut failures = Failures::default();
    let exclusion = match exclude(&place.store, attachment) {
        Err(error @ (StoreError::AddInProgress { .. } | StoreError::DelInProgress { .. })) => {
            return Err(error.into());
        }
        exclusion => failures.keep(exclusion),
    };
    let is_store_usable = exclusion.is_some();
    let (mut held, locked) = exclusion.unwrap_or_default();
    let marked = failures.keep(tweed.datapath.mark_leaving(request, target));
    if held.is_none() && locked.is_none() && is_store_usable && marked == Some(true) {
        // There was no store to lock. If an ADD has made it meanwhile, the link is of that ADD,
        // and this DEL comes after it.
        (held, _) = (failures.keep(exclude(&place.store, attachment))).unwrap_or_default();
    }
    // A delegated plugin may need the store's lock. The lock on the record, which
    // proves that this process is working on it, stays.
    drop(locked);
    if let Some(record) = held.as_deref() {
        warn_of_other_ipam(&place.ipam, request, record);
    }
    if marked.is_some() {
        let released = failures.keep(tweed.forward(Command::Del, &place.ipam, request));
        // A store that could not be locked is not waited for a second time.
        if is_store_usable && released.is_some() {
            failures.keep(free(&place.store, attachment, held.as_ref()));
        }
    }
    drop(held);
    if marked == Some(true) {
        failures.keep(tweed.datapath.delete_leaving_later(&place.run_dir));
    }
    failures.into_result()
}

/// What keeps an ADD of the same attachment from creating a link meanwhile, once no other
/// process works on it: the record, in state deleting and locked, or the lock of the whole
/// store where there is no record. Without a store there was no ADD.
fn exclude<'s>(
    store: &'s Store,
    attachment: &Attachment,
) -> Result<(Option<Held>, Option<Locked<'s>>), StoreError> {
    let Some(mut locked) = store.lock_idle(attachment, LOCK_WAIT)? else {
        return Ok((None, None));
    };
    let held = locked.mark_deleting(attachment)?;
    let locked = held.is_none().then_some(locked);
    Ok((held, locked))
}

/// Frees the record that this DEL has marked, or a file that cannot be read as one.
/// Without `held` there was no record, so one that is there by now is of an ADD that has
/// started meanwhile: it is left to that one, and to the DEL after it.
fn free(store: &Store, attachment: &Attachment, held: Option<&Held>) -> Result<(), StoreError> {
    let Some(mut locked) = store.lock_existing(LOCK_WAIT)? else {
        return store.free_host_local(attachment, LOCK_WAIT).map(drop);
    };
    let is_in_use = match locked.read(attachment) {
        // Somebody may have removed the record that was marked, before such an ADD.
        Ok(Some(record)) => held.is_none() || record.state != State::Deleting,
        // No record, or a file that cannot be read as one, which is removed too.
        Ok(None) | Err(StoreError::Damaged { .. }) => false,
        Err(error) => return Err(error),
    };
    if is_in_use {
        return Ok(());
    }
    let freed = locked.free(attachment)?;
    drop(locked);
    if freed.is_none_or(|freed| !freed.is_complete()) {
        store.free_host_local(attachment, LOCK_WAIT)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tweed_core::attachment::{ContainerId, IfName, NetworkName};
    use tweed_ipam::record::{Made, Owner, Process, Record};

    use super::*;

    /// A store with a record that a DEL has marked.
    fn marked(folder: &tempfile::TempDir) -> (Store, Record, Held) {
        let network = NetworkName::new("tweed").unwrap();
        let attachment = Attachment {
            network: network.clone(),
            container_id: ContainerId::new("one").unwrap(),
            ifname: IfName::new("eth0").unwrap(),
        };
        let by = Process::current().unwrap();
        let store = Store::open(folder.path(), &network);
        let seed = Record::adding(attachment, Owner::Tweed, by);
        let mut locked = store.lock(LOCK_WAIT).unwrap();
        drop(locked.track(&seed, Vec::new()).unwrap());
        let held = locked.mark_deleting(&seed.attachment()).unwrap().unwrap();
        drop(locked);
        (store, seed, held)
    }

    /// A DEL that found no record excludes no other process.
    #[test]
    fn a_record_that_another_del_works_on_is_left_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let (store, seed, held) = marked(&folder);
        let attachment = &seed.attachment();

        free(&store, attachment, None).unwrap();
        assert!(store.read(attachment).unwrap().is_some());
        free(&store, attachment, Some(&held)).unwrap();
        assert!(store.read(attachment).unwrap().is_none());
    }

    /// Somebody has removed the record that this DEL had marked.
    #[test]
    fn a_record_of_a_later_add_is_left_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let (store, seed, held) = marked(&folder);
        let attachment = &seed.attachment();
        let mut locked = store.lock(LOCK_WAIT).unwrap();
        locked.free(attachment).unwrap();
        let mut added = locked.track(&seed, Vec::new()).unwrap();
        drop(locked);

        free(&store, attachment, Some(&held)).unwrap();
        assert!(store.read(attachment).unwrap().is_some(), "in progress");
        added.set_made(Made::default());
        store.mark_live(&added, LOCK_WAIT).unwrap();
        drop(added);
        free(&store, attachment, Some(&held)).unwrap();
        free(&store, attachment, None).unwrap();
        assert!(store.read(attachment).unwrap().is_some(), "attached");
    }
}
