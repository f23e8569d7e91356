mod fixture;
mod groups;
mod properties;
mod random;
mod rows;
mod walk;
