//! The VXLAN device: compare what is there with what is desired, say why it
//! differs, and change it in place or make it again.
//!
//! [`plan()`] decides, [`ensure`] writes, [`conflict`] says who has the name, the
//! VNI or the port where the kernel refuses.
//!
//! MAC, MTU, being up, having a carrier and being nobody's port are changed in place. Everything
//! else (VNI, port, own address, learning, options that tweed never sets) makes
//! it another device: it is deleted and made again, and everything on it is
//! written again in the same reconcile.
//!
//! A device that somebody renamed still has the VNI, so no other can be made. If
//! its MAC and all options are ours it gets its name back, and loses nothing by
//! it. Before Linux 6.2 no device that is up could be renamed: there it is made
//! again.

mod conflict;
mod ensure;
mod plan;

pub(super) use plan::{carrier_problem, plan};
