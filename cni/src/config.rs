//! What stdin says: the network config of one plugin of the chain.
//!
//! Read in two steps. [`Config::parse`] takes what every verb needs: one JSON
//! object, a supported version, a network name. All else is read by the verb
//! that needs it, so that a broken `prevResult` or `mtu` never keeps a DEL from
//! freeing an address.

use std::net::IpAddr;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::call::{CniArgs, parse_ip};
use crate::error::{CniError, Code};
use crate::result::{AddResult, Dns};
use crate::version::CniVersion;
use tweed_core::attachment::NetworkName;
use tweed_core::mac::Mac;

/// The longest stdin that is read, in bytes. Real configs have a few thousand.
pub const LIMIT: usize = 1 << 20;

/// Keys of the protocol itself, which every plugin knows.
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

/// Prefix of the keys that a runtime adds for the protocol.
const PROTOCOL_PREFIX: &str = "cni.dev/";

/// A network config.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The version to speak.
    pub version: CniVersion,
    /// The network.
    pub network: NetworkName,
    keys: Map<String, Value>,
    bytes: Vec<u8>,
}

/// What the runtime adds for one attachment, `runtimeConfig`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuntimeConfig {
    /// Capability `mac`: the asked-for address of the pod's end.
    pub mac: Option<Mac>,
    /// Capability `ips`: asked-for addresses.
    pub ips: Vec<IpAddr>,
    /// Capability `ipRanges`: range sets as in host-local's `ranges`.
    pub ip_ranges: Option<Value>,
}

/// An attachment that the runtime still knows, in GC. Kept as text: one whose
/// names are not valid is just never equal to one of ours.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ValidAttachment {
    /// The container.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// The interface inside it.
    pub ifname: String,
}

impl Config {
    /// Reads `bytes`. `spoken` is set to the version as soon as it is known, so
    /// that an error found later is answered in it. Of a key that is there
    /// twice the last one holds, as in the reference.
    ///
    /// # Errors
    /// Code 6 if `bytes` is not one JSON object, or is nested deeper than 127;
    /// 1 for the version; 7 for the name.
    pub fn parse(bytes: Vec<u8>, spoken: &mut CniVersion) -> Result<Self, CniError> {
        let keys = object(&bytes)?;
        let version = match keys.get("cniVersion") {
            None | Some(Value::Null) => CniVersion::negotiate(None),
            Some(Value::String(text)) => CniVersion::negotiate(Some(text)),
            Some(other) => Err(CniError::new(
                Code::Decoding,
                format!("cniVersion is no string but {}", kind(other)),
            )),
        }?;
        *spoken = version;
        let network = match keys.get("name") {
            Some(Value::String(name)) => NetworkName::new(name.as_str())
                .map_err(|error| CniError::config(format!("name: {error}")))?,
            None | Some(Value::Null) => return Err(CniError::config("name is missing")),
            Some(other) => {
                return Err(CniError::config(format!(
                    "name is no string but {}",
                    kind(other)
                )));
            }
        };
        Ok(Self {
            version,
            network,
            keys,
            bytes,
        })
    }

    /// The config as it came, for a plugin that is delegated to.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A key's value; `None` if it is missing or null.
    #[must_use]
    pub fn key(&self, key: &str) -> Option<&Value> {
        self.keys.get(key).filter(|value| !value.is_null())
    }

    /// A key's value as a type; `None` if it is missing or null.
    ///
    /// # Errors
    /// Code 7, naming the key, if the value has another shape.
    pub fn typed<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, CniError> {
        self.key(key).map(|value| typed(key, value)).transpose()
    }

    /// Keys that neither the protocol nor `known` has.
    pub fn unknown_keys<'a>(&'a self, known: &'a [&str]) -> impl Iterator<Item = &'a str> {
        self.keys.keys().map(String::as_str).filter(|key| {
            !PROTOCOL_KEYS.contains(key)
                && !key.starts_with(PROTOCOL_PREFIX)
                && !known.contains(key)
        })
    }

    /// The `ipam` object.
    ///
    /// # Errors
    /// Code 7 if it is no object.
    pub fn ipam(&self) -> Result<Option<Map<String, Value>>, CniError> {
        self.typed("ipam")
    }

    /// The IPAM plugin's name, `ipam.type`, fit to be a file name.
    ///
    /// # Errors
    /// Code 7 if it is missing or could name a file elsewhere.
    pub fn ipam_type(&self) -> Result<String, CniError> {
        let missing = || CniError::config("ipam.type is missing");
        let ipam = self.ipam()?.ok_or_else(missing)?;
        let name: String = match ipam.get("type") {
            None | Some(Value::Null) => return Err(missing()),
            Some(value) => typed("ipam.type", value)?,
        };
        let harmless = !name.is_empty()
            && name != "."
            && name != ".."
            && !name
                .chars()
                .any(|c| c == '/' || c == '\\' || c.is_control());
        if harmless {
            Ok(name)
        } else {
            Err(CniError::config(format!(
                "ipam.type {name:?} is not the name of a plugin: it must be a file name"
            )))
        }
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
        let key = |key: &str| keys.get(key).filter(|value| !value.is_null());
        Ok(RuntimeConfig {
            mac: key("mac")
                .filter(|mac| mac.as_str() != Some(""))
                .map(|value| typed("runtimeConfig.mac", value))
                .transpose()?,
            ips: ips("runtimeConfig.ips", key("ips"))?,
            ip_ranges: key("ipRanges").cloned(),
        })
    }

    /// The addresses that this attachment asks for: `runtimeConfig.ips`, else
    /// `args.cni.ips`, else `IP` of `CNI_ARGS`, as CONVENTIONS.md ranks them.
    ///
    /// # Errors
    /// Code 7, naming the key whose value is no list of addresses.
    pub fn requested_ips(&self, args: &CniArgs) -> Result<Vec<IpAddr>, CniError> {
        let capability = self.runtime_config()?.ips;
        if !capability.is_empty() {
            return Ok(capability);
        }
        let cni = self.key("args").and_then(|args| args.get("cni"));
        let asked = ips("args.cni.ips", cni.and_then(|cni| cni.get("ips")))?;
        Ok(if asked.is_empty() {
            args.ips.clone()
        } else {
            asked
        })
    }

    /// What the plugins before this one have made (ADD), or the whole chain
    /// (CHECK, DEL).
    ///
    /// # Errors
    /// Code 7 if it is no result of any version.
    pub fn prev_result(&self) -> Result<Option<AddResult>, CniError> {
        self.key("prevResult")
            .map(|value| {
                AddResult::from_value(value)
                    .map_err(|problem| CniError::config(format!("prevResult: {problem}")))
            })
            .transpose()
    }

    /// The list of GC, under its name or the one that the specification once
    /// had by mistake. `None` if there is no list: null is none.
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

/// The version that a VERSION call names, if it names one that is spoken here.
pub(super) fn version_of(bytes: &[u8]) -> Option<CniVersion> {
    let keys = object(bytes).ok()?;
    CniVersion::find(keys.get("cniVersion")?.as_str()?)
}

fn object(bytes: &[u8]) -> Result<Map<String, Value>, CniError> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(keys)) => Ok(keys),
        Ok(other) => Err(CniError::new(
            Code::Decoding,
            format!("the network config is no JSON object but {}", kind(&other)),
        )),
        Err(error) if bytes.is_empty() => {
            Err(CniError::new(Code::Decoding, "stdin is empty").details(error.to_string()))
        }
        Err(error) => Err(
            CniError::new(Code::Decoding, "the network config is no JSON object")
                .details(error.to_string()),
        ),
    }
}

fn typed<T: DeserializeOwned>(key: &str, value: &Value) -> Result<T, CniError> {
    T::deserialize(value).map_err(|error| CniError::config(format!("{key}: {error}")))
}

fn ips(key: &str, value: Option<&Value>) -> Result<Vec<IpAddr>, CniError> {
    let texts: Vec<String> = value
        .filter(|value| !value.is_null())
        .map(|value| typed(key, value))
        .transpose()?
        .unwrap_or_default();
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
