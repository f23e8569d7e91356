mod addresses;
mod cases;
#[path = "../../tests/reference/cluster.rs"]
mod cluster;
mod cost;
mod cves;
mod edits;
mod fixture;
mod names;
mod open;
mod properties;
mod random;
mod reuse;
mod rows;
mod terminating;
mod waiting;
mod walk;
mod wants;
pub(crate) mod world;
