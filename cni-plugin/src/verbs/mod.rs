//! The verbs of CNI, one file each. VERSION is answered by `tweed-cni`.
//!
//! Each reads the parts of the config that it needs, and no more: a DEL must not
//! fail over a key that only ADD uses.

pub(crate) mod add;
pub(crate) mod check;
pub(crate) mod del;
pub(crate) mod gc;
mod result;
pub(crate) mod status;
