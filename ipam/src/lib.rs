//! The address store of one node: which attachment holds which address.
//!
//! No daemon: every program that needs the store opens the same folder under
//! `/run/tweed/ipam/<network>/`, takes its lock and changes one thing at a time.
//!
//! [`attachment`] names things (checked once, at the edge) and derives what is
//! derived from names; [`record`] is what a file in the store says. The two are
//! frozen: nodes and programs of neighbouring versions read each other's.
//! [`ownership`] is by what plugin and agent know tweed's own in the kernel;
//! [`leaving`] says which of the two deletes links on their way out.
//! [`ranges`] turns a host-local config into the addresses that may be given;
//! [`store`] gives them; [`sweep`] takes back what its owner left behind.
//! [`protocol`] is the CNI protocol, shared with the `tweed` plugin; [`plugin`] is
//! the program `tweed-ipam`.

mod codes;
pub mod plugin;
mod process;
pub mod ranges;
pub mod record;
pub mod resolv_conf;
pub mod store;
pub mod sweep;
