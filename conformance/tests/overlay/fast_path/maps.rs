//! The maps that the agents have pinned.

use std::fs;

use aya::maps::MapData;
use tweed_lab::{LabError, Node};

/// `struct settings`.
pub type Settings = [u64; 40];
/// Which of its words is the epoch, the lease, and the mark of the policies in force.
pub const EPOCH: usize = 0;
pub const LEASE: usize = 2;
pub const MARK: usize = 3;

/// The map of a node whose name ends so.
pub fn pinned(node: &Node, name: &str) -> Result<MapData, LabError> {
    let folder = node.bpf_dir()?.join("maps");
    let mut pins = fs::read_dir(folder).unwrap().map(|pin| pin.unwrap().path());
    let found = pins.find(|pin| pin.to_string_lossy().ends_with(name));
    Ok(MapData::from_pin(found.unwrap()).unwrap())
}
