//! Large transactions, of which nobody is notified: an element's notification costs the
//! kernel as much as the element, and thousands of them do not fit into a monitor's room.
//! That nobody else has changed anything meanwhile is told by the number of transactions.

use tweed_netlink::nf::object::generation;
use tweed_netlink::nf::{Membership, Transaction};

use super::Reconciler;
use crate::element::{self, Change};
use crate::error::Error;

/// Number of elements from which on a transaction is large. To leave and to join costs as
/// much as the notifications of some ten elements.
const LARGE: usize = 100;

impl Reconciler {
    /// Has another monitor of nf_tables in this network namespace pause, too, while a large
    /// transaction is written; none if there is none.
    pub fn pause_with(&mut self, other: Option<Membership>) {
        self.other_monitor = other;
    }

    /// Carries out the transaction of `changes`, which also empties `flushed`.
    ///
    /// The order matters. What others do before `before` is read is notified of before the
    /// monitors leave; what they do after `after` is read, after they have joined; and what
    /// they do between shows in the difference. A transaction of others that is under way is
    /// waited for first: it would be heard, and counted all the same.
    pub(super) fn commit(
        &mut self,
        transaction: &Transaction,
        changes: &[Change],
        flushed: &[String],
    ) -> Result<(), Error> {
        // How many elements a set loses that is emptied is not known.
        let is_large = !flushed.is_empty() || element::count(changes) >= LARGE;
        if !is_large {
            return Ok(self.socket.commit(transaction)?);
        }
        self.socket.await_notifications()?;
        let before = generation(&mut self.socket)?;
        self.socket.await_notifications()?;
        let mut monitors = vec![self.monitor.membership()];
        monitors.extend(self.other_monitor.clone());
        monitors.iter().try_for_each(Membership::leave)?;
        let committed = self.socket.commit(transaction);
        let joined = monitors.iter().try_for_each(Membership::join);
        // If it is not known, they have missed something: that is no reason to take the
        // transaction for one that has failed.
        let after = joined.and_then(|()| generation(&mut self.socket));
        let own = u32::from(committed.is_ok());
        let expected = before.map(|before| before.wrapping_add(own));
        if expected.is_some() && after.is_ok_and(|after| after == expected) {
            monitors.iter().for_each(Membership::missed_nothing);
        }
        Ok(committed?)
    }
}
