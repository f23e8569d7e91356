mod fixture;
mod frontends;
mod groups;
mod properties;
mod random;
mod restart;
mod rows;
mod walk;
