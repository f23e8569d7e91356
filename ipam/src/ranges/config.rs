//! The `ipam` object of a network config, with the keys of host-local.
//!
//! A config for host-local is accepted unchanged and has the same meaning. The
//! reference is <https://www.cni.dev/plugins/current/ipam/host-local/> and, where
//! that says nothing, host-local 1.9 itself: an empty string is a missing one, the
//! old top-level range comes before `ranges`, and `ipRanges` of the runtime before
//! both. Every error names the key, by its path, and its value.

use std::path::PathBuf;
use std::{fmt, net::IpAddr};

use ipnetwork::IpNetwork;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Range, RangeSet, RangeSets};
use tweed_cni::Route;

const NO_RANGES: &str =
    r#"ipam.ranges is missing: write for example "ranges": [[{"subnet": "10.244.1.0/24"}]]"#;
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
    /// A text with the path and value of the first key that is wrong.
    pub fn parse(ipam: &Map<String, Value>, ip_ranges: Option<&Value>) -> Result<Self, String> {
        let mut ignored = Vec::new();
        let mut sets = Vec::new();
        if let Some(value) = ip_ranges {
            read_sets(value, "runtimeConfig.ipRanges", &mut sets, &mut ignored)?;
        }
        if text(ipam, "ipam", "subnet")?.is_some() {
            sets.push(parsed("ipam".to_owned(), vec![read_range(ipam, "ipam")?])?);
        } else {
            let useless = RANGE_KEYS.iter().filter(|key| ipam.contains_key(**key));
            ignored.extend(useless.map(|key| format!("ipam.{key} (without ipam.subnet)")));
        }
        if let Some(value) = ipam.get("ranges") {
            read_sets(value, "ipam.ranges", &mut sets, &mut ignored)?;
        }
        if sets.is_empty() {
            return Err(NO_RANGES.to_owned());
        }
        ignored.extend(unknown(ipam, "ipam", &OTHER_KEYS));
        let (keys, sets): (Vec<String>, Vec<RangeSet>) = sets.into_iter().unzip();
        Ok(Self {
            ranges: RangeSets::new(sets)
                .map_err(|error| format!("{}: {error}", keys.join(" and ")))?,
            routes: read_routes(ipam)?,
            resolv_conf: text(ipam, "ipam", "resolvConf")?.map(PathBuf::from),
            ignored,
        })
    }
}

/// Whether the `ipam` object has ranges of its own, or something in their place.
pub(crate) fn names_ranges(ipam: &Map<String, Value>) -> bool {
    let is_none = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    let mut keys = ["subnet", "ranges"].into_iter();
    keys.any(|key| ipam.get(key).is_some_and(|value| !is_none(value)))
}

/// The folder of the store, `ipam.dataDir`, if it is named. A DEL needs nothing else of
/// the object.
///
/// # Errors
/// A text when the key is no absolute path.
pub fn data_dir(ipam: &Map<String, Value>) -> Result<Option<PathBuf>, String> {
    match text(ipam, "ipam", "dataDir")? {
        None => Ok(None),
        Some(path) if path.starts_with('/') => Ok(Some(PathBuf::from(path))),
        Some(path) => Err(format!(
            "ipam.dataDir is {path:?}: it must be an absolute path, as callers have different \
             current folders"
        )),
    }
}

/// A range set with the path of its key.
type Parsed = (String, RangeSet);

fn parsed(key: String, ranges: Vec<Range>) -> Result<Parsed, String> {
    match RangeSet::new(ranges) {
        Ok(set) => Ok((key, set)),
        Err(error) => Err(format!("{key}: {error}")),
    }
}

fn read_sets(
    value: &Value,
    key: &str,
    sets: &mut Vec<Parsed>,
    ignored: &mut Vec<String>,
) -> Result<(), String> {
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
        sets.push(parsed(key, ranges)?);
    }
    Ok(())
}

fn read_range(keys: &Map<String, Value>, path: &str) -> Result<Range, String> {
    let Some(subnet) = text(keys, path, "subnet")? else {
        return Err(format!(
            r#"{path}.subnet is missing: write for example "subnet": "10.244.1.0/24""#
        ));
    };
    let subnet = parse_subnet(subnet).ok_or_else(|| {
        format!("{path}.subnet is {subnet:?}: it must be an address, '/' and a prefix length")
    })?;
    let address = |key| address(keys, path, key);
    Range::new(
        subnet,
        address("rangeStart")?,
        address("rangeEnd")?,
        address("gateway")?,
    )
    .map_err(|error| format!("{path}: {error}"))
}

fn read_routes(ipam: &Map<String, Value>) -> Result<Vec<Route>, String> {
    let Some(value) = ipam.get("routes") else {
        return Ok(Vec::new());
    };
    let read = |(i, route): (usize, &Value)| {
        let mut filled = route.clone();
        if let Value::Object(keys) = &mut filled {
            keys.retain(|_, value| value.as_str() != Some(""));
        }
        Route::deserialize(filled)
            .map_err(|error| wrong(&format!("ipam.routes[{i}]"), route, error))
    };
    let routes = list(value, "ipam.routes")?.iter().enumerate();
    routes.map(read).collect()
}

fn parse_subnet(text: &str) -> Option<IpNetwork> {
    let (address, prefix) = text.split_once('/')?;
    IpNetwork::new(address.parse().ok()?, prefix.parse().ok()?).ok()
}

fn address(keys: &Map<String, Value>, path: &str, key: &str) -> Result<Option<IpAddr>, String> {
    let Some(text) = text(keys, path, key)? else {
        return Ok(None);
    };
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(Some(address.to_canonical())),
        Err(_) => Err(format!(
            "{path}.{key} is {text:?}: it must be an IP address without a prefix length"
        )),
    }
}

/// A string; none when the key is missing, null or empty.
fn text<'a>(
    keys: &'a Map<String, Value>,
    path: &str,
    key: &str,
) -> Result<Option<&'a str>, String> {
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
fn list<'a>(value: &'a Value, key: &str) -> Result<&'a [Value], String> {
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

fn wrong(key: &str, value: &Value, why: impl fmt::Display) -> String {
    format!("{key} is {value}: {why}")
}
