//! DEL: put the link out of use, then free the address. Needs nothing but the
//! names: not the container's namespace, not prevResult, not the agent.
//!
//! Deleting a link takes the kernel some 20 ms of grace periods, so a runtime is
//! not made to wait for it: [`Kernel::finish_leaving`].

use tweed_ipam::attachment::Attachment;
use tweed_ipam::protocol::{CniError, Command, Request};
use tweed_ipam::record::State;
use tweed_ipam::store::{LOCK_WAIT, Store, StoreError};

use crate::Tweed;
use crate::config::Place;
use crate::delegate::Delegate;
use crate::ipam;
use crate::kernel::{Kernel, refused};
use crate::plugin::Failures;

/// Detaches a container. Goes on after a failure, but for one thing: an address
/// whose link could not be taken away is not given to anybody else.
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
    let marked = failures.keep(mark_deleting(&place.store, attachment));
    let put_aside = failures.keep(tweed.put_aside(request, attachment));
    if put_aside.is_some() {
        failures.keep(ipam::pass_on(
            Command::Del,
            &place.ipam,
            &mut tweed.delegate,
            request,
        ));
        // A store that did not answer a moment ago is not waited for again.
        if marked.is_some() {
            failures.keep(free(&place.store, attachment));
        }
    }
    if put_aside == Some(true) {
        let finished = tweed.kernel.finish_leaving(&place.run_dir);
        failures.keep(finished.map_err(refused));
    }
    failures.into_result()
}

fn mark_deleting(store: &Store, attachment: &Attachment) -> Result<(), StoreError> {
    if let Some(mut locked) = store.lock_existing(LOCK_WAIT)? {
        locked.mark_deleting(attachment)?;
    }
    Ok(())
}

/// Frees unless an ADD of the same names has come in between.
fn free(store: &Store, attachment: &Attachment) -> Result<(), StoreError> {
    let Some(mut locked) = store.lock_existing(LOCK_WAIT)? else {
        return Ok(());
    };
    let is_anew = match locked.read(attachment) {
        Ok(Some(record)) => record.state != State::Deleting,
        // Nothing, or what cannot be read as a record: that goes too.
        Ok(None) | Err(StoreError::Damaged { .. }) => false,
        Err(error) => return Err(error),
    };
    if !is_anew {
        locked.free(attachment)?;
    }
    Ok(())
}
