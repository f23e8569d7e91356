//! The network config of one plugin of the chain, as read from stdin.
//!
//! It is read in two steps. [`Config::parse`] checks what every verb needs: one JSON
//! object, a supported version, a network name. Every other key is read by the verb
//! that needs it, so that a wrong `prevResult` or `mtu` does not keep a DEL from
//! freeing an address.

use std::{net::IpAddr, path::PathBuf};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::call::{CniArgs, parse_ip};
use crate::error::{CniError, Code};
use crate::result::{AddResult, Dns};
use crate::version::CniVersion;
use tweed_core::{attachment::NetworkName, mac::Mac};

/// Maximum size of the config on stdin, in bytes. Real ones have a few thousand.
pub const LIMIT: usize = 1 << 20;

/// Keys that the specification defines for every plugin.
pub const PROTOCOL_KEYS: [&str; 12] = [
    "args",
    "capabilities",
    "cniVersion",
    "cniVersions",
    "disableCheck",
    "disableGC",
    "dns",
    "ipam",
    "name",
    "prevResult",
    "runtimeConfig",
    "type",
];

/// Prefix of the keys that the specification lets a runtime add.
const PROTOCOL_PREFIX: &str = "cni.dev/";

/// A network config: its common part, and access to its other keys.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The version of the protocol for this call.
    pub version: CniVersion,
    /// The network.
    pub network: NetworkName,
    keys: Map<String, Value>,
    bytes: Vec<u8>,
}

/// What the runtime adds for one attachment, `runtimeConfig`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuntimeConfig {
    /// Capability `mac`: the requested MAC of the pod's end.
    pub mac: Option<Mac>,
    /// Capability `ips`: requested addresses.
    pub ips: Vec<IpAddr>,
    /// Capability `ipRanges`: range sets as in host-local's `ranges`.
    pub ip_ranges: Option<Value>,
}

/// An attachment in the list of GC. Its names are not checked here: an entry with an
/// invalid name is not an error.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ValidAttachment {
    /// The container.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// The interface inside it.
    pub ifname: String,
}

impl Config {
    /// Parses `bytes`. `version_of_call` is set as soon as the version is known, so
    /// that the document of a later error has it. Of a key that occurs twice, the
    /// last one counts, as in the reference.
    ///
    /// # Errors
    /// Code 6 if `bytes` is not one JSON object, or is nested deeper than 127;
    /// 1 for the version; 7 for the name.
    pub fn parse(bytes: Vec<u8>, version_of_call: &mut CniVersion) -> Result<Self, CniError> {
        let keys = object(&bytes)?;
        let version = match keys.get("cniVersion") {
            None | Some(Value::Null) => CniVersion::negotiate(None),
            Some(Value::String(text)) => CniVersion::negotiate(Some(text)),
            Some(other) => Err(CniError::new(
                Code::Decoding,
                format!("cniVersion must be a string, and is {}", kind(other)),
            )),
        }?;
        *version_of_call = version;
        let network = match keys.get("name") {
            Some(Value::String(name)) => {
                NetworkName::new(name.as_str()).map_err(|error| format!("name: {error}"))
            }
            None | Some(Value::Null) => Err("name is missing".to_owned()),
            Some(other) => Err(format!("name must be a string, and is {}", kind(other))),
        }
        .map_err(CniError::config)?;
        Ok(Self {
            version,
            network,
            keys,
            bytes,
        })
    }

    /// The config as it was read, for a delegated plugin.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A key's value; `None` if it is missing or null.
    pub fn key(&self, key: &str) -> Option<&Value> {
        self.keys.get(key).filter(|value| !value.is_null())
    }

    /// A key's value as a `T`; `None` if it is missing or null.
    ///
    /// # Errors
    /// Code 7, naming the key, if the value has another shape.
    pub fn typed<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, CniError> {
        optional(key, self.keys.get(key))
    }

    /// A key that is an absolute path, as callers have different current folders; `None` if it
    /// is missing or null.
    ///
    /// # Errors
    /// Code 7, naming the key, if it is anything else.
    pub fn path(&self, key: &str) -> Result<Option<PathBuf>, CniError> {
        let Some(value) = self.key(key) else {
            return Ok(None);
        };
        match value.as_str() {
            Some(text) if text.starts_with('/') && !text.contains('\0') => Ok(Some(text.into())),
            _ => Err(CniError::config(format!(
                "{key} is {value}: it must be an absolute path"
            ))),
        }
    }

    /// Keys that neither the protocol defines nor `known` contains.
    pub fn unknown_keys<'a>(&'a self, known: &'a [&str]) -> impl Iterator<Item = &'a str> {
        self.keys.keys().map(String::as_str).filter(|key| {
            !PROTOCOL_KEYS.contains(key)
                && !key.starts_with(PROTOCOL_PREFIX)
                && !known.contains(key)
        })
    }

    /// The `ipam` object; empty if missing.
    ///
    /// # Errors
    /// Code 7 if it is no object.
    pub fn ipam(&self) -> Result<Map<String, Value>, CniError> {
        Ok(self.typed("ipam")?.unwrap_or_default())
    }

    /// The IPAM plugin's name, `ipam.type`, which is a valid file name.
    ///
    /// # Errors
    /// Code 7 if it is missing or could name a file in another folder.
    pub fn ipam_type(&self) -> Result<String, CniError> {
        let value: Option<String> = optional("ipam.type", self.ipam()?.get("type"))?;
        let name = value.ok_or_else(|| CniError::config("ipam.type is missing"))?;
        let is_forbidden = |c: char| matches!(c, '/' | '\\') || c.is_control();
        if matches!(name.as_str(), "" | "." | "..") || name.contains(is_forbidden) {
            return Err(CniError::config(format!(
                "ipam.type {name:?} is not the name of a plugin: it must be a file name"
            )));
        }
        Ok(name)
    }

    /// The `dns` object; empty if missing.
    ///
    /// # Errors
    /// Code 7 if it has another shape.
    pub fn dns(&self) -> Result<Dns, CniError> {
        Ok(self.typed("dns")?.unwrap_or_default())
    }

    /// `runtimeConfig`; empty if missing.
    ///
    /// # Errors
    /// Code 7, naming the key that has another shape.
    pub fn runtime_config(&self) -> Result<RuntimeConfig, CniError> {
        let keys: Map<String, Value> = self.typed("runtimeConfig")?.unwrap_or_default();
        Ok(RuntimeConfig {
            mac: mac("runtimeConfig.mac", keys.get("mac"))?,
            ips: ips("runtimeConfig.ips", keys.get("ips"))?,
            ip_ranges: keys
                .get("ipRanges")
                .filter(|value| !value.is_null())
                .cloned(),
        })
    }

    /// The addresses that are requested for this attachment: `runtimeConfig.ips`,
    /// else `args.cni.ips`, else `IP` of `CNI_ARGS`: the order in the CNI project's
    /// CONVENTIONS.md.
    ///
    /// # Errors
    /// Code 7, naming the key whose value is no list of addresses.
    pub fn requested_ips(&self, args: &CniArgs) -> Result<Vec<IpAddr>, CniError> {
        let capability = self.runtime_config()?.ips;
        if !capability.is_empty() {
            return Ok(capability);
        }
        let requested = ips("args.cni.ips", self.cni_arg("ips"))?;
        Ok(if requested.is_empty() {
            args.ips.clone()
        } else {
            requested
        })
    }

    /// The MAC that is requested for the pod's end: `runtimeConfig.mac`, else
    /// `args.cni.mac`, as in the reference plugins. Before that of `CNI_ARGS`.
    ///
    /// # Errors
    /// Code 7, naming the key whose value is no unicast MAC.
    pub fn requested_mac(&self) -> Result<Option<Mac>, CniError> {
        let of_args = mac("args.cni.mac", self.cni_arg("mac"))?;
        Ok(self.runtime_config()?.mac.or(of_args))
    }

    /// A key of `args.cni`.
    fn cni_arg(&self, key: &str) -> Option<&Value> {
        self.key("args")?.get("cni")?.get(key)
    }

    /// The result of the plugins before this one (ADD), or of the whole chain (CHECK,
    /// DEL).
    ///
    /// # Errors
    /// Code 7 if it is not a result of any supported version.
    pub fn prev_result(&self) -> Result<Option<AddResult>, CniError> {
        let result = self
            .key("prevResult")
            .map(AddResult::from_value)
            .transpose();
        result.map_err(|problem| CniError::config(format!("prevResult: {problem}")))
    }

    /// The list of GC, under its name or under one that the specification had by
    /// mistake. `None` if it is missing or null.
    ///
    /// # Errors
    /// Code 7 if it has another shape.
    pub fn valid_attachments(&self) -> Result<Option<Vec<ValidAttachment>>, CniError> {
        for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
            if let Some(list) = self.typed(key)? {
                return Ok(Some(list));
            }
        }
        Ok(None)
    }
}

/// The version in the config of a VERSION call, if it is a supported one.
pub(super) fn version_of(bytes: &[u8]) -> Option<CniVersion> {
    let keys = object(bytes).ok()?;
    CniVersion::find(keys.get("cniVersion")?.as_str()?)
}

fn object(bytes: &[u8]) -> Result<Map<String, Value>, CniError> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(keys)) => Ok(keys),
        Ok(other) => {
            let what = kind(&other);
            let problem = format!("the network config must be a JSON object, and is {what}");
            Err(CniError::new(Code::Decoding, problem))
        }
        Err(error) => {
            let problem = if bytes.is_empty() {
                "stdin is empty"
            } else {
                "the network config is not a JSON object"
            };
            Err(CniError::new(Code::Decoding, problem).details(error.to_string()))
        }
    }
}

/// The value as a `T`; none if it is missing or null.
fn optional<T: DeserializeOwned>(key: &str, value: Option<&Value>) -> Result<Option<T>, CniError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => T::deserialize(value)
            .map(Some)
            .map_err(|error| CniError::config(format!("{key}: {error}"))),
    }
}

/// A MAC for a link; an empty text requests none.
fn mac(key: &str, value: Option<&Value>) -> Result<Option<Mac>, CniError> {
    let text: Option<String> = optional(key, value)?;
    let requested = text.filter(|text| !text.is_empty());
    let mac = requested.map(|text| Mac::parse_unicast(&text)).transpose();
    mac.map_err(|error| CniError::config(format!("{key}: {error}")))
}

fn ips(key: &str, value: Option<&Value>) -> Result<Vec<IpAddr>, CniError> {
    let texts: Vec<String> = optional(key, value)?.unwrap_or_default();
    texts
        .iter()
        .map(|text| parse_ip(text).map_err(|problem| CniError::config(format!("{key}: {problem}"))))
        .collect()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests;
