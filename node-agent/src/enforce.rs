//! Whether the policies are enforced for a pod: asked here and nowhere else.
//!
//! An ADD asks on the socket ([`crate::agent_socket`]) and waits
//! ([`crate::waiting_pods`]); the kernel thread answers with [`verdict`] after each change of
//! the plan or of the table.

use std::net::IpAddr;

use tweed_component::Progress;
use tweed_core::agent_socket::message::{Judge, Pod};
use tweed_planner::policy::explain::not_listed;
use tweed_planner::policy::{LocalPod, PolicyPlanner};

use crate::index::PolicyIndex;
use tweed_core::attachment::NETWORK_NAME;

/// What has become of a pod's addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All are enforced, and the kernel knows it.
    Enforced,
    /// No policy is in force, so nothing is isolated.
    NotInForce,
    /// They are isolated, for this reason: the end of a sentence.
    Pending(String),
}

/// What has become of a pod that was added, while the kernel is so far with the last plan of
/// `index`.
pub fn verdict(progress: Progress, index: &PolicyIndex, judge: &Judge) -> Verdict {
    // Addresses of other networks are outside the node's pod CIDRs.
    if judge.network.as_str() != NETWORK_NAME {
        return Verdict::NotInForce;
    }
    match progress {
        Progress::Unknown => not_known(index),
        Progress::Behind => Verdict::Pending("the kernel is behind the plan".to_owned()),
        Progress::InForce if index.planner.desired().verdicts.active => of(&index.planner, judge),
        // What is in force is that there was none.
        Progress::InForce if index.has_policies() => not_known(index),
        Progress::InForce => Verdict::NotInForce,
    }
}

/// What becomes of a pod while there is no plan of what there is.
fn not_known(index: &PolicyIndex) -> Verdict {
    Verdict::Pending(match index.planner.held() {
        [] => "the policies are not known yet".to_owned(),
        held => not_listed(held),
    })
}

/// The same where the last plan is in force. While the planner holds everything, that plan is
/// older than the pod, and an address that is enforced may be so for the pod that had it
/// before.
fn of(planner: &PolicyPlanner, judge: &Judge) -> Verdict {
    if planner.holds_all() {
        return Verdict::Pending(not_listed(planner.held()));
    }
    let mut addresses = judge.addresses.iter();
    match addresses.find_map(|address| not_enforced(planner, *address, judge)) {
        Some(reason) => Verdict::Pending(reason),
        None => Verdict::Enforced,
    }
}

/// Why an address is not enforced for the pod that asks.
fn not_enforced(planner: &PolicyPlanner, address: IpAddr, judge: &Judge) -> Option<String> {
    let Some(owner) = planner.local_pod(address) else {
        return Some(format!("no record has {address} any more"));
    };
    if !is_same(owner, judge.pod.as_ref()) {
        return Some(format!("{address} is another pod's by now"));
    }
    if planner.desired().verdicts.enforced.contains(&address) {
        return None;
    }
    let not_known = planner.not_known(address);
    Some(not_known.unwrap_or_else(|| format!("{address} is not enforced yet")))
}

/// Whether a record's pod is the one that asks. A UID counts where both have one.
fn is_same(owner: Option<&LocalPod>, asks: Option<&Pod>) -> bool {
    match (owner, asks) {
        (Some(owner), Some(asks)) => {
            let uids = owner.uid.as_ref().zip(asks.uid.as_ref());
            owner.name.namespace == asks.namespace
                && owner.name.name == asks.name
                && uids.is_none_or(|(owner, asks)| owner == asks)
        }
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use tweed_core::attachment::{ContainerId, IfName, NetworkName, PodName};
    use tweed_core::object::namespace::Namespace;
    use tweed_core::object::network_policy::NetworkPolicy;
    use tweed_core::object::{Event, ObjectKey, pod};
    use tweed_planner::policy::{LocalPods, PodScope, Step};

    use super::*;

    const ADDRESS: &str = "10.244.1.5";

    fn judge(uid: &str) -> Judge {
        Judge {
            network: NetworkName::new("tweed").unwrap(),
            container_id: ContainerId::new("c1").unwrap(),
            ifname: IfName::new("eth0").unwrap(),
            pod: Some(Pod {
                namespace: "shop".to_owned(),
                name: "cart-0".to_owned(),
                uid: Some(uid.to_owned()),
            }),
            addresses: vec![ADDRESS.parse().unwrap()],
            wait_ms: 1000,
        }
    }

    /// The store has one record: the pod `cart-0` with this UID.
    fn set_record(planner: &mut PolicyPlanner, uid: &str) {
        let name = PodName {
            namespace: "shop".to_owned(),
            name: "cart-0".to_owned(),
        };
        let uid = Some(uid.to_owned());
        planner.set_local(LocalPods {
            pods: [(ADDRESS.parse().unwrap(), Some(LocalPod { name, uid }))].into(),
            ..LocalPods::default()
        });
    }

    fn object(uid: &str) -> pod::Pod {
        pod::Pod {
            namespace: "shop".to_owned(),
            name: "cart-0".to_owned(),
            uid: uid.to_owned(),
            ..pod::Pod::default()
        }
    }

    /// A planner with a policy and the enforced pod `cart-0` with the UID `old`.
    fn planner() -> PolicyPlanner {
        let mut planner = PolicyPlanner::new("alpha");
        let shop = Namespace {
            name: "shop".to_owned(),
            ..Namespace::default()
        };
        let policy = NetworkPolicy {
            namespace: "shop".to_owned(),
            name: "deny".to_owned(),
            policy_types: vec!["Ingress".to_owned()],
            ..NetworkPolicy::default()
        };
        for event in [Event::Init, Event::InitApply(shop), Event::InitDone] {
            planner.apply_namespaces(event);
        }
        for event in [Event::Init, Event::InitApply(policy), Event::InitDone] {
            planner.apply_network_policies(event);
        }
        for event in [Event::Init, Event::InitDone] {
            planner.apply_cluster_network_policies(event);
        }
        for event in [
            Event::Init,
            Event::InitApply(object("old")),
            Event::InitDone,
        ] {
            planner.apply_pods(&PodScope::Own, event);
        }
        planner.set_nodes([]);
        set_record(&mut planner, "old");
        assert_eq!(planner.plan(), Step::Full);
        planner
    }

    fn pending(reason: &str) -> Verdict {
        Verdict::Pending(reason.to_owned())
    }

    #[test]
    fn a_pod_is_enforced_once_its_own_object_is_known() {
        let mut planner = planner();
        assert_eq!(of(&planner, &judge("old")), Verdict::Enforced);
        set_record(&mut planner, "new");
        planner.plan();
        let not_known = pending("Pod shop/cart-0 is not known yet");
        assert_eq!(of(&planner, &judge("new")), not_known);
        let gone = ObjectKey {
            namespace: "shop".to_owned(),
            name: "cart-0".to_owned(),
        };
        planner.apply_pods(&PodScope::Own, Event::Delete(gone));
        planner.plan();
        assert_eq!(of(&planner, &judge("new")), not_known);
        planner.apply_pods(&PodScope::Own, Event::Apply(object("new")));
        planner.plan();
        assert_eq!(of(&planner, &judge("new")), Verdict::Enforced);
    }

    #[test]
    fn a_pod_of_which_one_address_is_not_enforced_is_not_enforced() {
        let mut judge = judge("old");
        judge.addresses.push("fd00::5".parse().unwrap());
        let other = pending("no record has fd00::5 any more");
        assert_eq!(of(&planner(), &judge), other);
    }

    /// A file of manifests may lack it; an API server has one for each pod.
    #[test]
    fn a_namespace_that_is_missing_is_named() {
        let mut planner = planner();
        planner.apply_namespaces(Event::Delete("shop".into()));
        planner.plan();
        let reason = "Namespace shop of Pod shop/cart-0 is not known yet";
        assert_eq!(of(&planner, &judge("old")), pending(reason));
    }

    #[test]
    fn while_the_planner_holds_no_new_pod_is_enforced() {
        let mut planner = planner();
        planner.drop_nodes();
        set_record(&mut planner, "new");
        planner.plan();
        // It was enforced for the pod before.
        assert!(!(planner.desired().verdicts.enforced).contains(&judge("new").addresses[0]));
        let reason = "not listed yet: the Nodes are not known yet";
        let verdict = of(&planner, &judge("new"));
        assert_eq!(verdict, pending(reason));
    }

    #[test]
    fn who_asks_for_an_address_that_is_no_longer_its_own_is_told_so() {
        let mut planner = planner();
        let others = pending("10.244.1.5 is another pod's by now");
        assert_eq!(of(&planner, &judge("earlier")), others);
        planner.set_local(LocalPods::default());
        planner.plan();
        let gone = pending("no record has 10.244.1.5 any more");
        assert_eq!(of(&planner, &judge("old")), gone);
    }
}
