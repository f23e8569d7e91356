//! tweed's tables: their names, and where their chains stand.
//!
//! Each component has a table of its own, so that nothing of one depends on what became of
//! another: a refusal, a restart, an object that is not known. Rules name sets of their own
//! table and never addresses, so no rule changes with Nodes, pods, policies or Services.
//!
//! The order between the tables is that of their priorities and never depends on which was
//! made first: of chains with one priority the kernel runs the one that was registered last
//! first, and of NAT chains the first that decides ends the search.

use tweed_netlink::nf::object::{DELETE_TABLE, SET_NAME, TableKey};
use tweed_netlink::nf::{Attributes, Socket, Transaction};
pub use tweed_netlink::owned::{POLICY_TABLE, SERVICES_TABLE, TABLE, TABLES};

use crate::connection::Connection;
use crate::element::{Change, Element, ElementsDelta};
use crate::error::Error;
use crate::keeper::{Keeper, Outcome};

/// Before conntrack (−200): what is refused makes no entry there, and what need not be
/// tracked is taken out. This and the following are priorities of
/// `linux/netfilter_ipv4.h`, `enum nf_ip_hook_priorities`, or close to one.
pub(crate) const RAW: i32 = -300;
/// Destinations are rewritten by Services. It comes before the number that everybody takes
/// for it (−100: portmap for hostPorts, kube-proxy), so that a Service gets what is for its
/// address whoever has come first.
pub(crate) const SERVICES_DNAT: i32 = -101;
/// Services drop what fits no flow.
pub(crate) const SERVICES_FILTER: i32 = -2;
/// The overlay refuses VXLAN of strangers.
pub(crate) const OVERLAY_FILTER: i32 = -1;
/// Policies decide what may pass, by addresses after DNAT.
pub(crate) const POLICY_FILTER: i32 = 0;
/// Sources of flows to Services are rewritten.
pub(crate) const SERVICES_SNAT: i32 = 99;
/// Sources of pods are rewritten.
pub(crate) const OVERLAY_SNAT: i32 = 100;

/// A table of one component.
pub trait Table {
    /// All that it should hold.
    type Desired;
    /// How one such value differs from the one before.
    type Delta;

    /// Family and name.
    const KEY: TableKey<'static>;

    /// Makes the table hold what is desired. It is looked at when something else has touched
    /// it, after an error, and when `force_observe` says so; otherwise only what differs from
    /// the last time is written.
    ///
    /// # Errors
    /// The first failure; the next call then looks at everything again.
    fn reconcile(
        &mut self,
        nft: &mut Connection,
        desired: &Self::Desired,
        force_observe: bool,
    ) -> Result<Outcome, Error>;

    /// Makes the table follow a change of what is desired. None if it is not known to hold
    /// what was desired before, or needs other rules: then [`Self::reconcile`] has to look,
    /// and a part of the change may have been written.
    ///
    /// # Errors
    /// The change was not written, or only a part of it.
    fn follow(
        &mut self,
        nft: &mut Connection,
        delta: &Self::Delta,
    ) -> Result<Option<Outcome>, Error>;

    /// Puts the rules back if others have changed them, around what the sets hold: it is not
    /// known yet what these should hold. Where there is no table, or its rules are those of
    /// another version, nothing happens until that is known.
    ///
    /// # Errors
    /// The kernel cannot be asked, or refuses the rules.
    fn restore(&mut self, _nft: &mut Connection) -> Result<Outcome, Error> {
        Ok(Outcome::default())
    }

    /// Deletes the table, if there is one.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn remove(&mut self, nft: &mut Connection) -> Result<Outcome, Error>;

    /// What keeps it in the kernel.
    fn keeper(&mut self) -> &mut Keeper;

    /// It is not known how what is desired has changed: the next [`Self::reconcile`] counts
    /// what differs as a change.
    fn forget(&mut self) {
        self.keeper().forget_provided();
    }

    /// Whether something else may have changed the table since it was looked at.
    ///
    /// # Errors
    /// The notifications cannot be read.
    fn is_touched(&mut self, nft: &mut Connection) -> Result<bool, Error> {
        self.keeper().is_touched(nft)
    }
}

/// The tables that the calling thread's network namespace has, in the order in which they
/// are to be removed, for whoever uninstalls tweed.
///
/// # Errors
/// [`Error::NoNfTables`], [`Error::NotAllowed`], or the kernel cannot be asked.
pub fn present() -> Result<Vec<TableKey<'static>>, Error> {
    let mut socket = Socket::open().map_err(Error::unavailable)?;
    let mut tables = Vec::new();
    for table in TABLES {
        if table
            .get(&mut socket)
            .map_err(Error::unavailable)?
            .is_some()
        {
            tables.push(table);
        }
    }
    Ok(tables)
}

/// Deletes a table in the calling thread's network namespace. One that is not there is no
/// error.
///
/// # Errors
/// The kernel's refusal.
pub fn remove(table: TableKey<'static>) -> Result<(), Error> {
    let mut transaction = Transaction::new(format!("table {table}"));
    transaction.delete(table.message(DELETE_TABLE, Attributes::new()));
    match Socket::open()?.commit(&transaction) {
        Err(error) if !error.is_absent() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Whether a table is there and has a set or map of this name.
pub(crate) fn has_set(
    nft: &mut Connection,
    table: TableKey<'_>,
    name: &str,
) -> Result<bool, Error> {
    let sets = table.sets(&mut nft.socket)?;
    Ok(sets.iter().any(|set| set.text(SET_NAME) == Some(name)))
}

/// Maximum number of elements in one transaction of what may be written in parts: the kernel
/// keeps a record of each until the transaction is done, hundreds of megabytes for all of them.
pub(crate) const CHUNK: usize = 20_000;

/// A change as several that are each small enough for a transaction: first all that it
/// removes, since a key may get another value.
pub(crate) fn chunks(change: Change) -> Vec<Change> {
    let Change { set, delta } = change;
    let mut chunks = Vec::new();
    let mut push = |removed, added| {
        let set = set.clone();
        let delta = ElementsDelta { removed, added };
        chunks.push(Change { set, delta });
    };
    for part in split(delta.removed) {
        push(part, Vec::new());
    }
    for part in split(delta.added) {
        push(Vec::new(), part);
    }
    chunks
}

/// A change as what comes before it, the rest of it, and what goes after it.
pub(crate) fn in_steps(
    change: Change,
    comes_before: impl Fn(&Element) -> bool,
    goes_after: impl Fn(&Element) -> bool,
) -> [Change; 3] {
    let Change { set, delta } = change;
    let (before, added) = delta.added.into_iter().partition(comes_before);
    let (after, removed) = delta.removed.into_iter().partition(goes_after);
    [(Vec::new(), before), (removed, added), (after, Vec::new())].map(|(removed, added)| Change {
        set: set.clone(),
        delta: ElementsDelta { removed, added },
    })
}

/// Parts of at most [`CHUNK`] elements.
fn split(elements: Vec<Element>) -> Vec<Vec<Element>> {
    let mut rest = elements.into_iter().peekable();
    let mut parts = Vec::new();
    while rest.peek().is_some() {
        parts.push(rest.by_ref().take(CHUNK).collect());
    }
    parts
}
