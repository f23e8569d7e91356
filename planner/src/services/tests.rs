mod fixture;
mod frontends;
mod groups;
mod properties;
mod random;
mod rows;
mod stale;
mod walk;
