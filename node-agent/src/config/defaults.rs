//! Defaults of flags. Default folders are in [`tweed_core::paths`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

/// VXLAN network identifier.
pub const VNI: u32 = 1;
/// Valid VXLAN network identifiers: 24 bits (RFC 7348), and 0 means "none" to the
/// kernel. Of clap's type for ranges.
pub const VNI_RANGE: RangeInclusive<i64> = 1..=16_777_215;
/// UDP port of VXLAN: what Linux used before 4789 was assigned, and flannel uses.
pub const VXLAN_PORT: u16 = 8472;
/// Directions of flows that the fast path remembers, for each family.
pub const FAST_PATH_FLOWS: u32 = 65_536;
/// Valid numbers of them. Of clap's type for ranges.
pub const FAST_PATH_FLOWS_RANGE: RangeInclusive<i64> = 1024..=16_777_216;
/// Address on which the agent serves `/metrics`, `/healthz` and `/readyz`.
pub const METRICS_ADDR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9116);
/// Address on which the agent serves `/healthz` and `/readyz` for probes.
pub const HEALTH_ADDR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9117);
/// Address on which the agent answers load balancers with `--services on`: kube-proxy's
/// port, on all addresses of both families.
pub const SERVICES_HEALTH_ADDR: SocketAddr =
    SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 10256);
/// Address on which the agent serves kube-proxy's metrics with `--services on`.
pub const SERVICES_METRICS_ADDR: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10249);
/// How long `--once` may take: longer than the lists of pods are spread over.
pub const ONCE_LIMIT: Duration = Duration::from_secs(60);
/// The nft program: a name to be found in `PATH`.
pub const NFT: &str = "nft";
