mod cases;
mod fixture;
mod properties;
mod random;
mod reuse;
mod rows;
mod walk;
mod world;
