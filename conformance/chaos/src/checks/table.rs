//! tweed's tables equal the plan, by `nft -j`: their rules are those of a fresh node, and
//! the sets of the overlay hold the Nodes' and pods' addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;
use tweed_lab::{LabError, Netns};

use super::differences;
use super::kernel::{list, text};
use crate::plan::{NodePlan, Plan};
use crate::world::World;

/// What the names of chains of session affinity end in: the timeout in seconds that a
/// Service has if it names none.
const AFFINITY: &str = "_10800\"";

/// The table of policies, which is there while there is a policy.
const OF_POLICY: &str = "tweed-policy";

/// The objects of tweed's tables as a program `nft` with these flags lists them.
///
/// # Errors
/// nft fails.
pub fn objects(netns: &Netns, nft: &str) -> Result<Vec<Value>, LabError> {
    // One listing: a table that is listed by itself may be gone by then.
    let ruleset = netns.json(&format!("{nft} list ruleset inet"))?;
    let is_own = |object: &&Value| {
        let table = table_of(object).and_then(|table| table.split('-').next());
        table == Some("tweed")
    };
    let own = list(&ruleset["nftables"]).filter(is_own);
    Ok(own.cloned().collect())
}

/// The table that an object is or is part of.
fn table_of(object: &Value) -> Option<&str> {
    let (kind, fields) = object.as_object()?.iter().next()?;
    let key = if kind == "table" { "name" } else { "table" };
    fields.get(key)?.as_str()
}

/// The objects of the tables without elements, handles and counters, and without those of
/// affinity, which packets check, as they do the elements of policy and of Services: the
/// same on every node and at every time.
#[derive(Debug)]
pub struct Skeleton {
    /// What is there always.
    always: BTreeSet<String>,
    /// What is there besides while there is a policy.
    of_policy: BTreeSet<String>,
}

impl Skeleton {
    /// The skeleton of the first node of a world that has policies.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn of(world: &World) -> Result<Self, LabError> {
        let (always, of_policy) = match world.cluster.nodes().values().next() {
            Some(entry) => skeleton(&objects(entry.node.netns(), "nft -j")?),
            None => (BTreeSet::new(), BTreeSet::new()),
        };
        Ok(Self { always, of_policy })
    }

    /// What is not as planned.
    ///
    /// # Errors
    /// The node cannot be read.
    pub fn problems(
        &self,
        netns: &Netns,
        node: &NodePlan,
        plan: &Plan,
        any_policy: bool,
    ) -> Result<Vec<String>, LabError> {
        let objects = objects(netns, "nft -j")?;
        let (always, of_policy) = skeleton(&objects);
        let mut found = differences("rule", self.always.clone(), always);
        let expected = if any_policy {
            self.of_policy.clone()
        } else {
            BTreeSet::new()
        };
        found.extend(differences("rule for policies", expected, of_policy));
        found.extend(differences(
            "element",
            expected_elements(node, plan),
            elements(&objects),
        ));
        Ok(found)
    }
}

/// The objects that are not of policy, and those that are.
fn skeleton(objects: &[Value]) -> (BTreeSet<String>, BTreeSet<String>) {
    let stripped = objects.iter().map(|object| {
        let mut object = object.clone();
        strip(&mut object);
        object
    });
    let counted = stripped.filter(|object| !is_of_affinity(object));
    let (of_policy, always): (Vec<_>, Vec<_>) = counted.partition(is_of_policy);
    (in_order(&always), in_order(&of_policy))
}

/// Objects as text, each rule with its place in its chain.
fn in_order(objects: &[Value]) -> BTreeSet<String> {
    let mut places: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let written = objects.iter().map(|object| match object.get("rule") {
        Some(rule) => {
            let chain = (text(rule, "table"), text(rule, "chain"));
            let place = places.entry(chain).or_default();
            *place += 1;
            format!("{place} {object}")
        }
        None => object.to_string(),
    });
    written.collect()
}

/// Whether an object is the table of policies, or in it.
fn is_of_policy(object: &Value) -> bool {
    let mut kinds = object.as_object().into_iter().flatten();
    kinds.any(|(kind, object)| {
        let field = if kind == "table" { "name" } else { "table" };
        text(object, field) == OF_POLICY
    })
}

/// Whether an object is a chain for clients that keep their endpoints, or a rule of one:
/// there are some as long as a Service has affinity, or had it.
fn is_of_affinity(object: &Value) -> bool {
    object.to_string().contains(AFFINITY)
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| !["bytes", "elem", "handle", "packets"].contains(&key.as_str()));
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

fn expected_elements(node: &NodePlan, plan: &Plan) -> BTreeSet<String> {
    let mut expected = BTreeSet::new();
    let family = |v4: bool| if v4 { '4' } else { '6' };
    for cidr in plan.nodes.iter().flat_map(|node| &node.cidrs) {
        expected.insert(format!("cluster_cidrs{} {cidr}", family(cidr.is_ipv4())));
    }
    for cidr in &node.cidrs {
        expected.insert(format!("local_cidrs{} {cidr}", family(cidr.is_ipv4())));
    }
    for any in &plan.nodes {
        expected.insert(format!("node_addresses4 {}", any.address));
    }
    for other in plan.others(node) {
        for cidr in &other.cidrs {
            // The network inside as nft prints a number that it knows no type of.
            let inside = match cidr.network() {
                IpAddr::V4(v4) => u32::from(v4).to_string(),
                IpAddr::V6(v6) => format!("{:#034x}", u128::from(v6)),
            };
            let (digit, length) = (family(cidr.is_ipv4()), cidr.prefix());
            expected.insert(format!(
                "vxlan_ipv{digit}_{length}_sources4 {} {inside}",
                other.address
            ));
        }
    }
    for pod in &node.pods {
        for address in &pod.addresses {
            let (digit, link) = (family(address.is_ipv4()), &pod.link);
            expected.insert(format!("pod_links{digit} {address} {link}"));
        }
    }
    expected
}

fn elements(objects: &[Value]) -> BTreeSet<String> {
    let sets = objects.iter().filter_map(|object| object.get("set"));
    let own = sets.filter(|set| text(set, "table") == "tweed");
    let named = own.flat_map(|set| list(&set["elem"]).map(|e| (text(set, "name"), e)));
    named
        .map(|(name, element)| format!("{name} {}", written(element)))
        .collect()
}

/// An element as people write it.
fn written(element: &Value) -> String {
    if let Some(prefix) = element.get("prefix") {
        return format!("{}/{}", text(prefix, "addr"), prefix["len"]);
    }
    if let Some(parts) = element.get("concat") {
        return list(parts).map(plain).collect::<Vec<_>>().join(" ");
    }
    plain(element)
}

/// A text without quotes, or a number.
fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), ToOwned::to_owned)
}
