//! The kernel thread's reconcilers without its loop, and without sources.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tweed_agent::index::{Input, policy::Collection};
use tweed_agent::reconcile::schedule::{Changes, Schedule};
use tweed_agent::reconcile::{EarlierRun, Outlets, Reconcilers};
use tweed_agent::serve::{metrics::Metrics, status::StatusBoard};
use tweed_agent::state::State;
use tweed_core::object::Event;
use tweed_core::object::node::{Node as NodeObject, NodeAddress};

use crate::node::{Node, address, pod_cidr};

/// What the kernel thread has, without its loop.
pub struct Thread {
    pub state: Arc<State>,
    pub reconcilers: Reconcilers,
}

impl Thread {
    /// That of an agent with these flags on `node`, which may have left what there is.
    pub fn new(node: &Node, flags: &[&str]) -> Self {
        let config = Arc::new(node.config(flags));
        let state = Arc::new(State::new(&config, Vec::new()).unwrap());
        let board = Arc::new(StatusBoard::new(Instant::now()));
        let outlets = Outlets {
            wants: watch::channel(Default::default()).0,
            health_checks: watch::channel(Arc::default()).0,
            kube_proxy: watch::channel(Default::default()).0,
        };
        let earlier = EarlierRun {
            boot_id: String::new(),
            pod_mtu: None,
            was_ready: false,
            served_services: false,
        };
        let stop = CancellationToken::new();
        let reconcilers = Reconcilers::open(
            &config,
            &state,
            &board,
            Metrics::register().1,
            &earlier,
            outlets,
            stop,
        );
        Self {
            state,
            reconcilers: reconcilers.unwrap(),
        }
    }

    /// The own Node is the only one.
    pub fn list_node(&self) {
        let node = NodeObject {
            name: "n1".to_owned(),
            pod_cidrs: vec![pod_cidr(1)],
            addresses: vec![NodeAddress {
                kind: "InternalIP".to_owned(),
                address: address(1),
            }],
            ..NodeObject::default()
        };
        for event in [Event::Init, Event::InitApply(node), Event::InitDone] {
            self.state.update(event);
        }
    }

    pub fn list<T: Input<Collection>>(&self, of: &Collection, objects: Vec<T>) {
        let listed = objects.into_iter().map(Event::InitApply);
        for event in [Event::Init].into_iter().chain(listed) {
            self.apply(of, event);
        }
        self.apply(of, Event::<T>::InitDone);
    }

    pub fn apply<T: Input<Collection>>(&self, of: &Collection, event: Event<T>) {
        self.state.policy().unwrap().apply(of, event);
    }

    pub fn reconcile(&mut self) {
        let now = Instant::now();
        let due = Schedule::new(now).due(now, Changes::Wanted).unwrap();
        self.reconcilers.reconcile(due);
    }
}
