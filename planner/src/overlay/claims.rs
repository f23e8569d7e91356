//! Which claims of the Nodes are accepted beside each other's: the second half
//! of "A Node is data from somebody else" (docs/agent.md). One entry point,
//! [`judge`].
//!
//! Every Node claims addresses, ranges for its pods and a VTEP MAC. Claims are
//! judged Node by Node, from the oldest to the youngest (`creationTimestamp`,
//! none counts as oldest; then UID; then name); one that conflicts with an older
//! Node's is refused. So:
//! - every node of the cluster decides the same, in whatever order the Nodes
//!   became known;
//! - no two accepted ranges overlap, no accepted address is in another Node's
//!   range;
//! - a refused claim has no influence on the others: without it they would be
//!   decided the same.
//!
//! An address that several Nodes claim is accepted of all of them and reported
//! ([`Verdict::shared`]). Otherwise a stale Node, or one that a malicious node
//! wrote, could take the network from another node. Over VXLAN that does no
//! harm: the machine that has the address drops the packets for other VTEP MACs.
//! Only a direct route has nothing but the address, and takes the oldest Node's.
//!
//! What only this machine knows of a claim is looked for last ([`machine`]): such a
//! claim is not used here, but still wins against younger ones, as it does on
//! the other nodes.

mod machine;

use std::collections::btree_map::{BTreeMap, Entry};
use std::{collections::BTreeSet, net::IpAddr};

use ipnetwork::IpNetwork;
use tweed_core::{family::Family, mac::Mac, object::node::Node};

use super::refusal::{Claim, RefusedClaim, Why};
use super::{cluster::Snapshot, syntax, vtep};

/// What claims are judged by.
#[derive(Debug, Clone, Default)]
pub struct Rules<'a> {
    /// `--cluster-cidr`: in a family without one every range is accepted.
    pub cluster_cidrs: &'a [IpNetwork],
    /// `--underlay`: picks the address of its family; for a family without one
    /// it is the first InternalIP.
    pub underlay: Option<IpNetwork>,
    /// Families in which nodes send packets to each other's addresses.
    pub families: BTreeSet<Family>,
    /// Networks that this machine is connected to.
    pub connected: BTreeSet<IpNetwork>,
    /// Addresses of this machine's interfaces.
    pub local: BTreeSet<IpAddr>,
    /// Network and broadcast addresses of this machine's networks, each with its
    /// network.
    pub edges: BTreeMap<IpAddr, IpNetwork>,
}

/// The accepted claims of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Member {
    /// Ranges of its pods, at most one per family, in the Node's order.
    pub pod_cidrs: Vec<IpNetwork>,
    /// The address that other nodes send to, per family of
    /// [`Rules::families`].
    pub addresses: BTreeMap<Family, IpAddr>,
    /// Every address that it lists; those of them that are usable are among
    /// [`Verdict::node_addresses`].
    pub listed: BTreeSet<IpAddr>,
    /// The MAC of its VXLAN device; none if it was refused.
    pub mac: Option<Mac>,
}

/// The evaluation of all claims.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict<'a> {
    /// Every Node by name, with its accepted claims.
    pub members: BTreeMap<&'a str, Member>,
    /// Every usable address that any Node lists, whether the overlay uses it or
    /// not, except those inside an accepted range.
    pub node_addresses: BTreeSet<IpAddr>,
    /// The address of each family that [`Rules`] pick of each Node, where it is
    /// accepted; of families besides [`Rules::families`] too.
    pub underlay_addresses: BTreeSet<IpAddr>,
    /// Addresses that were accepted of several Nodes, each with these Nodes: the
    /// oldest first.
    pub shared: BTreeMap<IpAddr, Vec<&'a str>>,
    /// Networks that this machine is connected to and that have accepted ranges
    /// in them.
    pub around: BTreeSet<IpNetwork>,
    /// The refused claims, ordered by Node and claim.
    pub refusals: Vec<RefusedClaim>,
}

/// Sorts Nodes into the order in which their claims are judged: the oldest first.
pub fn by_age(nodes: &mut [&Node]) {
    nodes.sort_unstable_by_key(|node| (node.created, &node.uid, &node.name));
}

/// Judges every claim of `snapshot` by `rules`: O(n log n).
pub fn judge<'a>(snapshot: &Snapshot<'a>, rules: &Rules<'_>) -> Verdict<'a> {
    let mut nodes: Vec<&Node> = snapshot.nodes().collect();
    by_age(&mut nodes);

    let mut decision = Decision {
        rules,
        own: &snapshot.own.name,
        ranges: BTreeMap::new(),
        addresses: BTreeMap::new(),
        macs: BTreeMap::new(),
        listed: BTreeSet::new(),
        verdict: Verdict::default(),
    };
    for node in nodes {
        let member = decision.admit(node);
        decision.verdict.members.insert(&node.name, member);
    }
    decision.refuse_locally();
    decision.collect_addresses();
    decision.verdict.refusals.sort_unstable();
    decision.verdict
}

struct Decision<'a, 'r> {
    rules: &'r Rules<'r>,
    /// Name of this machine's Node.
    own: &'a str,
    /// Accepted ranges by first address. They are disjoint, so the only one that
    /// can overlap another range is the last that starts in or before it.
    ranges: BTreeMap<IpAddr, (IpNetwork, &'a str)>,
    /// Accepted addresses, each with the oldest Node that has it.
    addresses: BTreeMap<IpAddr, &'a str>,
    macs: BTreeMap<Mac, &'a str>,
    listed: BTreeSet<IpAddr>,
    verdict: Verdict<'a>,
}

impl<'a> Decision<'a, '_> {
    fn admit(&mut self, node: &'a Node) -> Member {
        let mut listed = BTreeSet::new();
        // Before the ranges, so that a range around the Node's own address
        // is refused: its route would send the tunnel's own packets into
        // the tunnel.
        let addresses = self.admit_addresses(node, &mut listed);
        self.listed.extend(&listed);
        Member {
            addresses,
            pod_cidrs: self.admit_ranges(node),
            listed,
            mac: self.admit_mac(node),
        }
    }

    fn admit_addresses(
        &mut self,
        node: &'a Node,
        listed: &mut BTreeSet<IpAddr>,
    ) -> BTreeMap<Family, IpAddr> {
        let mut candidates = BTreeMap::new();
        for entry in &node.addresses {
            let internal = entry.kind == "InternalIP";
            if !internal && entry.kind != "ExternalIP" {
                continue;
            }
            let ip = match syntax::address(&entry.address) {
                Ok(ip) => ip,
                Err(why) => {
                    self.refuse(&node.name, Claim::address(&entry.address), why);
                    continue;
                }
            };
            listed.insert(ip);
            let family = Family::of(ip);
            let picked = match self.rules.underlay {
                Some(underlay) if Family::of(underlay.ip()) == family => underlay.contains(ip),
                _ => internal,
            };
            if picked {
                candidates.entry(family).or_insert(ip);
            }
        }
        candidates.retain(|family, ip| {
            let why = self.contested_address(&node.name, *ip);
            if !self.rules.families.contains(family) {
                if why.is_none() {
                    self.verdict.underlay_addresses.insert(*ip);
                }
                return false;
            }
            match why {
                None => self.accept_address(&node.name, *ip),
                Some(why) => {
                    self.refuse(&node.name, Claim::Address(ip.to_string()), why);
                    return false;
                }
            }
            true
        });
        candidates
    }

    fn accept_address(&mut self, node: &'a str, ip: IpAddr) {
        match self.addresses.entry(ip) {
            Entry::Vacant(free) => {
                free.insert(node);
            }
            Entry::Occupied(first) => {
                let shared = self.verdict.shared.entry(ip);
                shared.or_insert_with(|| vec![*first.get()]).push(node);
            }
        }
    }

    fn contested_address(&self, node: &str, ip: IpAddr) -> Option<Why> {
        // That this machine has its own Node's address is certain, whatever
        // range another Node claims.
        let certain = node == self.own && self.rules.local.contains(&ip);
        if let Some((cidr, node)) = self.range_at(ip).filter(|_| !certain) {
            return Some(Why::InsideCidr(cidr, node.to_owned()));
        }
        let mut clusters = self.rules.cluster_cidrs.iter();
        let cluster = clusters.find(|cluster| cluster.contains(ip))?;
        Some(Why::InsideCluster(*cluster))
    }

    fn admit_ranges(&mut self, node: &'a Node) -> Vec<IpNetwork> {
        let mut accepted: Vec<IpNetwork> = Vec::new();
        for text in &node.pod_cidrs {
            let contested = |cidr| self.contested_range(cidr, &accepted).map_or(Ok(cidr), Err);
            match syntax::pod_cidr(text).and_then(contested) {
                Ok(cidr) => {
                    self.ranges.insert(cidr.network(), (cidr, &node.name));
                    accepted.push(cidr);
                }
                Err(why) => self.refuse(&node.name, Claim::pod_cidr(text), why),
            }
        }
        accepted
    }

    fn contested_range(&self, cidr: IpNetwork, same_node: &[IpNetwork]) -> Option<Why> {
        let mut same_family = same_node.iter().filter(|a| a.is_ipv4() == cidr.is_ipv4());
        if let Some(first) = same_family.next() {
            return Some(Why::SecondOfFamily(*first));
        }
        let mut allowed = (self.rules.cluster_cidrs.iter())
            .filter(|cluster| cluster.is_ipv4() == cidr.is_ipv4())
            .peekable();
        let inside = |cluster: &IpNetwork| {
            cluster.contains(cidr.network()) && cluster.prefix() <= cidr.prefix()
        };
        if allowed.peek().is_some() && !allowed.any(inside) {
            return Some(Why::OutsideCluster);
        }
        let (first, last) = (cidr.network(), cidr.broadcast());
        let inside = || (self.ranges.range(first..=last).next_back()).map(|(_, range)| *range);
        if let Some((cidr, node)) = self.range_at(last).or_else(inside) {
            return Some(Why::OverlapsCidr(cidr, node.to_owned()));
        }
        let (address, node) = self.addresses.range(first..=last).next()?;
        Some(Why::CoversAddress(*address, (*node).to_owned()))
    }

    /// The accepted range that `ip` is in, and whose it is.
    fn range_at(&self, ip: IpAddr) -> Option<(IpNetwork, &'a str)> {
        let (_, (cidr, node)) = self.ranges.range(..=ip).next_back()?;
        cidr.contains(ip).then_some((*cidr, *node))
    }

    fn admit_mac(&mut self, node: &'a Node) -> Option<Mac> {
        let mac = vtep::mac(&node.name);
        let Some(other) = self.macs.get(&mac) else {
            self.macs.insert(mac, &node.name);
            return Some(mac);
        };
        let why = Why::Taken((*other).to_owned());
        self.refuse(&node.name, Claim::Mac(mac), why);
        None
    }

    /// Makes the sets of addresses. The own Node's are in them even if another
    /// Node's range is around them: that range is refused here.
    fn collect_addresses(&mut self) {
        let mut listed = std::mem::take(&mut self.listed);
        listed.extend(self.addresses.keys());
        listed.retain(|ip| self.range_at(*ip).is_none());
        let mut underlay = std::mem::take(&mut self.verdict.underlay_addresses);
        underlay.retain(|ip| self.range_at(*ip).is_none());
        let members = &self.verdict.members;
        let own = members.get(self.own).into_iter();
        listed.extend(own.flat_map(|member| member.addresses.values()));
        underlay.extend(members.values().flat_map(|m| m.addresses.values()));
        self.verdict.node_addresses = listed;
        self.verdict.underlay_addresses = underlay;
    }

    fn refuse(&mut self, node: &str, claim: Claim, why: Why) {
        self.verdict.refusals.push(RefusedClaim {
            node: node.to_owned(),
            claim,
            why,
        });
    }
}

#[cfg(test)]
mod tests;
