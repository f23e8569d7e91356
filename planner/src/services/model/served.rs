//! What is decided of a frontend.

use super::claims::{Claimant, Class};
use super::service::{ServicePort, To};
use super::spec::Sources;
use super::value::Masquerade;

/// What is decided of a frontend: what the Service says that has it.
#[derive(Debug, Clone, Copy)]
pub struct Served<'a> {
    /// Who has it, and as what.
    pub claimant: &'a Claimant,
    /// Where in [`Service::ports`] the port is that it leads to.
    pub place: usize,
    /// That port.
    pub port: &'a ServicePort,
}

impl<'a> Served<'a> {
    /// Where flows go: those from outside, or those of pods and of this node.
    pub fn to(&self, is_outside: bool) -> To {
        match self.claimant.class {
            Class::ClusterIp => self.port.internal,
            _ if is_outside => self.port.outside,
            _ => self.port.external,
        }
    }

    /// Which flows are masqueraded, if that is not as for cluster IPs.
    pub fn masquerade(&self) -> Option<Masquerade> {
        let is_external = self.claimant.class != Class::ClusterIp;
        is_external.then_some(if self.port.spec.external_local {
            Masquerade::OwnNode
        } else {
            Masquerade::All
        })
    }

    /// Who may use it, if not everybody.
    pub fn sources(&self) -> Option<&'a Sources> {
        match self.claimant.class {
            Class::ClusterIp | Class::NodePort => None,
            Class::LoadBalancer | Class::ExternalIp => self.port.sources(),
        }
    }
}
