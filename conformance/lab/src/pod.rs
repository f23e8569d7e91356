//! A pod: a network namespace, as a runtime creates it before it calls CNI.

use sha2::{Digest, Sha512};

use crate::error::LabError;
use crate::lab::Lab;
use crate::netns::Netns;

/// A pod's namespace. It has only `lo` until a plugin attaches it. Dropping it
/// deletes the namespace without a DEL, as when a sandbox is killed.
#[derive(Debug)]
pub struct Pod {
    netns: Netns,
}

impl Pod {
    /// A pod of this name.
    ///
    /// # Errors
    /// As [`Lab::netns`].
    pub fn new(lab: &Lab, name: &str) -> Result<Self, LabError> {
        lab.netns(name).map(|netns| Self { netns })
    }

    /// Its namespace.
    #[must_use]
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Its namespace's path, as runtimes and `cnitool` take it.
    #[must_use]
    pub fn path(&self) -> String {
        self.netns.path().display().to_string()
    }

    /// The container ID that `cnitool` gives it: a hash of the path.
    #[must_use]
    pub fn container_id(&self) -> String {
        let digest = Sha512::digest(self.path());
        let hex: String = digest[..10].iter().map(|b| format!("{b:02x}")).collect();
        format!("cnitool-{hex}")
    }
}
