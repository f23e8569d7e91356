//! The keys of the network config that tweed defines.
//!
//! Read in two steps: [`Place`] is all that DEL and GC need, [`Settings`] what an
//! ADD needs besides. A key that is required is not optional in either of them.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use serde_json::Value;
use tweed_cni::{CniError, Config};
use tweed_core::agent_socket::message::MAX_WAIT;
use tweed_core::mac::Mac;
use tweed_core::mtu::{KERNEL_MAX, KERNEL_MIN, VXLAN_OVER_IPV4, VXLAN_OVER_IPV6};
use tweed_ipam::plugin::{open_store, run_dir};
use tweed_ipam::store::Store;

/// Name of the built-in IPAM plugin.
pub const OWN_IPAM: &str = "tweed-ipam";
/// Keys of the network config besides those of the protocol.
pub const KEYS: [&str; 6] = [
    "defaultRoute",
    "hostSource",
    "mtu",
    "policyWait",
    "readyFile",
    "runDir",
];

/// Who gives addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ipam {
    /// The store in `tweed-ipam`, within this process.
    BuiltIn,
    /// Another plugin, by its file name.
    Delegated(String),
}

/// When a pod gets a default route: keys `defaultRoute` and `ipam.routes`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DefaultRoute {
    /// Nothing is said: each family for which IPAM requests no route gets one,
    /// unless the pod has another network already, whose it would take over.
    #[default]
    Implied,
    /// `"defaultRoute": true`: each family gets one, whatever else is in the pod.
    Required,
    /// `"routes": []` in `ipam`: those that IPAM requests, and no others.
    AsRequested,
    /// `"defaultRoute": false`: none, whatever IPAM requests.
    Never,
}

/// Where the state of a network is.
#[derive(Debug, Clone)]
pub struct Place {
    /// `runDir`: folder of all state of plugin and agent.
    pub run_dir: PathBuf,
    /// The records of the network's attachments and, with the built-in IPAM,
    /// its addresses.
    pub store: Store,
    /// Who gives addresses.
    pub ipam: Ipam,
}

impl Place {
    /// Reads `runDir`, `ipam.type` and `ipam.dataDir`.
    ///
    /// # Errors
    /// Code 7, naming the key.
    pub fn read(config: &Config) -> Result<Self, CniError> {
        let run_dir = run_dir(config)?;
        let ipam = config.ipam_type()?;
        // With a delegated plugin `ipam.dataDir` is that plugin's.
        let (ipam, store) = if ipam == OWN_IPAM {
            (Ipam::BuiltIn, open_store(config)?)
        } else {
            let store = Store::open(&run_dir.join("ipam"), &config.network);
            (Ipam::Delegated(ipam), store)
        };
        Ok(Self {
            run_dir,
            store,
            ipam,
        })
    }
}

/// What an ADD needs besides.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the network's state is.
    pub place: Place,
    /// MTU of both ends, in bytes.
    pub mtu: u32,
    /// Source addresses of the host's packets to its pods, one per family.
    pub host_source: Vec<IpAddr>,
    /// When a pod gets a default route.
    pub default_route: DefaultRoute,
    /// How long an ADD waits at most until the network policies are enforced for its pod.
    pub policy_wait: Duration,
    /// A file that must exist before an ADD is served.
    pub ready_file: Option<PathBuf>,
    /// The MAC that is requested for the pod's end in the config.
    pub mac: Option<Mac>,
}

impl Settings {
    /// Reads all keys.
    ///
    /// # Errors
    /// Code 7, naming the key that is missing or wrong.
    pub fn read(config: &Config) -> Result<Self, CniError> {
        Ok(Self {
            place: Place::read(config)?,
            mtu: mtu(config)?,
            host_source: host_source(config)?,
            default_route: default_route(config)?,
            policy_wait: policy_wait(config)?,
            ready_file: config.path("readyFile")?,
            mac: config.requested_mac()?,
        })
    }
}

/// Keys that this version does not know. They cause a warning and no error, as
/// versions differ during an upgrade.
pub fn unknown_keys(config: &Config) -> impl Iterator<Item = &str> {
    config.unknown_keys(&KEYS)
}

fn mtu(config: &Config) -> Result<u32, CniError> {
    let Some(value) = config.key("mtu") else {
        return Err(CniError::config("mtu is missing").details(format!(
            "write the MTU of pods in bytes, that of the underlay less {VXLAN_OVER_IPV4} for VXLAN \
             over IPv4, {VXLAN_OVER_IPV6} over IPv6: for example \"mtu\": 1450"
        )));
    };
    match value.as_u64().map(u32::try_from) {
        Some(Ok(mtu @ KERNEL_MIN..=KERNEL_MAX)) => Ok(mtu),
        _ => Err(CniError::config(format!(
            "mtu is {value}: it must be a number from {KERNEL_MIN} to {KERNEL_MAX}"
        ))),
    }
}

fn host_source(config: &Config) -> Result<Vec<IpAddr>, CniError> {
    let Some(value) = config.key("hostSource") else {
        return Ok(Vec::new());
    };
    let is_valid = |sources: &Vec<IpAddr>| {
        let ipv6 = sources.iter().filter(|source| source.is_ipv6()).count();
        ipv6 <= 1 && sources.len() - ipv6 <= 1
    };
    let sources = config.typed("hostSource").ok().flatten();
    sources.filter(is_valid).ok_or_else(|| {
        CniError::config(format!(
            "hostSource is {value}: it must be a list of at most one IPv4 and one IPv6 address"
        ))
    })
}

fn default_route(config: &Config) -> Result<DefaultRoute, CniError> {
    let names_none = |routes: &Value| routes.as_array().is_some_and(Vec::is_empty);
    Ok(match config.typed("defaultRoute")? {
        Some(true) => DefaultRoute::Required,
        Some(false) => DefaultRoute::Never,
        None if config.ipam()?.get("routes").is_some_and(names_none) => DefaultRoute::AsRequested,
        None => DefaultRoute::Implied,
    })
}

fn policy_wait(config: &Config) -> Result<Duration, CniError> {
    let Some(value) = config.key("policyWait") else {
        return Ok(Duration::ZERO);
    };
    let wait = value.as_u64().map(Duration::from_millis);
    wait.filter(|wait| *wait <= MAX_WAIT).ok_or_else(|| {
        let most = MAX_WAIT.as_millis();
        CniError::config(format!(
            "policyWait is {value}: it must be a number of milliseconds from 0 to {most}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use serde_json::json;
    use tweed_cni::CniVersion;

    fn config(mut keys: Value) -> Config {
        keys["cniVersion"] = "1.1.0".into();
        keys["name"] = "tweed".into();
        let mut spoken = CniVersion::LATEST;
        Config::parse(keys.to_string().into_bytes(), &mut spoken).unwrap()
    }

    fn own(keys: &[(&str, Value)]) -> Config {
        let mut all = json!({"mtu": 1450, "ipam": {"type": "tweed-ipam"}});
        for (key, value) in keys {
            all[*key] = value.clone();
        }
        config(all)
    }

    #[test]
    fn defaults_are_the_designs() {
        let settings = Settings::read(&own(&[])).unwrap();
        assert_eq!(settings.place.run_dir, PathBuf::from("/run/tweed"));
        assert_eq!(
            settings.place.store.folder(),
            Path::new("/run/tweed/ipam/tweed")
        );
        assert_eq!(settings.ready_file, None);
        assert_eq!(settings.policy_wait, Duration::ZERO);
        assert_eq!(settings.host_source, [] as [IpAddr; 0]);
    }

    #[test]
    fn the_state_can_be_elsewhere() {
        let place = |keys: &[(&str, Value)]| Place::read(&own(keys)).unwrap();
        let moved = place(&[("runDir", json!("/run/a"))]);
        assert_eq!(moved.store.folder(), Path::new("/run/a/ipam/tweed"));
        let data = place(&[("ipam", json!({"type": "tweed-ipam", "dataDir": "/var/x"}))]);
        assert_eq!(data.store.folder(), Path::new("/var/x/tweed"));
    }

    #[test]
    fn the_data_dir_of_a_delegated_plugin_is_its_own() {
        let config = own(&[("ipam", json!({"type": "host-local", "dataDir": "/var/x"}))]);
        let place = Place::read(&config).unwrap();
        assert_eq!(place.store.folder(), Path::new("/run/tweed/ipam/tweed"));
        assert_eq!(place.ipam, Ipam::Delegated("host-local".to_owned()));
    }

    #[test]
    fn what_is_missing_or_wrong_is_code_7_and_named() {
        for (key, value) in [
            ("mtu", Value::Null),
            ("mtu", json!("1450")),
            ("mtu", json!(0)),
            ("mtu", json!(67)),
            ("mtu", json!(65536)),
            ("mtu", json!(-1)),
            ("mtu", json!(1450.5)),
            ("hostSource", json!("192.0.2.7")),
            ("hostSource", json!(["192.0.2.7/24"])),
            ("hostSource", json!(["192.0.2.7", "192.0.2.8"])),
            ("defaultRoute", json!("no")),
            ("policyWait", json!("2s")),
            ("policyWait", json!(-1)),
            ("policyWait", json!(60_001)),
            ("readyFile", json!("ready")),
            ("readyFile", json!(true)),
            ("runDir", json!("run")),
            ("runDir", json!("")),
            ("ipam", Value::Null),
        ] {
            let error = Settings::read(&own(&[(key, value.clone())])).unwrap_err();
            assert_eq!(error.code, 7, "{key} {value}");
            assert!(error.msg.contains(key), "{error}");
        }
    }

    #[test]
    fn both_families_may_have_a_source() {
        let config = own(&[("hostSource", json!(["192.0.2.7", "2001:db8::7"]))]);
        assert_eq!(Settings::read(&config).unwrap().host_source.len(), 2);
    }

    #[test]
    fn a_default_route_is_implied_unless_a_key_says_otherwise() {
        let of = |keys: &[(&str, Value)]| Settings::read(&own(keys)).unwrap().default_route;
        let routes = |routes: Value| ("ipam", json!({"type": "tweed-ipam", "routes": routes}));
        assert_eq!(of(&[]), DefaultRoute::Implied);
        assert_eq!(of(&[routes(Value::Null)]), DefaultRoute::Implied);
        assert_eq!(
            of(&[routes(json!([{"dst": "10.0.0.0/8"}]))]),
            DefaultRoute::Implied
        );
        assert_eq!(of(&[routes(json!([]))]), DefaultRoute::AsRequested);
        assert_eq!(of(&[("defaultRoute", false.into())]), DefaultRoute::Never);
        assert_eq!(
            of(&[("defaultRoute", true.into()), routes(json!([]))]),
            DefaultRoute::Required
        );
    }

    #[test]
    fn near_misses_are_unknown() {
        let config = own(&[("mtuu", json!(1)), ("ipMasq", json!(true))]);
        assert_eq!(
            unknown_keys(&config).collect::<Vec<_>>(),
            ["ipMasq", "mtuu"]
        );
    }
}
