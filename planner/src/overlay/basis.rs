//! What every part of the plan is made from.

use std::{collections::BTreeSet, net::IpAddr};

use tweed_core::{family::Family, object::node::Node};

use super::{claims::Verdict, host::HostFacts};
use crate::config::Config;

/// What the own part and the peers are planned from.
pub(super) struct Basis<'a> {
    pub config: &'a Config,
    pub own: &'a Node,
    /// The family of the underlay.
    pub family: Option<Family>,
    pub verdict: &'a Verdict<'a>,
    pub host: &'a HostFacts,
    /// Addresses of this machine's interfaces.
    pub local_addresses: &'a BTreeSet<IpAddr>,
}
