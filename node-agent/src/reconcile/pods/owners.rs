//! Which pod has an address, by the records of a store.
//!
//! Two records may have one address: an ADD that was interrupted before it claimed the
//! address, or a DEL that was interrupted after it gave it back, leaves a record until
//! the next sweep. Policies must not judge the address for the wrong pod, so the record
//! of a pod that runs comes before that of one being added, and that before one being
//! deleted. Where that does not decide, the address is nobody's, and isolated.

use std::collections::BTreeMap;
use std::net::IpAddr;

use tweed_core::problem::{Problem, ProblemKind};
use tweed_ipam::record::{Record, State};
use tweed_planner::policy::LocalPod;

/// The addresses of records.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// Each with its pod, where the runtime names one.
    pub pods: BTreeMap<IpAddr, Option<LocalPod>>,
    /// Addresses that two pods have that run.
    pub problems: Vec<Problem>,
}

/// What the records say of the addresses.
pub(super) fn owners<'a>(records: impl Iterator<Item = &'a Record>) -> Owners {
    let mut claims: BTreeMap<IpAddr, Vec<&Record>> = BTreeMap::new();
    for record in records {
        for address in &record.addresses {
            let records = claims.entry(address.ip()).or_default();
            let best = records.first().map(|best| rank(best));
            if best.is_some_and(|best| rank(record) < best) {
                continue;
            }
            if best.is_some_and(|best| rank(record) > best) {
                records.clear();
            }
            records.push(record);
        }
    }
    let mut owners = Owners::default();
    for (address, records) in claims {
        let Some((first, others)) = records.split_first() else {
            continue;
        };
        let pod = local_pod(first);
        if others.iter().all(|other| local_pod(other) == pod) {
            owners.pods.insert(address, pod);
        } else if first.state == State::Live {
            owners.problems.push(shared(address, &records));
        }
    }
    owners
}

/// The record with the highest has the address.
fn rank(record: &Record) -> u8 {
    match record.state {
        State::Live => 2,
        State::Adding { .. } => 1,
        State::Deleting => 0,
    }
}

fn local_pod(record: &Record) -> Option<LocalPod> {
    Some(LocalPod {
        name: record.pod.clone()?,
        uid: record.pod_uid.clone(),
    })
}

fn shared(address: IpAddr, records: &[&Record]) -> Problem {
    let names: Vec<String> = records
        .iter()
        .map(|record| super::name_of(record))
        .collect();
    Problem::new(
        ProblemKind::StoreFile,
        address.to_string(),
        format!(
            "several records have this address, so no policy allows it anything while policies are in force: {}",
            names.join(", ")
        ),
    )
    .with_cure("restart these pods, so that each gets an address of its own")
}

#[cfg(test)]
mod tests {
    use tweed_core::attachment::PodName;
    use tweed_ipam::record::Process;

    use super::*;
    use crate::reconcile::pods::plan::tests;

    fn record(pod: &str, state: State) -> Record {
        let name = PodName {
            namespace: "shop".to_owned(),
            name: pod.to_owned(),
        };
        Record {
            addresses: vec!["10.244.1.5/24".parse().unwrap()],
            pod: Some(name),
            state,
            ..tests::record()
        }
    }

    fn adding() -> State {
        State::Adding {
            by: Process::current().unwrap(),
        }
    }

    /// The pod that has the address, whatever the order of the records.
    fn owner(records: [Record; 2]) -> (Option<String>, usize) {
        let [one, other] = &records;
        let both = [[one, other], [other, one]].map(|records| {
            let Owners { pods, problems } = owners(records.into_iter());
            let pod = pods.into_values().next().map(|pod| pod.unwrap().name.name);
            (pod, problems.len())
        });
        assert_eq!(both[0], both[1]);
        both[0].clone()
    }

    #[test]
    fn of_two_records_with_an_address_the_one_of_the_running_pod_counts() {
        let of = |pod: &str| (Some(pod.to_owned()), 0);
        let new = |state| record("new", state);
        let old = |state| record("old", state);
        assert_eq!(owner([new(State::Live), old(State::Deleting)]), of("new"));
        assert_eq!(owner([new(adding()), old(State::Deleting)]), of("new"));
        assert_eq!(owner([new(adding()), old(State::Live)]), of("old"));
        assert_eq!(owner([old(State::Live), old(State::Live)]), of("old"));
    }

    #[test]
    fn an_address_that_two_pods_have_is_nobodys() {
        let two = |state: fn() -> State| [record("a", state()), record("b", state())];
        assert_eq!(owner(two(|| State::Live)), (None, 1));
        // The sweep takes one of them away.
        assert_eq!(owner(two(adding)), (None, 0));
        assert_eq!(owner(two(|| State::Deleting)), (None, 0));
    }
}
