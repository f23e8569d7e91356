pub mod ensure;
pub mod plan;
