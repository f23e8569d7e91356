//! How a pod is connected to its node. There is one way: [`veth`].

pub mod veth;
