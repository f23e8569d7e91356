//! The plan that is in force, and what makes it of the one before.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnetwork::IpNetwork;
use tweed_component::schema::Sets as _;
use tweed_component::store::Touched;
use tweed_core::object::{Object as _, ObjectKey};
use tweed_core::{object::node::Node, problem::Problem, version::Version};

use super::claims::judge;
use super::delta::{self, ClaimIndex};
use super::desired::{Delta, Desired, Network, Underlay};
use super::plan::{Place, plan, rules};
use super::{cluster::Cluster, host::HostFacts, local, syntax, warning};
use crate::config::Config;

/// Maximum number of nodes whose ways decide on the MTU: three, of which one alone
/// is outvoted.
const MAX_PATHS: usize = 3;
/// Addresses that no network has and no packet is sent to, so that only the default
/// route leads there: the dummy address of RFC 7600, and the first address of the
/// global unicast range.
const OUTSIDE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);
const OUTSIDE_V6: Ipv6Addr = Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0);

/// Addresses, the ways to which the plan depends on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathTargets {
    /// The own address, which is the packets' source; none while none is planned.
    pub from: Option<IpAddr>,
    /// The addresses.
    pub to: BTreeSet<IpAddr>,
}

/// The last plan, and what it was made from.
#[derive(Debug)]
pub struct OverlayPlanner {
    config: Config,
    /// The version of the Nodes at the last update; none before that.
    planned: Option<Version>,
    host: HostFacts,
    claims_version: Version,
    /// The MTU that pods had before this run of the agent, until one is planned that
    /// this machine's own network tells.
    last_pod_mtu: Option<u32>,
    /// Where this node is, while nothing but the MTU is missing for a plan.
    unmeasured: Option<Place>,
    /// The last network that a plan had: it is kept while a plan holds.
    network: Option<Arc<Network>>,
    version: Version,
    /// Whether the last plan had a network.
    current: bool,
    /// The change from the network of the version before to that of this one,
    /// where it is known.
    delta: Option<Delta>,
    /// What all Nodes claim, once it was asked for.
    claims: Option<ClaimIndex>,
    /// What is wrong with the list of Nodes.
    list_problems: Vec<Problem>,
    /// What is wrong with the plan.
    plan_problems: Vec<Problem>,
    /// That there is no way to the other nodes at this moment.
    way_problem: Option<Problem>,
    /// How many Nodes there are.
    nodes: usize,
}

impl OverlayPlanner {
    /// A planner that has planned nothing yet. `last_pod_mtu` is what pods had before,
    /// in this boot.
    pub fn new(config: Config, last_pod_mtu: Option<u32>) -> Self {
        Self {
            config,
            last_pod_mtu,
            unmeasured: None,
            planned: None,
            host: HostFacts::default(),
            claims_version: Version::default(),
            network: None,
            version: Version::default(),
            current: false,
            delta: None,
            claims: None,
            list_problems: Vec::new(),
            plan_problems: Vec::new(),
            way_problem: None,
            nodes: 0,
        }
    }

    /// Plans again, if the Nodes or this machine's own network have changed: for
    /// single Nodes whose claims touch no other Node's, only these.
    pub fn update(&mut self, cluster: &mut Cluster, mut host: HostFacts) {
        let sample = self.sample();
        let asked = sample.map(|(underlay, peers)| (underlay.address, peers));
        let unreached = asked.filter(|(_, peers)| {
            !peers.is_empty() && peers.iter().all(|peer| !host.paths.contains_key(peer))
        });
        self.keep_lost_paths(&mut host);
        self.follow_host(cluster, host);
        // A plan that holds names what is wrong with the own address, by which the
        // kernel was asked.
        let network = self.network.as_ref().filter(|_| self.current);
        let underlay = network.map(|network| &network.underlay);
        self.way_problem = underlay
            .zip(unreached)
            .and_then(|(own, (asked_by, peers))| {
                (own.address == asked_by).then(|| warning::no_way(own, &peers))
            });
        // A way that was not asked for yet, or that is not there, tells nothing.
        let asks_nobody = self.path_targets().to.is_empty();
        if self.current && (asks_nobody || !self.host.paths.is_empty()) {
            self.last_pod_mtu = None;
        }
    }

    fn follow_host(&mut self, cluster: &mut Cluster, host: HostFacts) {
        let same_host = self.planned.is_some() && self.plans_the_same_for(cluster, &host);
        self.host = host;
        if same_host && !self.is_behind(cluster) {
            return;
        }
        self.planned = Some(cluster.version());
        self.claims_version.bump();
        self.list_problems = cluster.problems();
        self.nodes = cluster.size();
        let touched = cluster.take_touched();
        let touched = if same_host {
            touched
        } else {
            Touched::Everything
        };
        self.plan(cluster, touched);
    }

    /// Gives `host`, which was asked for [`Self::path_targets`], the last known way to
    /// those to which the kernel has none now. A routing daemon that restarts takes
    /// its routes along for a while: that says nothing of what the way carries, and
    /// pods that are added meanwhile would keep another MTU for good. While there is
    /// no way to any target, those to earlier ones count.
    fn keep_lost_paths(&self, host: &mut HostFacts) {
        let targets = self.path_targets();
        let Some(own) = targets.from.filter(|_| !targets.to.is_empty()) else {
            return;
        };
        let of_family = |ip: &IpAddr| ip.is_ipv4() == own.is_ipv4();
        let last = self.host.paths.iter().filter(|(to, _)| of_family(to));
        for (to, path) in last.clone().filter(|(to, _)| targets.to.contains(to)) {
            host.paths.entry(*to).or_insert_with(|| path.clone());
        }
        if host.paths.is_empty() {
            host.paths = last.map(|(to, path)| (*to, path.clone())).collect();
        }
        if host.paths.is_empty() {
            host.last_pod_mtu = self.last_pod_mtu;
        }
    }

    /// Whether `host` differs from what the last plan was made from in nothing that a
    /// plan depends on, or only in ways that lead to the same MTU. The own Node is that of
    /// now: if that has changed, all is planned in any case.
    fn plans_the_same_for(&self, cluster: &Cluster, host: &HostFacts) -> bool {
        let same_machine = || {
            let listed = cluster.own().into_iter().flat_map(|own| &own.addresses);
            let parsed = listed.filter_map(|entry| syntax::address(&entry.address).ok());
            let own = parsed.collect();
            self.host.relevant(&own) == host.relevant(&own)
        };
        let same_path = || {
            let network = self.network.as_ref().filter(|_| self.current);
            network.is_some_and(|network| local::has_path_of(&self.config, host, &network.underlay))
        };
        let is_equal =
            self.host.interfaces == host.interfaces && self.host.connected == host.connected;
        (is_equal || same_machine())
            && (same_path()
                || self.host.paths == host.paths && self.host.last_pod_mtu == host.last_pod_mtu)
    }

    /// The addresses to which [`HostFacts::paths`] should have the ways: those of
    /// some other nodes. While there is none, and the own interface is connected to
    /// no network that one could be in, it is an address that only the default route
    /// leads to.
    pub fn path_targets(&self) -> PathTargets {
        let Some((underlay, mut to)) = self.sample() else {
            return PathTargets::default();
        };
        let own = underlay.address;
        if to.is_empty() && !self.host.has_network(underlay.interface, own) {
            to.insert(match own {
                IpAddr::V4(_) => OUTSIDE_V4.into(),
                IpAddr::V6(_) => OUTSIDE_V6.into(),
            });
        }
        PathTargets {
            from: Some(own),
            to,
        }
    }

    /// The own place on the underlay, and the addresses of some other nodes.
    fn sample(&self) -> Option<(&Underlay, BTreeSet<IpAddr>)> {
        match (&self.unmeasured, &self.network) {
            (Some(place), _) => {
                let peers = place.peers.iter().copied();
                Some((&place.underlay, peers.take(MAX_PATHS).collect()))
            }
            (None, Some(network)) => {
                let is_v4 = network.underlay.address.is_ipv4();
                let addresses = network.desired.peer_addresses();
                let peers = addresses.filter(|ip| ip.is_ipv4() == is_v4);
                Some((&network.underlay, peers.take(MAX_PATHS).collect()))
            }
            (None, None) => None,
        }
    }

    /// Whether the Nodes have changed since the last update.
    pub fn is_behind(&self, cluster: &Cluster) -> bool {
        self.planned != Some(cluster.version())
    }

    /// Looks up what all Nodes claim, for the next one that changes alone: with
    /// thousands of Nodes that takes milliseconds, which its plan would otherwise
    /// wait for.
    pub fn prepare(&mut self, cluster: &Cluster) {
        let useful = self.current && self.claims.is_none();
        if useful && !self.is_behind(cluster) {
            self.claims = Some(ClaimIndex::of(cluster.nodes()));
        }
    }

    /// Changes with each network that differs from the one before.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The last network that a plan had: it is kept while a plan holds.
    pub fn network(&self) -> Option<&Arc<Network>> {
        self.network.as_ref()
    }

    /// Whether the last plan had a network: false while it holds.
    pub fn is_current(&self) -> bool {
        self.current
    }

    /// How many Nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// What is wrong with the list of Nodes, with the plan, and with the ways.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        let plan = self.list_problems.iter().chain(&self.plan_problems);
        plan.chain(&self.way_problem)
    }

    /// The pod CIDRs that are accepted of each Node, here and now. Whether that has changed
    /// say the version of the Nodes and [`Self::claims_version`].
    pub fn pod_cidrs<'a>(&self, cluster: &'a Cluster) -> BTreeMap<&'a str, Vec<IpNetwork>> {
        let snapshot = cluster.snapshot();
        let verdict =
            snapshot.map(|nodes| judge(&nodes, &rules(&self.config, nodes.own, &self.host)));
        let members = verdict.map(|verdict| verdict.members).unwrap_or_default();
        let each = members.into_iter();
        each.map(|(name, member)| (name, member.pod_cidrs))
            .collect()
    }

    /// Changes whenever claims may be decided otherwise: with the Nodes, and with this
    /// machine's own network.
    pub fn claims_version(&self) -> Version {
        self.claims_version
    }

    /// The change from the network of `version` to that of now, where it is known.
    pub fn delta_since(&self, version: Version) -> Option<&Delta> {
        (self.delta.as_ref()).filter(|_| self.version.follows(version))
    }

    /// Makes the plan of now of the last one, or anew; the last one stays where there is none.
    fn plan(&mut self, cluster: &Cluster, touched: Touched<Node>) {
        if let Touched::Objects(nodes) = touched
            && let Some(delta) = self.follow(cluster, &nodes)
        {
            if !delta.is_empty() {
                self.version.bump();
                self.delta = Some(delta);
            }
            return;
        }
        self.claims = None;
        self.current = false;
        // Without Nodes the problems of the list say why.
        self.plan_problems = Vec::new();
        let Some(snapshot) = cluster.snapshot() else {
            return;
        };
        let plan = plan(&self.config, &snapshot, &self.host);
        self.unmeasured = plan.unmeasured;
        self.plan_problems = plan.problems;
        self.current = plan.network.is_some();
        if let Some(network) = plan.network
            && self.network.as_deref() != Some(&network)
        {
            self.version.bump();
            self.delta = None;
            self.network = Some(Arc::new(network));
        }
    }

    /// What these Nodes change, each given as it was at the last plan; none if
    /// all has to be planned.
    fn follow(
        &mut self,
        cluster: &Cluster,
        nodes: &BTreeMap<ObjectKey, Option<Node>>,
    ) -> Option<Delta> {
        if !self.current {
            return None;
        }
        let own = cluster.own()?;
        let network = self.network.as_mut()?;
        let mut claims = self.claims.take().unwrap_or_else(|| {
            let same = (cluster.nodes()).filter(|node| !nodes.contains_key(&node.key()));
            ClaimIndex::of(same.chain(nodes.values().flatten()))
        });
        // Nobody else holds it between two passes, so that this is no copy.
        let desired = &mut Arc::make_mut(network).desired;
        let mut all = Delta::default();
        for (key, before) in nodes {
            let change = (before.as_ref(), cluster.get(key));
            let step = delta::of_one_node(&self.config, own, &self.host, &mut claims, change)
                .filter(|step| desired.is_start_of(step));
            let Some(step) = step else {
                // The network is that of no version until all is planned.
                self.version.bump();
                self.delta = None;
                return None;
            };
            desired.apply(&step);
            Desired::extend(&mut all, step);
        }
        self.claims = Some(claims);
        Some(all)
    }
}

#[cfg(test)]
mod tests;
