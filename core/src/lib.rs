//! What the parts of tweed share.

pub mod attachment;
pub mod family;
pub mod keyed;
pub mod leaving;
pub mod mac;
pub mod object;
pub mod ownership;
pub mod paths;
pub mod problem;
pub mod sysctl;
pub mod text;
pub mod version;
