//! What is known of Services, and what it comes to, whoever writes it down.

pub mod choice;
pub mod frontends;
pub mod options;
pub mod refusal;
pub mod registry;
pub mod reserved;
pub mod scope;
pub mod slice;
pub mod spec;
pub mod surroundings;
