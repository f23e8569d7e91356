//! The clients of Services with affinity, as packets leave them in the kernel.

use tweed_core::family::Family;
use tweed_netlink::nf::attributes::each;
use tweed_netlink::nf::element::{DATA, EXPIRATION, ITEM, KEY, TIMEOUT};
use tweed_netlink::nf::object::{ELEMENTS, NEW_ELEMENTS, SET_NAME, TableKey};
use tweed_netlink::nf::{Attributes, Transaction};

use crate::connection::Connection;
use crate::error::Error;
use crate::table::{DataType, KeptBy, Set};
use crate::value::Type;
use crate::words::digit;

/// Number of clients in a message: the length of an attribute has 16 bits.
const IN_A_MESSAGE: usize = 500;
/// Number of messages in a transaction, of which the kernel keeps a record of each element.
const IN_A_TRANSACTION: usize = 40;

/// Maximum number of clients that are remembered, of each family: some 70 MB of the
/// kernel's memory. A client beyond them gets another endpoint with each connection.
const CLIENTS: u32 = 500_000;

/// The expression for what the clients of a family, by its digit, are known by: the first
/// fields of the key of [`declaration`].
///
/// Of IPv6 these are the interface identifier and a hash of the prefix: nft 1.0.6 gives the
/// key of an `update` 16 bytes, of which the affinity key takes 4, and aborts or overwrites
/// what is beyond. Two clients with one interface identifier are taken for one with a
/// probability of 2⁻³²; they then share an endpoint, and nothing else. The seed is fixed so
/// that clients are still known after the rules were replaced.
pub(super) fn client(digit: char) -> &'static str {
    match digit {
        '4' => "ip saddr",
        _ => "@nh,128,64 . jhash @nh,64,64 mod 4294967295 seed 0x74776565",
    }
}

/// The map of the clients of Services with affinity, which packets fill: by client and
/// affinity key, the number of the endpoint that the client was given last.
pub(super) fn declaration(family: Family) -> Set {
    let client = match family {
        Family::V4 => vec![Type::Ipv4],
        Family::V6 => vec![Type::Ipv6Interface, Type::Index],
    };
    Set {
        name: format!("service_clients{}", digit(family)),
        key: [client, vec![Type::Class]].concat(),
        data: Some(DataType::Values(vec![Type::Class])),
        interval: false,
        kept_by: KeptBy::Packets { size: CLIENTS },
    }
}

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
