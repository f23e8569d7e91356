//! Errors as the runtime gets them: an error document, and the one table of codes.

use serde_json::{Value, json};

use tweed_core::name::InvalidName;

/// Every code that a plugin of tweed returns. Below 100 those of the specification;
/// 8 and 999 are those of the reference `pkg/types`; from 100 on those of tweed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The config's version, or the verb in that version, is not supported.
    IncompatibleVersion = 1,
    /// A `CNI_…` variable is missing or breaks its rules.
    InvalidEnvironment = 4,
    /// Reading or writing failed: stdin, or a file.
    Io = 5,
    /// Stdin is not one JSON object, or it is too large or nested too deeply.
    Decoding = 6,
    /// A key of the network config is missing or has an impossible value.
    InvalidConfig = 7,
    /// `CNI_NETNS` is not a network namespace, or is that of the host.
    InvalidNetns = 8,
    /// A temporary state: the node is not ready yet, or a lock is held.
    TryAgainLater = 11,
    /// STATUS: no ADD can be served.
    NotAvailable = 50,
    /// STATUS: no ADD can be served, and running pods are affected too.
    NotAvailableLimited = 51,
    /// No address is left in a range.
    RangeExhausted = 100,
    /// A requested address is taken, or outside the ranges.
    AddressNotAvailable = 101,
    /// An interface of the requested name already exists in the pod.
    InterfaceExists = 102,
    /// The kernel refused a change.
    KernelRefused = 103,
    /// CHECK found a difference.
    CheckDiffers = 104,
    /// The address store is damaged.
    StoreDamaged = 105,
    /// The delegated IPAM plugin failed without an error document, or could
    /// not be found.
    DelegateFailed = 106,
    /// A bug in the plugin: it panicked.
    Internal = 999,
}

impl Code {
    /// The number in the error document.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }
}

/// An error, as the runtime gets it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{msg}{}{details} (code {code})", if details.is_empty() { "" } else { ": " })]
pub struct CniError {
    /// The number of a [`Code`], or the code of a delegated plugin.
    pub code: u32,
    /// What failed, on one line.
    pub msg: String,
    /// The causes and the cure; may be empty.
    pub details: String,
}

impl CniError {
    /// An error without details.
    pub fn new(code: Code, msg: impl Into<String>) -> Self {
        Self {
            code: code.number(),
            msg: msg.into(),
            details: String::new(),
        }
    }

    /// Sets the details.
    #[must_use]
    pub fn details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// An error of a key of the config that is missing or wrong; `problem` names the
    /// key.
    pub fn config(problem: impl Into<String>) -> Self {
        Self::new(Code::InvalidConfig, problem)
    }

    /// The error that another plugin wrote to its stdout; `None` if `stdout` is not
    /// an error document.
    pub fn from_document(stdout: &[u8]) -> Option<Self> {
        let document: Value = serde_json::from_slice(stdout).ok()?;
        let text = |key: &str| document.get(key).and_then(Value::as_str);
        Some(Self {
            code: u32::try_from(document.get("code")?.as_u64()?).ok()?,
            msg: text("msg")?.to_owned(),
            details: text("details").unwrap_or_default().to_owned(),
        })
    }

    /// The document for stdout.
    pub fn document(&self, version: &str) -> Value {
        let mut document = json!({
            "cniVersion": version,
            "code": self.code,
            "msg": self.msg,
        });
        if !self.details.is_empty() {
            document["details"] = Value::from(self.details.as_str());
        }
        document
    }
}

impl From<InvalidName> for CniError {
    /// An invalid name in the config. For names in the environment, `call` uses
    /// another code.
    fn from(error: InvalidName) -> Self {
        Self::config(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_reads_back() {
        let error = CniError::new(Code::RangeExhausted, "no address left").details("254 of 254");
        let document = error.document("1.0.0");
        assert_eq!(document["cniVersion"], "1.0.0");
        assert_eq!(document["code"], 100);
        let bytes = serde_json::to_vec(&document).unwrap();
        assert_eq!(CniError::from_document(&bytes), Some(error));
    }

    #[test]
    fn what_is_no_error_document_is_none() {
        for stdout in ["", "{}", "[]", "oops", r#"{"code":-1,"msg":"x"}"#] {
            assert_eq!(
                CniError::from_document(stdout.as_bytes()),
                None,
                "{stdout:?}"
            );
        }
    }
}
