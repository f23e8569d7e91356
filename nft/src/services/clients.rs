//! The clients of Services with affinity, as packets leave them in the kernel.

use tweed_core::family::Family;

use crate::table::{DataType, KeptBy, Set};
use crate::value::Type;
use crate::words::digit;

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
