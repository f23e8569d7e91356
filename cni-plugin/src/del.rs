//! DEL: put the link out of use, then free the address. Needs nothing but the
//! names: not the container's namespace, not prevResult, not the agent.
//!
//! Deleting a link takes the kernel some 20 ms of grace periods, so a runtime is
//! not made to wait for it: [`Kernel::finish_leaving`].

use tweed_cni::{CniError, Command, Request};
use tweed_core::attachment::Attachment;
use tweed_ipam::record::State;
use tweed_ipam::store::{Held, LOCK_WAIT, Locked, Store, StoreError};

use crate::Tweed;
use crate::config::Place;
use crate::delegate::Delegate;
use crate::ipam;
use crate::kernel::{Kernel, refused};
use crate::plugin::Failures;

/// Detaches a container. Goes on after a failure, but for two things: an address
/// whose link could not be taken away is not given to anybody else, and nothing
/// is taken away from an ADD that does not end.
///
/// # Errors
/// All failures in one; the next DEL goes on from there.
pub fn del<K: Kernel, D: Delegate>(
    tweed: &mut Tweed<K, D>,
    request: &Request<'_>,
    attachment: &Attachment,
) -> Result<(), CniError> {
    let place = Place::read(&request.config)?;
    let mut failures = Failures::default();
    let turn = match Turn::take(&place.store, attachment) {
        Err(error @ (StoreError::AddUnderWay { .. } | StoreError::DelUnderWay { .. })) => {
            return Err(error.into());
        }
        turn => failures.keep(turn),
    };
    let has_turn = turn.is_some();
    let put_aside = failures.keep(tweed.put_aside(request, attachment));
    // A plugin that is called may need the store's lock, not what proves that
    // this process is at work.
    let held = turn.and_then(Turn::unlock);
    if put_aside.is_some() {
        failures.keep(ipam::pass_on(
            Command::Del,
            &place.ipam,
            &mut tweed.delegate,
            request,
        ));
        // A store that did not answer a moment ago is not waited for again.
        if has_turn {
            failures.keep(free(&place.store, attachment, held.as_ref()));
        }
    }
    drop(held);
    if put_aside == Some(true) {
        let finished = tweed.kernel.finish_leaving(&place.run_dir);
        failures.keep(finished.map_err(refused));
    }
    failures.into_result()
}

/// What keeps an ADD of the same names from making a link meanwhile.
enum Turn<'s> {
    /// The record, marked.
    Record(Box<Held>),
    /// The lock, as there is no record to mark.
    NoRecord(Locked<'s>),
    /// Nothing: there is no store, so no ADD has been here.
    NoStore,
}

impl<'s> Turn<'s> {
    /// Waits for its turn: one process at a time works on an attachment.
    fn take(store: &'s Store, attachment: &Attachment) -> Result<Self, StoreError> {
        let Some(mut locked) = store.lock_idle(attachment, LOCK_WAIT)? else {
            return Ok(Self::NoStore);
        };
        Ok(match locked.mark_deleting(attachment)? {
            Some(held) => Self::Record(Box::new(held)),
            None => Self::NoRecord(locked),
        })
    }

    fn unlock(self) -> Option<Held> {
        match self {
            Self::Record(held) => Some(*held),
            Self::NoRecord(locked) => {
                drop(locked);
                None
            }
            Self::NoStore => None,
        }
    }
}

/// Frees what this DEL marked, or what nobody is at work on. Without `held` an
/// ADD or another DEL of the same names may have come in between: the record is
/// theirs then.
fn free(store: &Store, attachment: &Attachment, held: Option<&Held>) -> Result<(), StoreError> {
    let Some(mut locked) = store.lock_existing(LOCK_WAIT)? else {
        return Ok(());
    };
    let is_anothers = match locked.read(attachment) {
        Ok(Some(record)) => {
            record.state != State::Deleting || (held.is_none() && !store.is_abandoned(&record))
        }
        // Nothing, or what cannot be read as a record: that goes too.
        Ok(None) | Err(StoreError::Damaged { .. }) => false,
        Err(error) => return Err(error),
    };
    if !is_anothers {
        locked.free(attachment)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tweed_core::attachment::{ContainerId, IfName, NetworkName};
    use tweed_ipam::record::{Owner, Process};
    use tweed_ipam::store::Seed;

    use super::*;

    /// A DEL that found no record has nothing that keeps others away.
    #[test]
    fn a_record_that_another_del_works_on_is_left_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let network = NetworkName::new("tweed").unwrap();
        let store = Store::open(folder.path(), &network);
        let attachment = Attachment {
            network,
            container_id: ContainerId::new("one").unwrap(),
            ifname: IfName::new("eth0").unwrap(),
        };
        let seed = Seed::new(
            attachment.clone(),
            Owner::Tweed,
            Process::current().unwrap(),
        );
        let mut locked = store.lock(LOCK_WAIT).unwrap();
        drop(locked.track(&seed, Vec::new()).unwrap());
        let held = locked.mark_deleting(&attachment).unwrap().unwrap();
        drop(locked);

        free(&store, &attachment, None).unwrap();
        assert!(store.read(&attachment).unwrap().is_some());
        free(&store, &attachment, Some(&held)).unwrap();
        assert!(store.read(&attachment).unwrap().is_none());
    }
}
