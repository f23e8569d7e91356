//! What the CNI config says: pure.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ipnetwork::IpNetwork;
use serde_json::{Map, Value, json};
use tweed_ipam::protocol::CniVersion;

use super::Network;

/// The network's name, and so that of its folder in the address store.
pub const NETWORK_NAME: &str = "tweed";

/// What `cniVersion` says at most: runtimes before CNI 1.1 know no
/// `cniVersions` and stop at a `cniVersion` that they do not know.
const NEWEST_FOR_OLD_RUNTIMES: CniVersion = CniVersion::V1_0_0;

/// Everything that the config is made from.
#[derive(Debug)]
pub struct Conflist<'a> {
    /// MTU, sources and ranges.
    pub network: &'a Network,
    /// Missing while ADD shall answer "try again later".
    pub ready_file: &'a Path,
    /// Where it is not the plugin's default.
    pub run_dir: Option<&'a PathBuf>,
    /// The plugins that are there, `tweed` among them where it is, and the CNI
    /// versions that each answers to VERSION.
    pub answers: &'a [(&'static str, BTreeSet<CniVersion>)],
}

impl Conflist<'_> {
    /// The config as the file's content.
    #[must_use]
    pub fn render(&self) -> String {
        let (chained, versions) = self.chain();
        let at_most = versions.iter().rfind(|v| **v <= NEWEST_FOR_OLD_RUNTIMES);
        let base = at_most.copied().unwrap_or(NEWEST_FOR_OLD_RUNTIMES);
        let listed = versions.iter().filter(|version| **version >= base);
        let listed: Vec<&str> = listed.map(|version| version.as_str()).collect();
        let mut plugins = vec![self.tweed()];
        plugins.extend(chained.into_iter().map(chained_plugin));
        let conflist = json!({
            "cniVersion": base.as_str(),
            "cniVersions": listed,
            "name": NETWORK_NAME,
            "plugins": plugins,
        });
        format!("{conflist:#}\n")
    }

    /// The plugins to chain after `tweed`, and the versions that all of the
    /// chain know. A plugin that shares no version with those before it is left
    /// out.
    fn chain(&self) -> (Vec<&'static str>, BTreeSet<CniVersion>) {
        let mut versions = BTreeSet::from(CniVersion::ALL);
        let mut chained = Vec::new();
        for (name, answered) in self.answers {
            let common: BTreeSet<CniVersion> = versions.intersection(answered).copied().collect();
            if common.is_empty() {
                continue;
            }
            versions = common;
            if *name != super::TWEED {
                chained.push(*name);
            }
        }
        (chained, versions)
    }

    fn tweed(&self) -> Value {
        let mut plugin = Map::new();
        plugin.insert("type".to_owned(), json!(super::TWEED));
        plugin.insert("mtu".to_owned(), json!(self.network.mtu));
        if !self.network.host_sources.is_empty() {
            plugin.insert("hostSource".to_owned(), json!(self.network.host_sources));
        }
        plugin.insert("readyFile".to_owned(), json!(self.ready_file));
        if let Some(run_dir) = self.run_dir {
            plugin.insert("runDir".to_owned(), json!(run_dir));
        }
        let ipam = json!({ "type": "tweed-ipam", "ranges": self.range_sets() });
        plugin.insert("ipam".to_owned(), ipam);
        Value::Object(plugin)
    }

    /// One set per family: a pod gets an address of each set.
    fn range_sets(&self) -> Vec<Vec<Value>> {
        let subnets = |of_family: fn(&IpNetwork) -> bool| -> Vec<Value> {
            let cidrs = self.network.pod_cidrs.iter();
            cidrs
                .filter(|cidr| of_family(cidr))
                .map(|cidr| json!({ "subnet": cidr }))
                .collect()
        };
        let sets = [subnets(IpNetwork::is_ipv4), subnets(IpNetwork::is_ipv6)];
        sets.into_iter().filter(|set| !set.is_empty()).collect()
    }
}

fn chained_plugin(name: &str) -> Value {
    let capability = match name {
        "portmap" => "portMappings",
        other => other,
    };
    json!({ "type": name, "capabilities": { capability: true } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(pod_cidrs: &[&str]) -> Network {
        Network {
            mtu: 1450,
            host_sources: vec!["192.0.2.7".parse().unwrap()],
            pod_cidrs: pod_cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect(),
        }
    }

    fn answers(given: &[(&'static str, &str)]) -> Vec<(&'static str, BTreeSet<CniVersion>)> {
        let versions = |text: &str| {
            text.split_whitespace()
                .filter_map(CniVersion::find)
                .collect()
        };
        given
            .iter()
            .map(|(name, text)| (*name, versions(text)))
            .collect()
    }

    fn render(network: &Network, answers: &[(&'static str, BTreeSet<CniVersion>)]) -> Value {
        let conflist = Conflist {
            network,
            ready_file: Path::new("/run/tweed/ready"),
            run_dir: None,
            answers,
        };
        serde_json::from_str(&conflist.render()).unwrap()
    }

    const ALL: &str = "0.3.1 0.4.0 1.0.0 1.1.0";

    #[test]
    fn the_config_is_that_of_the_design() {
        let answers = answers(&[("tweed", ALL), ("portmap", "0.1.0 0.3.1 0.4.0 1.0.0 1.1.0")]);
        let expected = json!({
            "cniVersion": "1.0.0",
            "cniVersions": ["1.0.0", "1.1.0"],
            "name": "tweed",
            "plugins": [
                {
                    "type": "tweed",
                    "mtu": 1450,
                    "hostSource": ["192.0.2.7"],
                    "readyFile": "/run/tweed/ready",
                    "ipam": { "type": "tweed-ipam", "ranges": [[{ "subnet": "10.244.1.0/24" }]] },
                },
                { "type": "portmap", "capabilities": { "portMappings": true } },
            ],
        });
        assert_eq!(render(&network(&["10.244.1.0/24"]), &answers), expected);
    }

    #[test]
    fn two_families_are_two_range_sets() {
        let config = render(
            &network(&["fd00:1::/64", "10.244.1.0/24"]),
            &answers(&[("tweed", ALL)]),
        );
        let expected = json!([[{ "subnet": "10.244.1.0/24" }], [{ "subnet": "fd00:1::/64" }]]);
        assert_eq!(config["plugins"][0]["ipam"]["ranges"], expected);
    }

    #[test]
    fn another_run_dir_is_passed_on() {
        let network = network(&["10.244.1.0/24"]);
        let run_dir = PathBuf::from("/run/lab/alpha");
        let conflist = Conflist {
            network: &network,
            ready_file: Path::new("/run/lab/alpha/ready"),
            run_dir: Some(&run_dir),
            answers: &[],
        };
        let config: Value = serde_json::from_str(&conflist.render()).unwrap();
        assert_eq!(config["plugins"][0]["runDir"], "/run/lab/alpha");
        assert_eq!(config["plugins"][0]["readyFile"], "/run/lab/alpha/ready");
    }

    macro_rules! version_tests {
        ($($name:ident: $answers:expr => $base:literal, $listed:expr, $chain:expr;)*) => {$(
            #[test]
            fn $name() {
                let config = render(&network(&["10.244.1.0/24"]), &answers(&$answers));
                assert_eq!(config["cniVersion"], $base);
                assert_eq!(config["cniVersions"], json!($listed));
                let plugins = config["plugins"].as_array().unwrap();
                let types: Vec<&str> = plugins.iter().map(|p| p["type"].as_str().unwrap()).collect();
                assert_eq!(types, $chain);
            }
        )*};
    }
    version_tests! {
        without_any_answer_all_is_offered:
            [] => "1.0.0", ["1.0.0", "1.1.0"], ["tweed"];
        a_plugin_before_1_1_takes_1_1_away:
            [("tweed", ALL), ("portmap", "0.3.1 0.4.0 1.0.0")] => "1.0.0", ["1.0.0"], ["tweed", "portmap"];
        a_plugin_before_1_0_lowers_the_base:
            [("tweed", ALL), ("portmap", "0.3.1 0.4.0"), ("bandwidth", ALL)] => "0.4.0", ["0.4.0"], ["tweed", "portmap", "bandwidth"];
        a_plugin_with_no_version_of_ours_is_left_out:
            [("tweed", ALL), ("portmap", "0.1.0"), ("bandwidth", ALL)] => "1.0.0", ["1.0.0", "1.1.0"], ["tweed", "bandwidth"];
    }
}
