//! What the kernel should hold: decided purely, from data alone.

pub mod desired;
