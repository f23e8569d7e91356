//! Objects of others are as they were before tweed came.

use tweed_lab::LabError;

use crate::world::{World, foreign_objects};

/// What has changed about the foreign objects of a node.
///
/// # Errors
/// The node cannot be read.
pub fn problems(world: &mut World, index: u8) -> Result<Vec<String>, LabError> {
    let now = foreign_objects(world.node(index)?.node.netns())?;
    let before = world.foreign_before(index);
    Ok(before
        .map(|before| before.changes(&now))
        .unwrap_or_default())
}
