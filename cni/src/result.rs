//! The result of an ADD, which is also in `prevResult`.
//!
//! The types have the fields of 1.1.0, which include those of older versions; the
//! document has the fields of the version of the call.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::version::CniVersion;

/// The result of an ADD.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AddResult {
    /// Interfaces on the host and in the container.
    pub interfaces: Vec<Interface>,
    /// Addresses.
    pub ips: Vec<IpConfig>,
    /// Routes inside the container.
    pub routes: Vec<Route>,
    /// Name resolution.
    pub dns: Dns,
}

/// An interface that a plugin of the chain has created.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name within its network namespace.
    pub name: String,
    /// Its link-layer address, as text: other plugins' links need not be
    /// Ethernet.
    pub mac: Option<String>,
    /// Its MTU, in bytes. From 1.1.0 on.
    pub mtu: Option<u32>,
    /// Path of the network namespace that it is in; none for the host.
    pub sandbox: Option<String>,
    /// Path of its socket, if it has one (vhost-user). From 1.1.0 on.
    #[serde(rename = "socketPath")]
    pub socket_path: Option<String>,
    /// Its PCI device. From 1.1.0 on.
    #[serde(rename = "pciID")]
    pub pci_id: Option<String>,
}

/// An address of the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpConfig {
    /// The address with its prefix length.
    pub address: IpNetwork,
    /// The gateway of its subnet.
    pub gateway: Option<IpAddr>,
    /// Which of [`AddResult::interfaces`] has it.
    pub interface: Option<usize>,
}

/// A route inside the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The destination.
    pub dst: IpNetwork,
    /// The next hop; none means the address's gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// MTU along the path, in bytes. From 1.1.0 on, as all that follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// TCP segment size to advertise, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advmss: Option<u32>,
    /// Priority (metric), lower is preferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Routing table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// Scope: 0 global, 253 link, 254 host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
}

impl Route {
    /// A route with nothing but a destination.
    pub fn to(dst: IpNetwork) -> Self {
        Self {
            dst,
            gw: None,
            mtu: None,
            advmss: None,
            priority: None,
            table: None,
            scope: None,
        }
    }
}

/// Name resolution, as in resolv.conf(5).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dns {
    /// Addresses of name servers, best first.
    pub nameservers: Vec<String>,
    /// The local domain.
    pub domain: Option<String>,
    /// Search domains, best first.
    pub search: Vec<String>,
    /// Options of the resolver.
    pub options: Vec<String>,
}

impl Dns {
    /// Whether no field is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl AddResult {
    /// The result that another plugin wrote to its stdout.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub fn from_document(stdout: &[u8]) -> Result<Self, String> {
        let document: Value = serde_json::from_slice(stdout).map_err(|error| error.to_string())?;
        Self::from_value(&document)
    }

    pub(super) fn from_value(document: &Value) -> Result<Self, String> {
        // serde would accept a list as a struct, field by field.
        if !document.is_object() {
            return Err("is not a JSON object".to_owned());
        }
        let result =
            Self::deserialize(without_blanks(document)).map_err(|error| error.to_string())?;
        result.check_indices()?;
        Ok(result)
    }

    /// Checks that every address names an interface of the result.
    fn check_indices(&self) -> Result<(), String> {
        let outside = |ip: &&IpConfig| ip.interface.is_some_and(|i| i >= self.interfaces.len());
        match self.ips.iter().find(outside) {
            // A delegated IPAM plugin's result has no interfaces at all.
            Some(ip) if !self.interfaces.is_empty() => Err(format!(
                "address {} is on interface {}, but there are {}",
                ip.address,
                ip.interface.unwrap_or_default(),
                self.interfaces.len()
            )),
            _ => Ok(()),
        }
    }

    /// The document with the fields of `version`.
    pub fn document(&self, version: CniVersion) -> Value {
        let shaped = if version < CniVersion::V1_1_0 {
            self.without_news_of_1_1()
        } else {
            self.clone()
        };
        let mut document = without_blanks(&json!(shaped));
        document["cniVersion"] = version.as_str().into();
        if version < CniVersion::V1_0_0 {
            let ips = document.get_mut("ips").and_then(Value::as_array_mut);
            for (ip, shape) in self.ips.iter().zip(ips.into_iter().flatten()) {
                shape["version"] = if ip.address.is_ipv4() { "4" } else { "6" }.into();
            }
        }
        document
    }

    fn without_news_of_1_1(&self) -> Self {
        let interfaces = self.interfaces.iter().map(|interface| Interface {
            name: interface.name.clone(),
            mac: interface.mac.clone(),
            sandbox: interface.sandbox.clone(),
            ..Interface::default()
        });
        let routes = self.routes.iter().map(|route| Route {
            gw: route.gw,
            ..Route::to(route.dst)
        });
        Self {
            interfaces: interfaces.collect(),
            ips: self.ips.clone(),
            routes: routes.collect(),
            dns: self.dns.clone(),
        }
    }
}

/// The value without nulls and what is empty in its objects: other plugins write these for
/// "none".
fn without_blanks(value: &Value) -> Value {
    let blanks = [json!(null), json!(""), json!([]), json!({})];
    match value {
        Value::Object(keys) => keys
            .iter()
            .map(|(key, value)| (key.clone(), without_blanks(value)))
            .filter(|(_, value)| !blanks.contains(value))
            .collect(),
        Value::Array(items) => items.iter().map(without_blanks).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> AddResult {
        AddResult {
            interfaces: vec![
                Interface {
                    name: "tw0".to_owned(),
                    mac: Some("02:00:00:00:00:01".to_owned()),
                    mtu: Some(1450),
                    ..Interface::default()
                },
                Interface {
                    name: "eth0".to_owned(),
                    mac: Some("02:00:00:00:00:02".to_owned()),
                    mtu: Some(1450),
                    sandbox: Some("/run/netns/a".to_owned()),
                    ..Interface::default()
                },
            ],
            ips: vec![
                IpConfig {
                    address: "10.244.1.5/32".parse().unwrap(),
                    gateway: Some("169.254.1.1".parse().unwrap()),
                    interface: Some(1),
                },
                IpConfig {
                    address: "fd00::5/128".parse().unwrap(),
                    gateway: Some("fe80::1".parse().unwrap()),
                    interface: Some(1),
                },
            ],
            routes: vec![Route {
                mtu: Some(1400),
                gw: Some("169.254.1.1".parse().unwrap()),
                ..Route::to("0.0.0.0/0".parse().unwrap())
            }],
            dns: Dns::default(),
        }
    }

    #[test]
    fn each_version_has_its_shape() {
        let shape = |version| full().document(version);
        assert_eq!(
            shape(CniVersion::V0_3_1),
            json!({
                "cniVersion": "0.3.1",
                "interfaces": [
                    {"name": "tw0", "mac": "02:00:00:00:00:01"},
                    {"name": "eth0", "mac": "02:00:00:00:00:02", "sandbox": "/run/netns/a"},
                ],
                "ips": [
                    {"version": "4", "address": "10.244.1.5/32", "gateway": "169.254.1.1", "interface": 1},
                    {"version": "6", "address": "fd00::5/128", "gateway": "fe80::1", "interface": 1},
                ],
                "routes": [{"dst": "0.0.0.0/0", "gw": "169.254.1.1"}],
            })
        );
        let old = shape(CniVersion::V0_4_0);
        assert_eq!(old["ips"][0]["version"], "4");
        let one = shape(CniVersion::V1_0_0);
        assert_eq!(one["ips"][0].get("version"), None);
        assert_eq!(one["interfaces"][0].get("mtu"), None);
        let latest = shape(CniVersion::V1_1_0);
        assert_eq!(latest["interfaces"][0]["mtu"], 1450);
        assert_eq!(latest["routes"][0]["mtu"], 1400);
        assert_eq!(latest.get("dns"), None);
    }

    #[test]
    fn every_version_reads_back() {
        for version in CniVersion::ALL {
            let bytes = serde_json::to_vec(&full().document(version)).unwrap();
            let expected = if version < CniVersion::V1_1_0 {
                full().without_news_of_1_1()
            } else {
                full()
            };
            assert_eq!(AddResult::from_document(&bytes), Ok(expected));
        }
    }

    #[test]
    fn blanks_of_other_plugins_are_nothing() {
        let document = br#"{"cniVersion":"0.4.0","interfaces":null,"routes":null,"dns":{},
            "ips":[{"version":"4","address":"10.0.0.2/24","gateway":""}]}"#;
        let result = AddResult::from_document(document).unwrap();
        assert_eq!(result.ips[0].gateway, None);
        assert_eq!(result.interfaces, []);
    }

    #[test]
    fn an_address_on_no_interface_is_refused() {
        let document =
            br#"{"interfaces":[{"name":"a"}],"ips":[{"address":"10.0.0.2/24","interface":1}]}"#;
        assert!(
            AddResult::from_document(document)
                .unwrap_err()
                .contains("10.0.0.2/24")
        );
        assert!(AddResult::from_document(b"[]").is_err());
        assert!(AddResult::from_document(b"").is_err());
    }
}
