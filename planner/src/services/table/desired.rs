//! What the sets and maps of Services should hold, as the rules of `inet tweed-services` read
//! them.
//!
//! A *frontend* is where a Service port is reached: an address, protocol and port
//! ([`Frontend`]), or a node port at the addresses that have node ports ([`NodePort`]).
//! The *origin* of a new flow is a pod of the cluster (its source is in
//! [`Desired::pod_networks`]), this node itself (hook `output`), or *outside*:
//! everything else, other nodes among it. To send a new flow on, the rules
//!
//! 1. drop it if its frontend is in [`Desired::limits`] and its source is not in a span
//!    that [`Desired::allowed`] has for that limit; a flow of this node passes if the
//!    limit is in [`Desired::open_to_node`], and is dropped otherwise;
//! 2. find the target of its frontend: for a flow from outside in
//!    [`Frontends::outside`], and where that has none, as for all others, in
//!    [`Frontends::targets`]. They look in [`Desired::addresses`] first; where neither of
//!    its maps has the frontend, and the destination is a local address in
//!    [`Desired::node_port_networks`] and not in [`Desired::node_port_exceptions`], in
//!    [`Desired::node_ports`];
//! 3. reject or drop it if the target says so; else they have the number of a group, and
//!    for one without affinity what it holds, so that they need no lookup for that;
//! 4. if the group is in [`Desired::affinities`]: take the endpoint number that the
//!    client was given last for the group's [`affinity_key`], within the timeout, if it
//!    is in [`Desired::members`] of the group's [`Scope`], and renew the timeout;
//! 5. else draw one of the [`Group::slots`] at random, and look it up by group and index
//!    from 0: in [`Desired::slots`] (an endpoint), [`Desired::member_slots`] (the number
//!    of an endpoint, to be remembered for the client) or [`Desired::parts`] (another
//!    group to draw from, which is never of parts), as [`Group::holds`] says;
//! 6. translate the destination to the endpoint; an endpoint number is looked up in
//!    [`Desired::endpoints`];
//! 7. masquerade as [`Frontends::masquerade`] of the frontend says, and whenever the
//!    source is the endpoint itself, which is in [`Desired::hairpin`], or the source is a
//!    pod of another node and the endpoint is not on this one: for the latter they know
//!    this node's pod CIDRs.
//!
//! A flow without a target is rejected if its destination is in [`Desired::cluster_ips`],
//! whatever its protocol; else dropped if it is in [`Desired::service_networks`], not in
//! [`Desired::foreign`] and no local address, which ServiceCIDRs may have by mistake; else
//! not touched.
//!
//! A packet of TCP that conntrack calls invalid is not translated. It is dropped where it would
//! have been: from one of [`Desired::tcp_endpoints`] on its way from or to a pod of this node, or
//! from a pod to this node itself, and to an address of a Service.
//!
//! What changes for one endpoint is a slot of its group and what says how many there are:
//! the target of each frontend that leads to the group, or [`Desired::groups`] for one with
//! affinity. The endpoint in the last slot moves into that of one that is removed.
//!
//! Every set is of both families; the kernel has one for each. All keys, targets and
//! endpoints of one flow are of one family: a Service of two families is two here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use tweed_component::schema::Sets;
use tweed_component::{schema, sets};

pub use super::super::model::value::{
    Endpoint, Frontend, HealthCheck, Masquerade, NodePort, ServiceName, Tracked,
};
pub use super::scope::{GROUP_DISTANCE, PerScope, SCOPES, Scope, both_scopes};
pub use crate::addresses::Span;
pub use crate::numbers::Number;

/// The most slots of a group, so that the rules have one chain for each number of slots
/// and never another one. Groups of groups have up to its square, 6,400 endpoints: a pod
/// on each of the 5,000 nodes that Kubernetes is made for, and more.
pub const MAX_SLOTS: u8 = 80;

// Numbers are from disjoint ranges, and from others than those of policy, so that a
// number that a lookup leaves as it is matches nothing afterwards.

/// The distance of the numbers of two Service ports of one family: each has a group for
/// [`Scope::Cluster`], and the next one for [`Scope::Local`].
pub const PORT_DISTANCE: Number = 2 * GROUP_DISTANCE;
/// The first group that a frontend without affinity leads to. There is room for 1,048,576
/// Service ports.
pub const FIRST_GROUP: Number = 0x4000_0000;
/// The first group that is a part of another one.
pub const FIRST_PART: Number = 0x6000_0000;
/// The first limit.
pub const FIRST_LIMIT: Number = 0x7000_0000;
/// The first number of the Service ports with affinity. Each one of one family has a
/// block of [`AFFINITY_BLOCK`] numbers, aligned to its size: the first [`PORT_DISTANCE`] of
/// them are for its two groups, all others are for its endpoints. So the rules get from the
/// number of an endpoint, which they draw or remember, to what the client is remembered by.
pub const FIRST_AFFINITY: Number = 0x8000_0000;
/// The size of a block, a power of two: its two groups and all endpoints that groups of
/// groups can have. There are 262,144 blocks.
pub const AFFINITY_BLOCK: Number = 0x2000;

/// The numbers that the endpoints of the Service port with affinity can have whose block
/// begins with `base`.
#[must_use]
pub fn endpoint_numbers(base: Number) -> RangeInclusive<Number> {
    base + PORT_DISTANCE..=base + (AFFINITY_BLOCK - 1)
}

/// What clients are remembered by, beside their address, for a group with affinity or
/// the number of one of its endpoints: the same for both groups of a Service port, so
/// that all of its addresses share it.
#[must_use]
pub fn affinity_key(number: Number) -> Number {
    number & !(AFFINITY_BLOCK - 1)
}

/// Where a frontend leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// An endpoint of this group, which [`Desired::groups`] has as the same.
    Group(Number, Group),
    /// An endpoint of this group with affinity, which is in [`Desired::affinities`].
    Affinity(Number),
    /// There is no endpoint anywhere: the client is told.
    Reject,
    /// The traffic policy is `Local`, and there are endpoints on other nodes only: the
    /// flow is dropped and counted, so that the client tries another node.
    Drop,
}

impl Target {
    /// The group that it leads to.
    #[must_use]
    pub fn group(self) -> Option<Number> {
        match self {
            Self::Group(group, _) | Self::Affinity(group) => Some(group),
            Self::Reject | Self::Drop => None,
        }
    }
}

schema! {
    /// Frontends of one kind, by key: [`Frontend`] or [`NodePort`].
    pub struct Frontends<K> {
        /// Where each leads to.
        pub targets: BTreeMap<K, Target>,
        /// Where it leads to for flows from outside, where that is another target. Its keys
        /// are also in `targets`.
        pub outside: BTreeMap<K, Target>,
        /// Which flows are masqueraded, where that differs from cluster IPs. Its keys are
        /// also in `targets`.
        pub masquerade: BTreeMap<K, Masquerade>,
    }

    /// The change of [`Frontends`].
    pub struct FrontendsDelta
}

/// A group of endpoints. It is never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    /// The number of its slots, from 1 to [`MAX_SLOTS`].
    pub slots: u8,
    /// What they hold.
    pub holds: Holds,
}

/// What the slots of a group hold, and so where they are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holds {
    /// Endpoints: in [`Desired::slots`].
    Endpoints,
    /// Numbers of endpoints, because the group has affinity, or is a part of one that
    /// has: in [`Desired::member_slots`].
    Members,
    /// Groups that are parts of this one, with sizes as even as possible: in
    /// [`Desired::parts`].
    Parts,
}

/// A group that is a part of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    /// Its number.
    pub group: Number,
    /// The number of its slots, as [`Desired::groups`] has it.
    pub slots: u8,
}

sets!([T: Sets] PerScope<T>, PerScope<T::Delta>, cluster: T, local: T);

schema! {
    /// The elements of all sets and maps of Services.
    pub struct Desired {
        /// The frontends at addresses of Services.
        pub addresses: Frontends<Frontend>,
        /// The node ports.
        pub node_ports: Frontends<NodePort>,
        /// Where node ports are: those addresses of this node (`fib daddr type local`) that
        /// are in it. Loopback addresses are in none. Spans never overlap.
        pub node_port_networks: BTreeSet<Span>,
        /// Addresses of load balancers that are not this Node's addresses: even where the
        /// kernel has them as local they have no node ports, so that nothing gets around
        /// what limits their frontends.
        pub node_port_exceptions: BTreeSet<IpAddr>,
        /// All groups, parts included.
        pub groups: BTreeMap<Number, Group>,
        /// Groups with affinity, never parts: for how many seconds after its last new flow a
        /// client keeps its endpoint.
        pub affinities: BTreeMap<Number, u32>,
        /// A group and an index from 0: the endpoint.
        pub slots: BTreeMap<(Number, u8), Endpoint>,
        /// A group and an index from 0: the number of the endpoint.
        pub member_slots: BTreeMap<(Number, u8), Number>,
        /// A group and an index from 0: the group that is this part of it.
        pub parts: BTreeMap<(Number, u8), Part>,
        /// The endpoints that have numbers: those of Service ports with affinity, each in the
        /// block of its port ([`FIRST_AFFINITY`]). A number keeps its endpoint while it is in
        /// here; both groups of a Service port have the same one. So it does in the first plan
        /// of the next run, which takes them over
        /// ([`super::super::ServicePlanner::take_over`]).
        pub endpoints: BTreeMap<Number, Endpoint>,
        /// The numbers of the endpoints that clients may keep, by the scope of the group. A
        /// number that was given back may be given to another endpoint of the Service port.
        pub members: PerScope<BTreeSet<Number>>,
        /// Frontends that only some sources may reach: their limit.
        pub limits: BTreeMap<Frontend, Number>,
        /// A limit and the sources that pass it. Spans of one limit never overlap. One that
        /// is not in here lets nobody pass.
        pub allowed: BTreeSet<(Number, Span)>,
        /// Limits that this node itself passes, whichever address it uses.
        pub open_to_node: BTreeSet<Number>,
        /// The cluster IPs of all Services, but for those that Nodes have too or that are in
        /// ranges of pods: their other ports are rejected.
        pub cluster_ips: BTreeSet<IpAddr>,
        /// The networks of cluster IPs without addresses of Nodes and ranges of pods. Spans never
        /// overlap.
        pub service_networks: BTreeSet<Span>,
        /// The cluster IPs of Services that another proxy serves.
        pub foreign: BTreeSet<IpAddr>,
        /// The networks of the cluster's pods. Spans never overlap.
        pub pod_networks: BTreeSet<Span>,
        /// The pod CIDRs of this node. Spans never overlap.
        pub local_cidrs: BTreeSet<Span>,
        /// The addresses of all endpoints of this node: by the node that their slice names, or
        /// as a pod of this node has them.
        pub hairpin: BTreeSet<IpAddr>,
        /// The endpoints of TCP of all Services, used or not: who answers a translated connection.
        pub tcp_endpoints: BTreeSet<Endpoint>,
        /// The health checks of Services by port; not for the kernel.
        pub health_checks: BTreeMap<u16, HealthCheck>,
        /// The frontends of UDP with all their endpoints that serve or are published as ready,
        /// chosen or not; not for the kernel. A flow to one of them whose endpoint is none of
        /// these is stale.
        pub tracked: BTreeMap<Tracked, Arc<BTreeSet<Endpoint>>>,
        /// The frontends of UDP of Services that another proxy serves; not for the kernel. Where
        /// they are not in `tracked` too, their flows are none of ours.
        pub untracked: BTreeSet<Tracked>,
    }

    /// The change from one [`Desired`] to another. It is to be written as a whole: between
    /// its parts slots and groups do not fit each other.
    pub struct Delta
}
