//! The protocols that have ports, as Kubernetes and as packets name them.

/// The protocols that have ports, by their numbers.
pub const PROTOCOLS: [u8; 3] = [6, 17, 132];

/// The number of TCP.
pub const TCP: u8 = 6;
/// The number of UDP, which has no connections.
pub const UDP: u8 = 17;

/// The number of a protocol as Kubernetes names it.
pub fn protocol_number(name: &str) -> Option<u8> {
    match name {
        "TCP" => Some(TCP),
        "UDP" => Some(UDP),
        "SCTP" => Some(132),
        _ => None,
    }
}
