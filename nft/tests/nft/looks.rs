//! Looks at the sets of components, of whose changes the table was told nothing. They go on
//! beside the thread that writes, so each test goes by what comes before what.

use std::os::fd::{AsFd, AsRawFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::socket::{MsgFlags, recv};
use tweed_core::family::Family;
use tweed_nft::{Outcome, Table};
use tweed_planner::policy::desired::Desired as PolicyDesired;
use tweed_planner::services::desired::Desired as ServicesDesired;

use crate::lab::Host;
use crate::node::NOTHING;
use crate::{policy, services};

/// How long a look may take on a busy machine before the test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A component in a table.
pub trait Component {
    type Desired;

    fn host(&self) -> &Host;

    fn with<T: Send + 'static>(&self, work: impl FnOnce(&mut Table) -> T + Send + 'static) -> T;

    /// Makes the table as desired, with a forced look if that is said.
    fn make_as(&self, desired: &Self::Desired, force: bool) -> Outcome;

    /// Makes the sets follow from one desired state to the next.
    fn change(&self, old: &Self::Desired, new: &Self::Desired) -> Outcome;

    /// Changes the table by `nft`, and takes the kernel's word of it away.
    fn change_unheard(&self, command: &str) {
        let monitor = self.with(|table| table.as_fd().try_clone_to_owned().unwrap());
        self.host().sh(format!("nft '{command}'"));
        let mut buffer = [0; 65536];
        let mut heard = || recv(monitor.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT);
        assert!(heard().is_ok());
        while heard().is_ok() {}
    }

    /// Has sets looked at until one is compared, and says what was put back then. Until then
    /// nothing is. `meanwhile` is done after each look has begun.
    fn look_until_compared(&self, desired: &Self::Desired, mut meanwhile: impl FnMut()) -> Outcome {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let outcome = self.make_as(desired, true);
            if outcome != NOTHING {
                return outcome;
            }
            meanwhile();
            sleep(Duration::from_millis(1));
            if self.with(Table::drain_notifications).unwrap() {
                return self.make_as(desired, false);
            }
        }
        panic!("the change is not found");
    }

    /// Waits until a look has found something.
    fn wait_until_found(&self) {
        let start = Instant::now();
        while !self.with(Table::drain_notifications).unwrap() {
            assert!(start.elapsed() < PATIENCE, "the change is not found");
            sleep(Duration::from_millis(1));
        }
    }
}

impl Component for policy::lab::Lab {
    type Desired = PolicyDesired;

    fn host(&self) -> &Host {
        &self.node.host
    }

    fn with<T: Send + 'static>(&self, work: impl FnOnce(&mut Table) -> T + Send + 'static) -> T {
        self.with(work)
    }

    fn make_as(&self, desired: &PolicyDesired, force: bool) -> Outcome {
        self.look(&policy::lab::ruleset(), desired, force)
    }

    fn change(&self, old: &PolicyDesired, new: &PolicyDesired) -> Outcome {
        self.follow(old, new, false)
    }
}

impl Component for services::lab::Lab {
    type Desired = ServicesDesired;

    fn host(&self) -> &Host {
        &self.0.node
    }

    fn with<T: Send + 'static>(&self, work: impl FnOnce(&mut Table) -> T + Send + 'static) -> T {
        self.0.with(work)
    }

    fn make_as(&self, desired: &ServicesDesired, force: bool) -> Outcome {
        self.look(&services::plan::Plan(desired.clone()), force)
    }

    fn change(&self, old: &ServicesDesired, new: &ServicesDesired) -> Outcome {
        self.follow(old, new)
    }
}

/// What a listing says, whatever the order of elements.
fn words(listing: &str) -> Vec<String> {
    let words = listing.split([',', ' ', '\n', '\t']);
    let mut words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    words.sort_unstable();
    words.into_iter().map(str::to_owned).collect()
}

/// Each change is found and put back, and no other set is compared on the way to it: all are
/// looked at in turn.
fn assert_found<C: Component>(component: &C, desired: &C::Desired, changes: &[(&str, usize)]) {
    for (change, repaired) in changes {
        component.change_unheard(change);
        assert_eq!(
            component.make_as(desired, false),
            NOTHING,
            "{change}: unheard"
        );
        let outcome = component.look_until_compared(desired, || ());
        assert_eq!(outcome.repaired, *repaired, "{change}: {outcome:?}");
        assert_eq!(outcome.changed, 0, "{change}: {outcome:?}");
    }
}

#[test]
fn unheard_changes_of_the_sets_of_policy_are_put_back() {
    let lab = policy::lab::Lab::new();
    let desired = policy::repair::full(&lab);
    lab.reconcile(&desired);
    // What a restarted agent has seen is as good as what it has written.
    lab.restart();
    assert_eq!(lab.reconcile(&desired), NOTHING);
    let other = policy::plan::Plan::new(&lab.b.both()).0;
    lab.change(&desired, &other);
    lab.change(&other, &desired);
    let whole = |lab: &policy::lab::Lab| {
        let generation = format!("goto {}", lab.generation());
        words(&lab.listing().replace(&generation, "goto the_one_in_force"))
    };
    let before = whole(&lab);
    let changes = [
        (
            "delete element inet tweed policy_ranges { 2000:0000 . 1000-1999 }",
            1,
        ),
        ("add element inet tweed policy_judged4 { 10.244.1.99 }", 1),
        (
            "delete element inet tweed policy_ids4 { 10.244.1.5 }; add element inet tweed policy_ids4 { 10.244.1.5 : 0:9 }",
            2,
        ),
        (
            "delete element inet tweed policy_nets6 { 2001:db8:9::-2001:db8:9::ff }",
            1,
        ),
        (
            "add element inet tweed policy_nets4 { 198.51.100.0/24 : 0:2 }",
            1,
        ),
        ("flush map inet tweed policy_pairs_out6", 3),
    ];
    assert_found(&lab, &desired, &changes);
    assert!(whole(&lab) == before, "{}", lab.listing());
}

#[test]
fn unheard_changes_of_the_sets_of_services_are_put_back() {
    let lab = services::lab::Lab::new();
    let desired = services::changes::service(&[services::lab::POD, services::lab::NEIGHBOUR]).0;
    let other = services::changes::service(&[services::lab::POD]);
    lab.reconcile(&other);
    lab.change(&other.0, &desired);
    let changes = [
        ("flush set inet tweed service_networks6", 1),
        (
            "delete element inet tweed service_targets4 { 10.96.0.1 . tcp . 80 }",
            1,
        ),
        (
            "add element inet tweed service_cluster_ips4 { 10.96.0.99 }",
            1,
        ),
        ("flush map inet tweed service_slots4", 2),
        (
            "add element inet tweed service_affinity_groups { 0:9 : goto service_draw_3 }",
            1,
        ),
    ];
    assert_found(&lab, &desired, &changes);
}

/// The thread that writes does not wait for a look: a pod that is added meanwhile is judged
/// first, and only later is it known what the look has found.
#[test]
fn a_change_is_written_before_a_look_at_a_large_set_has_ended() {
    let lab = policy::lab::Lab::new();
    let address = |number: u32| std::net::Ipv4Addr::from_bits(0x0af4_0000 + number).into();
    let all: Vec<_> = (0..20_000).map(address).collect();
    // The set of the judged addresses has the first turn.
    let old = policy::plan::Plan::new(&all[1..]).0;
    let new = policy::plan::Plan::new(&all).0;
    lab.reconcile(&old);
    lab.change_unheard("delete element inet tweed policy_judged4 { 10.244.0.7 }");
    assert_eq!(lab.make_as(&old, true), NOTHING, "compared at once");
    assert_eq!(lab.change(&old, &new).changed, 1);
    let get = |address: &str| {
        let get = format!("nft 'get element inet tweed policy_judged4 {{ {address} }}'");
        lab.node.host.sh(get)
    };
    get("10.244.0.0");
    lab.wait_until_found();
    let outcome = lab.make_as(&new, false);
    assert_eq!((outcome.changed, outcome.repaired), (0, 1), "{outcome:?}");
    get("10.244.0.7");
}

/// Services come and go all the time.
#[test]
fn a_set_that_is_written_all_the_time_is_repaired_only_if_somebody_changes_it() {
    use services::lab::{NEIGHBOUR, POD, SERVICE};
    let lab = services::lab::Lab::new();
    let of_ports = |ports: std::ops::Range<u16>| {
        let plan = services::changes::service(&[POD, NEIGHBOUR]);
        let with = |plan: services::plan::Plan, port| {
            let at = SERVICE.port(Family::V4, port);
            plan.cluster_ip(services::plan::TCP, at, services::plan::group(0))
        };
        ports.fold(plan, with).0
    };
    let (few, many) = (of_ports(1000..2000), of_ports(1000..2010));
    lab.reconcile(&services::plan::Plan(few.clone()));
    let churn = || {
        for _ in 0..5 {
            lab.change(&few, &many);
            lab.change(&many, &few);
        }
    };
    for _ in 0..30 {
        assert_eq!(lab.make_as(&few, true), NOTHING);
        churn();
        // A repeated look begins while sets are written.
        lab.with(Table::drain_notifications).unwrap();
    }
    lab.change_unheard("delete element inet tweed service_targets4 { 10.96.0.1 . tcp . 1007 }");
    // After some looks that came to nothing the set is compared, also if it is another one.
    let outcomes = std::iter::repeat_with(|| lab.look_until_compared(&few, churn));
    let repaired = outcomes.take(100).find(|outcome| *outcome != NOTHING);
    assert_eq!(repaired.map(|outcome| outcome.repaired), Some(1));
}

/// Somebody has taken out what the change would take out, unheard, so the kernel refuses it.
#[test]
fn a_change_that_is_refused_comes_with_the_next_look_at_all_sets() {
    use services::lab::{NEIGHBOUR, POD};
    let lab = services::lab::Lab::new();
    let (old, new) = (&[POD, NEIGHBOUR][..], &[NEIGHBOUR][..]);
    let [old, new] = [old, new].map(services::changes::service);
    lab.reconcile(&new);
    let slots = || words(&lab.0.node.sh("nft -s list map inet tweed service_slots4"));
    let wanted = slots();
    lab.replan(&old);
    lab.change_unheard("flush map inet tweed service_slots4");
    let delta = services::delta::delta(&old.0, &new.0);
    let refused = lab.with(move |table| table.follow_services(&delta));
    assert!(refused.is_err(), "{refused:?}");
    lab.reconcile(&new);
    assert_eq!(slots(), wanted);
    assert_eq!(lab.reconcile(&new), NOTHING);
}
