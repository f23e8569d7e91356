//! A node as others see it: by one of two addresses.

use std::net::IpAddr;

use anyhow::Result;
use tweed_lab_kubernetes::Machine;

use crate::place::Place;
use crate::stage::Stage;

/// A node, by both of its addresses.
pub struct Node {
    /// Its network, and its address on the underlay.
    pub place: Place,
    overlay: IpAddr,
}

impl Node {
    /// One of the cluster's.
    pub fn of(stage: &Stage<'_>, machine: &Machine) -> Result<Self> {
        Ok(Self {
            place: Place::node(machine),
            overlay: stage.overlay_address(machine.name())?,
        })
    }

    /// Whether the two are one.
    pub fn is(&self, other: &Self) -> bool {
        self.place.name == other.place.name
    }

    /// Its address, as a pod on that node sees it.
    pub fn seen_on(&self, node: &Self) -> IpAddr {
        if self.is(node) {
            self.place.address
        } else {
            self.overlay
        }
    }
}
