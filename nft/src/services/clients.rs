//! The clients of Services with affinity, as packets have left them in the kernel.

use tweed_netlink::nf::attributes::each;
use tweed_netlink::nf::element::{DATA, EXPIRATION, ITEM, KEY, TIMEOUT};
use tweed_netlink::nf::object::{ELEMENTS, NEW_ELEMENTS, SET_NAME, TableKey};
use tweed_netlink::nf::{Attributes, Transaction};

use crate::connection::Connection;
use crate::error::Error;

/// Number of clients in a message: the length of an attribute has 16 bits.
const IN_A_MESSAGE: usize = 500;
/// Number of messages in a transaction, of which the kernel keeps a record of each element.
const IN_A_TRANSACTION: usize = 40;

/// Copies the elements of a map from one table to the same map of another, each with the
/// time that remains for it. One that is there already stays.
pub(super) fn copy(
    nft: &mut Connection,
    map: &str,
    from: TableKey<'_>,
    to: TableKey<'_>,
) -> Result<(), Error> {
    let dump = from.elements(&mut nft.socket, map)?;
    let lists = dump.iter().filter_map(|part| part.attribute(ELEMENTS));
    let items: Vec<&[u8]> = lists.flat_map(each).map(|(_, item)| item).collect();
    let messages: Vec<&[&[u8]]> = items.chunks(IN_A_MESSAGE).collect();
    for messages in messages.chunks(IN_A_TRANSACTION) {
        let mut transaction = Transaction::new(format!("table {to}"));
        for items in messages {
            let list = items.iter().fold(Attributes::new(), |list, item| {
                list.nest(ITEM, |copy| {
                    kept(item).fold(copy, |copy, (kind, payload)| copy.bytes(kind, payload))
                })
            });
            let name = Attributes::new().text(SET_NAME, map);
            transaction.create(to.message(NEW_ELEMENTS, name.nested(ELEMENTS, &list)));
        }
        nft.commit(&transaction, true)?;
    }
    Ok(())
}

/// The attributes of an element that say what it is and how long it stays.
fn kept(item: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    each(item).filter(|(kind, _)| [KEY, DATA, TIMEOUT, EXPIRATION].contains(kind))
}
