mod cases;
mod fixture;
mod properties;
mod random;
mod reuse;
mod rows;
mod waiting;
mod walk;
pub(crate) mod world;
