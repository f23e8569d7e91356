//! The `ipam` object of a network config, with the keys of host-local.
//!
//! A config for host-local is accepted unchanged and has the same meaning. The
//! reference is <https://www.cni.dev/plugins/current/ipam/host-local/> and, where
//! that says nothing, host-local 1.9 itself: an empty string is a missing one, the
//! old top-level range comes before `ranges`, and `ipRanges` of the runtime before
//! both. Every error names the key, by its path, and its value.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnetwork::IpNetwork;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{InvalidRange, Range, RangeSet, RangeSets};
use tweed_cni::Route;

/// Why a config was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A key that must be there is not.
    #[error("{key} is missing: {cure}")]
    Missing {
        /// The key's path.
        key: String,
        /// What to write.
        cure: &'static str,
    },
    /// A key has a value that it cannot have.
    #[error("{key} is {value}: {why}")]
    Value {
        /// The key's path.
        key: String,
        /// The value, as JSON.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// A range, or a set of them, is not valid.
    #[error("{key}: {error}")]
    Range {
        /// The path of the range or the set.
        key: String,
        /// What is wrong with it.
        error: InvalidRange,
    },
}

const NO_RANGES: &str = r#"write for example "ranges": [[{"subnet": "10.244.1.0/24"}]]"#;
/// Keys of a range; the `ipam` object itself may have them too.
pub const RANGE_KEYS: [&str; 4] = ["subnet", "rangeStart", "rangeEnd", "gateway"];
/// The other keys of the `ipam` object.
pub const OTHER_KEYS: [&str; 6] = ["type", "name", "ranges", "routes", "dataDir", "resolvConf"];

/// What an ADD needs of the `ipam` object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpamConfig {
    /// Where addresses come from.
    pub ranges: RangeSets,
    /// Routes for the container, for the result.
    pub routes: Vec<Route>,
    /// A file like resolv.conf(5) whose content is for the result.
    pub resolv_conf: Option<PathBuf>,
    /// Paths of keys that are unknown and have no effect.
    pub ignored: Vec<String>,
}

impl IpamConfig {
    /// Reads the `ipam` object, and `ipRanges` of `runtimeConfig` where the
    /// runtime has given it.
    ///
    /// # Errors
    /// [`ConfigError`] with the path and value of the first key that is wrong.
    pub fn parse(
        ipam: &Map<String, Value>,
        ip_ranges: Option<&Value>,
    ) -> Result<Self, ConfigError> {
        let mut ignored = Vec::new();
        let mut sets = Vec::new();
        if let Some(value) = ip_ranges {
            read_sets(value, "runtimeConfig.ipRanges", &mut sets, &mut ignored)?;
        }
        if text(ipam, "ipam", "subnet")?.is_some() {
            sets.push(Parsed::new("ipam", vec![read_range(ipam, "ipam")?])?);
        } else {
            let useless = RANGE_KEYS.iter().filter(|key| ipam.contains_key(**key));
            ignored.extend(useless.map(|key| format!("ipam.{key} (without ipam.subnet)")));
        }
        if let Some(value) = ipam.get("ranges") {
            read_sets(value, "ipam.ranges", &mut sets, &mut ignored)?;
        }
        if sets.is_empty() {
            return Err(ConfigError::Missing {
                key: "ipam.ranges".to_owned(),
                cure: NO_RANGES,
            });
        }
        ignored.extend(unknown(ipam, "ipam", &OTHER_KEYS));
        let keys: Vec<String> = sets.iter().map(|set| set.key.clone()).collect();
        let sets = sets.into_iter().map(|set| set.set).collect();
        Ok(Self {
            ranges: RangeSets::new(sets).map_err(|error| ConfigError::Range {
                key: keys.join(" and "),
                error,
            })?,
            routes: read_routes(ipam)?,
            resolv_conf: text(ipam, "ipam", "resolvConf")?.map(PathBuf::from),
            ignored,
        })
    }
}

/// The folder of the store: `ipam.dataDir`, by default `ipam` in the run folder.
/// A DEL needs nothing else of the object.
///
/// # Errors
/// [`ConfigError::Value`] when the key is no absolute path.
pub fn data_dir(ipam: &Map<String, Value>, run_dir: &Path) -> Result<PathBuf, ConfigError> {
    match text(ipam, "ipam", "dataDir")? {
        None => Ok(run_dir.join("ipam")),
        Some(path) if path.starts_with('/') => Ok(PathBuf::from(path)),
        Some(path) => Err(ConfigError::Value {
            key: "ipam.dataDir".to_owned(),
            value: format!("{path:?}"),
            why: "it must be an absolute path, as callers have different current folders"
                .to_owned(),
        }),
    }
}

/// A range set and the path of its key.
struct Parsed {
    key: String,
    set: RangeSet,
}

impl Parsed {
    fn new(key: impl Into<String>, ranges: Vec<Range>) -> Result<Self, ConfigError> {
        let key = key.into();
        match RangeSet::new(ranges) {
            Ok(set) => Ok(Self { key, set }),
            Err(error) => Err(ConfigError::Range { key, error }),
        }
    }
}

fn read_sets(
    value: &Value,
    key: &str,
    sets: &mut Vec<Parsed>,
    ignored: &mut Vec<String>,
) -> Result<(), ConfigError> {
    for (i, set) in list(value, key)?.iter().enumerate() {
        let key = format!("{key}[{i}]");
        let mut ranges = Vec::new();
        for (j, range) in list(set, &key)?.iter().enumerate() {
            let key = format!("{key}[{j}]");
            let Value::Object(range) = range else {
                return Err(wrong(&key, range, "it must be an object with a subnet"));
            };
            ranges.push(read_range(range, &key)?);
            ignored.extend(unknown(range, &key, &[]));
        }
        sets.push(Parsed::new(key, ranges)?);
    }
    Ok(())
}

fn read_range(keys: &Map<String, Value>, path: &str) -> Result<Range, ConfigError> {
    let Some(subnet) = text(keys, path, "subnet")? else {
        return Err(ConfigError::Missing {
            key: format!("{path}.subnet"),
            cure: r#"write for example "subnet": "10.244.1.0/24""#,
        });
    };
    let subnet = parse_subnet(subnet).ok_or_else(|| ConfigError::Value {
        key: format!("{path}.subnet"),
        value: format!("{subnet:?}"),
        why: "it must be an address, '/' and a prefix length".to_owned(),
    })?;
    let range = Range::new(
        subnet,
        address(keys, path, "rangeStart")?,
        address(keys, path, "rangeEnd")?,
        address(keys, path, "gateway")?,
    );
    range.map_err(|error| ConfigError::Range {
        key: path.to_owned(),
        error,
    })
}

fn read_routes(ipam: &Map<String, Value>) -> Result<Vec<Route>, ConfigError> {
    let Some(value) = ipam.get("routes") else {
        return Ok(Vec::new());
    };
    let read = |(i, route): (usize, &Value)| {
        let mut filled = route.clone();
        if let Value::Object(keys) = &mut filled {
            keys.retain(|_, value| value.as_str() != Some(""));
        }
        Route::deserialize(filled)
            .map_err(|error| wrong(&format!("ipam.routes[{i}]"), route, error.to_string()))
    };
    let routes = list(value, "ipam.routes")?.iter().enumerate();
    routes.map(read).collect()
}

fn parse_subnet(text: &str) -> Option<IpNetwork> {
    let (address, prefix) = text.split_once('/')?;
    IpNetwork::new(address.parse().ok()?, prefix.parse().ok()?).ok()
}

fn address(
    keys: &Map<String, Value>,
    path: &str,
    key: &str,
) -> Result<Option<IpAddr>, ConfigError> {
    let Some(text) = text(keys, path, key)? else {
        return Ok(None);
    };
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(Some(address.to_canonical())),
        Err(_) => Err(ConfigError::Value {
            key: format!("{path}.{key}"),
            value: format!("{text:?}"),
            why: "it must be an IP address without a prefix length".to_owned(),
        }),
    }
}

/// A string; none when the key is missing, null or empty.
fn text<'a>(
    keys: &'a Map<String, Value>,
    path: &str,
    key: &str,
) -> Result<Option<&'a str>, ConfigError> {
    match keys.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong(
            &format!("{path}.{key}"),
            other,
            "it must be a string",
        )),
    }
}

/// A list; null counts as an empty one.
fn list<'a>(value: &'a Value, key: &str) -> Result<&'a [Value], ConfigError> {
    match value {
        Value::Null => Ok(&[]),
        Value::Array(list) => Ok(list),
        other => Err(wrong(key, other, "it must be a list")),
    }
}

fn unknown<'a>(
    keys: &'a Map<String, Value>,
    path: &'a str,
    known: &'a [&str],
) -> impl Iterator<Item = String> + 'a {
    let is_known = move |key: &str| RANGE_KEYS.contains(&key) || known.contains(&key);
    keys.keys()
        .filter(move |key| !is_known(key))
        .map(move |key| format!("{path}.{key}"))
}

fn wrong(key: &str, value: &Value, why: impl Into<String>) -> ConfigError {
    ConfigError::Value {
        key: key.to_owned(),
        value: value.to_string(),
        why: why.into(),
    }
}
