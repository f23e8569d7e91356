//! Unknown keys of a network config, and the known keys that were probably meant.
//!
//! A plugin ignores unknown keys, as versions differ during an upgrade, so a
//! misspelt key is not noticed otherwise.

use serde_json::{Map, Value};
use tweed_cni::config::PROTOCOL_KEYS;
use tweed_cni_plugin::config::{KEYS, OWN_IPAM};
use tweed_ipam::ranges::config::{OTHER_KEYS, RANGE_KEYS};

/// Keys of a list of plugins: CNI specification 1.1, "Network configuration".
const LIST_KEYS: [&str; 7] = [
    "cniVersion",
    "cniVersions",
    "disableCheck",
    "disableGC",
    "loadOnlyInlinedPlugins",
    "name",
    "plugins",
];

/// A key that is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unknown {
    /// Its path: `ipam.rangs`.
    pub(super) path: String,
    /// The known key that is one edit away.
    pub(super) meant: Option<&'static str>,
}

/// Unknown keys of the list itself.
pub(super) fn in_list(list: &Map<String, Value>) -> Vec<Unknown> {
    unknown(list, "", &[&LIST_KEYS])
}

/// Unknown keys of one plugin's config, in the parts that tweed and tweed-ipam
/// read.
pub(super) fn in_plugin(plugin: &Map<String, Value>, is_tweed: bool) -> Vec<Unknown> {
    let mut found = Vec::new();
    if is_tweed {
        found.extend(unknown(plugin, "", &[&PROTOCOL_KEYS, &KEYS]));
    }
    let Some(Value::Object(ipam)) = plugin.get("ipam") else {
        return found;
    };
    if ipam.get("type").and_then(Value::as_str) != Some(OWN_IPAM) {
        return found;
    }
    found.extend(unknown(ipam, "ipam.", &[&RANGE_KEYS, &OTHER_KEYS]));
    let sets = ipam.get("ranges").and_then(Value::as_array);
    for (i, set) in sets.into_iter().flatten().enumerate() {
        for (j, range) in set.as_array().into_iter().flatten().enumerate() {
            if let Value::Object(range) = range {
                let path = format!("ipam.ranges[{i}][{j}].");
                found.extend(unknown(range, &path, &[&RANGE_KEYS]));
            }
        }
    }
    found
}

fn unknown(keys: &Map<String, Value>, path: &str, known: &[&[&'static str]]) -> Vec<Unknown> {
    let known = || known.iter().copied().flatten().copied();
    keys.keys()
        .filter(|key| !known().any(|known| known == *key))
        // Keys that a runtime adds.
        .filter(|key| !key.starts_with("cni.dev/"))
        .map(|key| Unknown {
            path: format!("{path}{key}"),
            meant: known().find(|known| is_near(key, known)),
        })
        .collect()
}

/// Whether one edit turns `b` into `a`: a letter added, removed or replaced, or
/// two neighbours exchanged. Case is ignored.
fn is_near(a: &str, b: &str) -> bool {
    strsim::osa_distance(&a.to_lowercase(), &b.to_lowercase()) <= 1
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pairs(found: Vec<Unknown>) -> Vec<(String, Option<&'static str>)> {
        found.into_iter().map(|u| (u.path, u.meant)).collect()
    }

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(keys) => keys,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn one_edit_is_near_and_two_are_not() {
        for near in ["mtuu", "mt", "mut", "mtx", "MTU", "xmtu", "Mut"] {
            assert!(is_near(near, "mtu"), "{near}");
        }
        for far in ["m", "mtuuu", "umt", "xmut", ""] {
            assert!(!is_near(far, "mtu"), "{far}");
        }
        assert!(is_near("hostSuorce", "hostSource"));
        assert!(is_near("hostsource", "hostSource"));
        assert!(!is_near("hostSoruec", "hostSource"));
    }

    #[test]
    fn slips_are_found_wherever_tweed_reads() {
        let plugin = object(json!({
            "type": "tweed", "mtuu": 1450, "ipMasq": true, "cni.dev/attachments": [],
            "ipam": {
                "type": "tweed-ipam", "datadir": "/x",
                "ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnett": "fd00::/64"}]],
            },
        }));
        let expected = [
            ("ipMasq".to_owned(), None),
            ("mtuu".to_owned(), Some("mtu")),
            ("ipam.datadir".to_owned(), Some("dataDir")),
            ("ipam.ranges[1][0].subnett".to_owned(), Some("subnet")),
        ];
        assert_eq!(pairs(in_plugin(&plugin, true)), expected);
    }

    #[test]
    fn what_is_for_another_plugin_is_not_judged() {
        let bridge = object(json!({
            "type": "bridge", "bridge": "cni0",
            "ipam": {"type": "tweed-ipam", "rangess": []},
        }));
        let expected = [("ipam.rangess".to_owned(), Some("ranges"))];
        assert_eq!(pairs(in_plugin(&bridge, false)), expected);
        let delegated = object(json!({
            "type": "tweed", "mtu": 1450, "ipam": {"type": "host-local", "rangess": []},
        }));
        assert_eq!(pairs(in_plugin(&delegated, true)), []);
    }

    #[test]
    fn a_list_has_its_own_keys() {
        let list = object(json!({"cniVersion": "1.0.0", "name": "x", "plugin": []}));
        let expected = [("plugin".to_owned(), Some("plugins"))];
        assert_eq!(pairs(in_list(&list)), expected);
    }
}
