//! Pods whose addresses wait for the policies to be enforced: what the socket's clients
//! wait for, and what the kernel thread has found out about it.
//!
//! [`WaitingPods::ask`] adds a pod. The kernel thread takes up the new pods
//! ([`WaitingPods::take_up`]) as soon as it can, reads the records that have changed,
//! plans, and answers with [`WaitingPods::answer`]. Where that is not possible, and for
//! pods that were pending, the next reconcile does the same, and answers many.
//!
//! What always holds: a pod is only answered for after its record was read later than
//! it was added here. Its address may have been that of another pod, which was enforced
//! too.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tweed_core::agent_socket::message::Judge;

use crate::enforce::Verdict;

/// The pods that wait.
#[derive(Debug, Default)]
pub struct WaitingPods(Mutex<Vec<Waiting>>);

#[derive(Debug)]
struct Waiting {
    judge: Judge,
    /// Whether its record was or will be read, before the next answer, later than it was
    /// added.
    taken_up: bool,
    verdict: watch::Sender<Verdict>,
}

impl WaitingPods {
    /// Adds a pod. Whoever drops the receiver no longer waits.
    pub fn ask(&self, judge: Judge) -> watch::Receiver<Verdict> {
        let not_yet = Verdict::Pending("the agent has not handled it yet".to_owned());
        let (verdict, receiver) = watch::channel(not_yet);
        self.waiting().push(Waiting {
            judge,
            taken_up: false,
            verdict,
        });
        receiver
    }

    /// Whether there is a pod that no reconcile has taken up.
    pub fn has_new(&self) -> bool {
        self.waiting().iter().any(|waiting| !waiting.taken_up)
    }

    /// Comes before the stores are read: all pods that are here now will be answered for.
    pub fn take_up(&self) {
        for waiting in self.waiting().iter_mut() {
            waiting.taken_up = true;
        }
    }

    /// The addresses of all pods that wait.
    pub fn addresses(&self) -> BTreeSet<IpAddr> {
        let waiting = self.waiting();
        let addresses = waiting.iter().flat_map(|one| &one.judge.addresses);
        addresses.copied().collect()
    }

    /// Whether anybody waits.
    pub fn has_any(&self) -> bool {
        !self.waiting().is_empty()
    }

    /// Ends a reconcile: tells `verdict` of each pod that it has taken up to whoever
    /// waits for it. Those that are still pending stay for the next reconcile.
    pub fn answer(&self, verdict: impl Fn(&Judge) -> Verdict) {
        self.waiting().retain(|waiting| {
            if waiting.verdict.is_closed() {
                return false;
            }
            if !waiting.taken_up {
                return true;
            }
            let verdict = verdict(&waiting.judge);
            let stays = matches!(verdict, Verdict::Pending(_));
            waiting.verdict.send_replace(verdict);
            stays
        });
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        // No panic leaves the list half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tweed_core::attachment::{ContainerId, IfName, NetworkName};

    fn judge(address: &str) -> Judge {
        Judge {
            network: NetworkName::new("tweed").unwrap(),
            container_id: ContainerId::new("c1").unwrap(),
            ifname: IfName::new("eth0").unwrap(),
            pod: None,
            addresses: vec![address.parse::<IpAddr>().unwrap()],
            wait_ms: 1000,
        }
    }

    fn pending(reason: &str) -> Verdict {
        Verdict::Pending(reason.to_owned())
    }

    fn of(receiver: &watch::Receiver<Verdict>) -> Verdict {
        receiver.borrow().clone()
    }

    #[test]
    fn one_reconcile_answers_all_that_it_has_seen() {
        let waiting_pods = WaitingPods::default();
        assert!(!waiting_pods.has_new());
        let pods: Vec<_> = (1..=110)
            .map(|n| waiting_pods.ask(judge(&format!("10.244.1.{n}"))))
            .collect();
        assert!(waiting_pods.has_new());
        waiting_pods.take_up();
        assert!(!waiting_pods.has_new());
        waiting_pods.answer(|_| Verdict::Enforced);
        assert!(pods.iter().all(|pod| of(pod) == Verdict::Enforced));
        assert!(waiting_pods.waiting().is_empty());
    }

    #[test]
    fn a_pod_that_came_after_the_store_was_read_waits_for_the_next_reconcile() {
        let waiting_pods = WaitingPods::default();
        waiting_pods.take_up();
        let late = waiting_pods.ask(judge("10.244.1.1"));
        waiting_pods.answer(|_| Verdict::Enforced);
        assert!(matches!(of(&late), Verdict::Pending(_)));
        assert!(waiting_pods.has_new(), "the thread must not sleep over it");
        waiting_pods.take_up();
        waiting_pods.answer(|_| Verdict::Enforced);
        assert_eq!(of(&late), Verdict::Enforced);
    }

    #[test]
    fn a_pod_that_is_not_known_is_answered_for_as_soon_as_it_is() {
        let waiting_pods = WaitingPods::default();
        let pod = waiting_pods.ask(judge("10.244.1.1"));
        waiting_pods.take_up();
        waiting_pods.answer(|_| pending("no such Pod"));
        assert_eq!(of(&pod), pending("no such Pod"));
        assert!(
            !waiting_pods.has_new(),
            "it is the Pod that wakes the thread"
        );
        waiting_pods.take_up();
        waiting_pods.answer(|judge| match judge.addresses.as_slice() {
            [address] if address.to_string() == "10.244.1.1" => Verdict::Enforced,
            _ => Verdict::NotInForce,
        });
        assert_eq!(of(&pod), Verdict::Enforced);
    }

    #[test]
    fn who_no_longer_waits_is_forgotten() {
        let waiting_pods = WaitingPods::default();
        drop(waiting_pods.ask(judge("10.244.1.1")));
        waiting_pods.answer(|_| Verdict::Enforced);
        assert!(waiting_pods.waiting().is_empty());
    }
}
