//! No agent has panicked, whatever was done to it.

use tweed_lab::{Agent, LabError};

use crate::world::World;

/// The lines of a node's agents' logs that tell of a panic.
///
/// # Errors
/// There is no node of this number.
pub fn problems(world: &mut World, index: u8) -> Result<Vec<String>, LabError> {
    let log = world
        .node(index)?
        .agent
        .as_ref()
        .map(Agent::log)
        .unwrap_or_default();
    Ok(log
        .lines()
        .filter(|line| line.contains("panicked at"))
        .map(ToOwned::to_owned)
        .collect())
}
