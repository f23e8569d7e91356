//! Random policies of both APIs, judged by the evaluators of kube-network-policies, by the
//! planner's own evaluator of the specification, and by the sets and maps that the planner
//! wants in the kernel.

#[cfg(test)]
mod case;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod judge;
#[cfg(test)]
mod manifest;
#[cfg(test)]
mod policies;
#[cfg(test)]
mod sets;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use proptest::test_runner::{Config, TestCaseError, TestRunner};

    use tweed_planner::policy::evaluate::Verdict;
    use tweed_planner::policy::verdicts::Direction;

    use super::case::{Case, Packet, addresses, case, overlay_addresses};
    use super::judge::{Judge, Verdicts};
    use super::sets::Planners;

    /// Number of cases; each has some hundred packets.
    const CASES: u32 = 1000;

    #[test]
    #[ignore = "needs policy-judge: conformance/setup.sh test builds it, make test runs it"]
    fn the_planner_and_kube_network_policies_agree() {
        let judge = RefCell::new(Judge::start());
        let count = RefCell::new(Count::default());
        let mut runner = TestRunner::new(Config {
            cases: CASES,
            // Cases are chosen anew each time; a failure prints its own.
            failure_persistence: None,
            max_shrink_iters: 2000,
            ..Config::default()
        });
        let agreed = runner.run(&case(), |case| {
            let verdicts = judge.borrow_mut().verdicts(&case);
            compare(&case, &verdicts, &mut count.borrow_mut())
        });
        if let Err(difference) = agreed {
            panic!("{difference}");
        }
        let Count { allowed, denied } = count.into_inner();
        // As long as no case is too simple to decide anything.
        assert!(
            allowed > 100_000 && denied > 20_000,
            "{allowed} allowed, {denied} denied"
        );
    }

    /// Number of verdicts.
    #[derive(Default)]
    struct Count {
        allowed: usize,
        denied: usize,
    }

    fn compare(case: &Case, verdicts: &[Verdicts], count: &mut Count) -> Result<(), TestCaseError> {
        let planners = Planners::of(case);
        let cluster = case.cluster();
        for (packet, verdicts) in case.packets.iter().zip(verdicts) {
            let Packet {
                source,
                destination,
                ..
            } = *packet;
            let explained = cluster.evaluate(source, destination, packet.number(), packet.port);
            let ends = [
                (Direction::Out, verdicts.egress, explained.egress),
                (Direction::In, verdicts.ingress, explained.ingress),
            ];
            for (direction, expected, evaluation) in ends {
                let Some(sets) = planners.allows(direction, packet) else {
                    continue;
                };
                if direction == Direction::In && is_from_own_node(case, &planners, packet) {
                    continue;
                }
                let evaluator = evaluation.verdict == Verdict::Allowed;
                if (sets, evaluator) != (expected, expected) {
                    return Err(TestCaseError::fail(format!(
                        "{direction:?} {packet:?}: whether it is allowed: the judge says \
                         {expected}, the sets {sets}, the evaluator {evaluator} by {evaluation:?}"
                    )));
                }
                if expected {
                    count.allowed += 1
                } else {
                    count.denied += 1
                }
            }
        }
        Ok(())
    }

    /// What a node sends to its own pods is not judged: probes are among it.
    fn is_from_own_node(case: &Case, planners: &Planners, packet: &Packet) -> bool {
        let node = planners.node_of(packet.destination);
        let node = case
            .nodes
            .iter()
            .find(|one| Some(one.name.as_str()) == node);
        let of = |node| [addresses(node), overlay_addresses(node)].concat();
        node.is_some_and(|node| of(node).contains(&packet.source))
    }
}
