//! What has to hold after every burst, each seen by other programs than tweed's.

mod fast_path;
mod foreign;
mod kernel;
mod logs;
mod packets;
mod store;
mod table;
mod verb;

use tweed_lab::LabError;

use crate::world::World;

pub use kernel::text;
pub use packets::{Endpoints, PORT};
pub use table::{Skeleton, objects};

/// What the checks keep between bursts.
pub struct Checks {
    endpoints: Endpoints,
    skeleton: Skeleton,
}

impl Checks {
    /// For a world in which all agents are ready and there are policies: the rules of its
    /// first node are taken as those that every node has at any time, or as long as there
    /// are policies.
    ///
    /// # Errors
    /// The rules cannot be read.
    pub fn new(world: &World) -> Result<Self, LabError> {
        Ok(Self {
            endpoints: Endpoints::default(),
            skeleton: Skeleton::of(world)?,
        })
    }

    /// What is not as it should be: the findings of the first check that has any, as the
    /// later ones would follow from them.
    ///
    /// # Errors
    /// A program that looks fails.
    pub fn problems(&mut self, world: &mut World) -> Result<Vec<String>, LabError> {
        self.endpoints.close_deleted();
        let plan = world.plan();
        let any_policy = world.policies.any();
        for node in &plan.nodes {
            let netns = world.node(node.index)?.node.netns();
            let mut found = kernel::problems(netns, node, &plan)?;
            if found.is_empty() {
                found = self.skeleton.problems(netns, node, &plan, any_policy)?;
            }
            if !found.is_empty() {
                return Ok(of_node(&node.name, found));
            }
        }
        for node in &plan.nodes {
            let folder = world.store(node.index)?;
            let mut found = store::problems(&folder, node);
            if found.is_empty() {
                found = foreign::problems(world, node.index)?;
            }
            if found.is_empty() {
                found = logs::problems(world, node.index)?;
            }
            if found.is_empty() {
                found = verb::problems(world, node.index)?;
            }
            if found.is_empty() {
                found = fast_path::problems(world, node)?;
            }
            if !found.is_empty() {
                return Ok(of_node(&node.name, found));
            }
        }
        let shared = world.shared_addresses();
        if !shared.is_empty() {
            return Ok(vec![format!(
                "two attached pods have the addresses {shared:?}"
            )]);
        }
        self.endpoints.problems(world, &plan)
    }
}

fn of_node(name: &str, found: Vec<String>) -> Vec<String> {
    found
        .into_iter()
        .map(|line| format!("{name}: {line}"))
        .collect()
}

/// The differences of two sets of lines.
fn differences(
    what: &str,
    expected: std::collections::BTreeSet<String>,
    seen: std::collections::BTreeSet<String>,
) -> Vec<String> {
    let missing = expected
        .difference(&seen)
        .map(|line| format!("{what} missing: {line}"));
    let surplus = seen
        .difference(&expected)
        .map(|line| format!("{what} surplus: {line}"));
    missing.chain(surplus).collect()
}
