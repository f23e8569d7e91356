//! The protocols that have ports, as Kubernetes and as packets name them.

pub use tweed_component::explain::protocol_number;

/// The protocols that have ports, by their numbers.
pub const PROTOCOLS: [u8; 3] = [6, 17, 132];

/// The number of TCP.
pub const TCP: u8 = 6;
/// The number of UDP, which has no connections.
pub const UDP: u8 = 17;
