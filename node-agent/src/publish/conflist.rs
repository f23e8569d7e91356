//! The content of the CNI config: a pure function.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tweed_cni::CniVersion;
use tweed_core::attachment::NETWORK_NAME;

use super::NodeNetwork;

/// The newest value of `cniVersion`: runtimes before CNI 1.1 do not know
/// `cniVersions`, and refuse a config whose `cniVersion` they do not know.
const NEWEST_FOR_OLD_RUNTIMES: CniVersion = CniVersion::V1_0_0;

/// What the config is made from.
#[derive(Debug)]
pub struct Conflist<'a> {
    /// MTU, sources and ranges.
    pub network: &'a NodeNetwork,
    /// While this file does not exist, ADD answers "try again later".
    pub ready_file: &'a Path,
    /// How long an ADD waits until its pod is enforced; none if it is not to wait.
    pub policy_wait: Option<Duration>,
    /// The run folder, if it is not the plugin's default.
    pub run_dir: Option<&'a PathBuf>,
    /// The plugins that are there, `tweed` among them, and the CNI versions that
    /// each of them supports.
    pub answers: &'a [(&'static str, BTreeSet<CniVersion>)],
    /// What others have appended to the chain of the config that is there, and can be run.
    pub appended: &'a [&'a Value],
}

impl Conflist<'_> {
    /// The content of the file.
    pub fn file(&self) -> File<'_> {
        let (chained, versions) = self.chain();
        let at_most = versions.iter().rfind(|v| **v <= NEWEST_FOR_OLD_RUNTIMES);
        let base = at_most.copied().unwrap_or(NEWEST_FOR_OLD_RUNTIMES);
        let listed = versions.iter().filter(|version| **version >= base);
        let appended = self.appended.iter().copied().map(Plugin::Appended);
        File {
            cni_version: base.as_str(),
            cni_versions: listed.map(|version| version.as_str()).collect(),
            name: NETWORK_NAME,
            plugins: std::iter::once(self.tweed())
                .chain(chained.into_iter().map(Plugin::chained))
                .chain(appended)
                .collect(),
        }
    }

    /// The plugins to chain after `tweed`, and the versions that all plugins of
    /// the chain support. A plugin that shares no version with those before it is
    /// left out.
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

    fn tweed(&self) -> Plugin<'_> {
        Plugin::Tweed {
            kind: super::TWEED,
            mtu: self.network.mtu,
            host_source: &self.network.host_sources,
            policy_wait: self.policy_wait.map(|wait| wait.as_millis()),
            ready_file: self.ready_file,
            run_dir: self.run_dir,
            capabilities: enabled(&["ips", "mac"]),
            ipam: Ipam {
                kind: "tweed-ipam",
                ranges: self.range_sets(),
            },
        }
    }

    /// One set for each family: a pod gets an address of each set.
    fn range_sets(&self) -> Vec<Vec<Range>> {
        let of_family = |is: fn(&IpNetwork) -> bool| -> Vec<Range> {
            let subnets = self.network.pod_cidrs.iter().filter(|cidr| is(cidr));
            subnets.map(|subnet| Range { subnet: *subnet }).collect()
        };
        let sets = [IpNetwork::is_ipv4, IpNetwork::is_ipv6].map(of_family);
        sets.into_iter().filter(|set| !set.is_empty()).collect()
    }
}

/// The file; its keys are in the order in which people read them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct File<'a> {
    cni_version: &'static str,
    cni_versions: Vec<&'static str>,
    name: &'static str,
    plugins: Vec<Plugin<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Plugin<'a> {
    #[serde(rename_all = "camelCase")]
    Tweed {
        #[serde(rename = "type")]
        kind: &'static str,
        mtu: u32,
        #[serde(skip_serializing_if = "<[IpAddr]>::is_empty")]
        host_source: &'a [IpAddr],
        /// In milliseconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        policy_wait: Option<u128>,
        ready_file: &'a Path,
        #[serde(skip_serializing_if = "Option::is_none")]
        run_dir: Option<&'a PathBuf>,
        /// A runtime passes on what a pod requests only where it is declared here.
        capabilities: BTreeMap<&'static str, bool>,
        ipam: Ipam,
    },
    Chained {
        #[serde(rename = "type")]
        kind: &'static str,
        capabilities: BTreeMap<&'static str, bool>,
    },
    Appended(&'a Value),
}

#[derive(Debug, Serialize)]
struct Ipam {
    #[serde(rename = "type")]
    kind: &'static str,
    ranges: Vec<Vec<Range>>,
}

#[derive(Debug, Serialize)]
struct Range {
    subnet: IpNetwork,
}

impl Plugin<'_> {
    fn chained(kind: &'static str) -> Self {
        let capability = match kind {
            "portmap" => "portMappings",
            other => other,
        };
        Self::Chained {
            kind,
            capabilities: enabled(&[capability]),
        }
    }
}

fn enabled(capabilities: &[&'static str]) -> BTreeMap<&'static str, bool> {
    capabilities.iter().map(|name| (*name, true)).collect()
}

/// What a config that is there says of its chain.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Earlier {
    cni_version: String,
    cni_versions: Vec<String>,
    name: String,
    plugins: Vec<Value>,
}

impl Earlier {
    /// The types of the plugins of its chain, with what it says of each.
    fn chain(&self) -> impl Iterator<Item = (&str, &Value)> {
        let plugins = self.plugins.iter();
        plugins.filter_map(|plugin| Some((plugin["type"].as_str()?, plugin)))
    }

    /// What others have appended to a config of tweed's, as service meshes do: the name of
    /// the program, and what the config says of it.
    pub fn appended(&self) -> impl Iterator<Item = (&str, &Value)> {
        let first = self.chain().next().map(|(kind, _)| kind);
        let is_ours = self.name == NETWORK_NAME && first == Some(super::TWEED);
        let is_of_others = |kind: &str| {
            let is_name = !kind.is_empty() && !kind.contains('/') && !kind.starts_with('.');
            is_name && kind != super::TWEED && !super::CHAINED.contains(&kind)
        };
        let chain = self.chain().filter(move |_| is_ours);
        chain.filter(move |(kind, _)| is_of_others(kind))
    }

    /// The CNI versions that a plugin of its chain supports: those of the chain.
    pub fn versions_of(&self, name: &str) -> Option<BTreeSet<CniVersion>> {
        self.chain().find(|(kind, _)| *kind == name)?;
        let versions = self.cni_versions.iter().chain([&self.cni_version]);
        Some(versions.filter_map(|one| CniVersion::find(one)).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn network(pod_cidrs: &[&str]) -> NodeNetwork {
        NodeNetwork {
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

    fn render(network: &NodeNetwork, answers: &[(&'static str, BTreeSet<CniVersion>)]) -> Value {
        let conflist = Conflist {
            network,
            policy_wait: Some(Duration::from_secs(2)),
            ready_file: Path::new("/run/tweed/ready"),
            run_dir: None,
            answers,
            appended: &[],
        };
        serde_json::to_value(conflist.file()).unwrap()
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
                    "policyWait": 2000,
                    "readyFile": "/run/tweed/ready",
                    "capabilities": { "ips": true, "mac": true },
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
            policy_wait: None,
            ready_file: Path::new("/run/lab/alpha/ready"),
            run_dir: Some(&run_dir),
            answers: &[],
            appended: &[],
        };
        let config: Value = serde_json::to_value(conflist.file()).unwrap();
        assert_eq!(config["plugins"][0]["runDir"], "/run/lab/alpha");
        assert_eq!(config["plugins"][0]["readyFile"], "/run/lab/alpha/ready");
        assert_eq!(config["plugins"][0].get("policyWait"), None);
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
