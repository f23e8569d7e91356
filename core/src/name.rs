//! Why a name or an address from outside was refused.

/// A name that the CNI specification or the kernel does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value:?} {why}")]
pub struct InvalidName {
    /// Which name: `container ID`, `interface name`, `network name`.
    pub what: &'static str,
    /// The value that is not valid.
    pub value: String,
    /// The broken rule.
    pub why: &'static str,
}
