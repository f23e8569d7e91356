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

use super::call::{CniArgs, parse_ip};
use super::error::{CniError, Code};
use super::result::{AddResult, Dns};
use super::version::CniVersion;
use crate::attachment::{Mac, NetworkName};

/// The longest stdin that is read, in bytes. Real configs have a few thousand.
pub const LIMIT: usize = 1 << 20;

/// Keys of the protocol itself, which every plugin knows.
const PROTOCOL_KEYS: [&str; 12] = [
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
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, CniError> {
        Config::parse(text.as_bytes().to_vec(), &mut CniVersion::LATEST.clone())
    }

    fn config(rest: &str) -> Config {
        parse(&format!(r#"{{"cniVersion":"1.1.0","name":"tweed"{rest}}}"#)).unwrap()
    }

    #[test]
    fn what_is_no_object_is_code_6() {
        let deep = "[".repeat(200_000);
        for text in [
            "",
            " ",
            "null",
            "[]",
            "1",
            "{",
            r#"{"name":"a"} x"#,
            "\u{0}\u{1}",
            &deep,
        ] {
            assert_eq!(parse(text).unwrap_err().code, 6);
        }
        assert_eq!(
            Config::parse(vec![0xff, 0xfe], &mut CniVersion::LATEST.clone())
                .unwrap_err()
                .code,
            6
        );
        assert_eq!(parse(r#"{"cniVersion":1,"name":"a"}"#).unwrap_err().code, 6);
    }

    #[test]
    fn version_comes_before_name() {
        assert_eq!(parse(r#"{"name":"../x"}"#).unwrap_err().code, 1);
        for name in [r#""../x""#, r#""""#, "null", "7", r#""a/b""#] {
            let error = parse(&format!(r#"{{"cniVersion":"1.0.0","name":{name}}}"#)).unwrap_err();
            assert_eq!(error.code, 7, "{name}");
            assert!(error.msg.contains("name"), "{error}");
        }
    }

    #[test]
    fn an_error_after_the_version_is_answered_in_it() {
        let mut spoken = CniVersion::LATEST;
        let bytes = br#"{"cniVersion":"0.4.0"}"#.to_vec();
        assert!(Config::parse(bytes, &mut spoken).is_err());
        assert_eq!(spoken, CniVersion::V0_4_0);
    }

    #[test]
    fn of_a_key_that_is_there_twice_the_last_holds() {
        let config = config(r#","mtu":1,"mtu":2"#);
        assert_eq!(config.typed::<u32>("mtu"), Ok(Some(2)));
    }

    #[test]
    fn ipam_types_that_name_another_file_are_code_7() {
        for ipam in [
            "",
            r#","ipam":{}"#,
            r#","ipam":null"#,
            r#","ipam":[]"#,
            r#","ipam":{"type":""}"#,
            r#","ipam":{"type":"../../sbin/x"}"#,
            r#","ipam":{"type":".."}"#,
            r#","ipam":{"type":"a\u0000b"}"#,
            r#","ipam":{"type":5}"#,
        ] {
            let error = config(ipam).ipam_type().unwrap_err();
            assert_eq!(error.code, 7, "{ipam}");
            assert!(error.msg.contains("ipam"), "{error}");
        }
        assert_eq!(
            config(r#","ipam":{"type":"host-local"}"#).ipam_type(),
            Ok("host-local".to_owned())
        );
    }

    #[test]
    fn unknown_keys_are_told_from_the_protocols() {
        let config = config(r#","mtuu":1,"mtu":2,"cni.dev/x":1,"runtimeConfig":{},"args":{}"#);
        assert_eq!(config.unknown_keys(&["mtu"]).collect::<Vec<_>>(), ["mtuu"]);
    }

    #[test]
    fn a_null_list_is_no_list_and_an_empty_one_is() {
        assert_eq!(config("").valid_attachments(), Ok(None));
        assert_eq!(
            config(r#","cni.dev/valid-attachments":null"#).valid_attachments(),
            Ok(None)
        );
        assert_eq!(
            config(r#","cni.dev/attachments":[]"#).valid_attachments(),
            Ok(Some(vec![]))
        );
        let listed =
            config(r#","cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]"#);
        let list = listed.valid_attachments().unwrap().unwrap();
        assert_eq!(
            (list[0].container_id.as_str(), list[0].ifname.as_str()),
            ("c1", "eth0")
        );
        let broken = config(r#","cni.dev/valid-attachments":[{"containerID":"c1"}]"#);
        assert_eq!(broken.valid_attachments().unwrap_err().code, 7);
    }

    #[test]
    fn asked_for_addresses_are_ranked() {
        let from_env = CniArgs {
            ips: vec!["10.0.0.3".parse().unwrap()],
            ..CniArgs::default()
        };
        let ips = |rest: &str| config(rest).requested_ips(&from_env).unwrap();
        let only = |text: &str| vec![text.parse::<IpAddr>().unwrap()];
        assert_eq!(ips(""), only("10.0.0.3"));
        assert_eq!(
            ips(r#","args":{"cni":{"ips":["10.0.0.2/24"]}}"#),
            only("10.0.0.2")
        );
        assert_eq!(
            ips(r#","args":{"cni":{"ips":["10.0.0.2"]}},"runtimeConfig":{"ips":["10.0.0.1"]}"#),
            only("10.0.0.1")
        );
        for bad in [
            r#","runtimeConfig":{"ips":["x"]}"#,
            r#","runtimeConfig":{"ips":7}"#,
            r#","args":{"cni":{"ips":[1]}}"#,
        ] {
            let error = config(bad).requested_ips(&CniArgs::default()).unwrap_err();
            assert_eq!(error.code, 7);
            assert!(error.msg.contains("ips"), "{error}");
        }
    }

    #[test]
    fn a_mac_of_the_runtime_is_checked() {
        let mac = |text: &str| config(text).runtime_config().map(|r| r.mac);
        assert_eq!(
            mac(r#","runtimeConfig":{"mac":"02:00:00:00:00:01"}"#),
            Ok(Some(Mac([2, 0, 0, 0, 0, 1])))
        );
        assert_eq!(mac(r#","runtimeConfig":{"mac":""}"#), Ok(None));
        assert_eq!(mac(r#","runtimeConfig":{"mac":"x"}"#).unwrap_err().code, 7);
    }
}
