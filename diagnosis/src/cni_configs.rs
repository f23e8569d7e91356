//! CNI configs of others in the same folder: a runtime takes the one whose
//! file name sorts first, whoever wrote it last. That of Multus is meant to be the first, and
//! calls another one for each pod.

use std::path::Path;

use serde_json::Value;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_core::{limits, regular_file};

/// A problem for each config in `folder` that a runtime takes before `own`.
pub fn problems(folder: &Path, own: &str) -> Vec<Problem> {
    // A folder that cannot be read cannot be written either: said there.
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let calls_own = |name: &String| {
        let content = regular_file::read(&folder.join(name), limits::CNI_CONFIG);
        content.is_ok_and(|content| may_call(&content, own))
    };
    let wins = names.filter(|name| wins(name, own) && !calls_own(name));
    let mut first: Vec<String> = wins.collect();
    first.sort();
    let problem = |name: String| {
        Problem::new(
            ProblemKind::OtherCniConfig,
            folder.join(name).display().to_string(),
            format!("this CNI config comes before {own}, so the runtime takes it and not tweed's"),
        )
    };
    first.into_iter().map(problem).collect()
}

/// Whether a runtime takes the file `name` before `own`: it takes what sorts
/// first.
pub fn wins(name: &str, own: &str) -> bool {
    is_config(name) && name < own
}

/// Whether a config is that of Multus, and the one that it calls for each pod may be the file
/// `own`: it says so, or does not say which one it is.
pub fn may_call(content: &[u8], own: &str) -> bool {
    let Ok(config) = serde_json::from_slice::<Value>(content) else {
        return false;
    };
    let kind = |plugin: &Value| {
        plugin
            .get("type")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    if !matches!(kind(&config).as_deref(), Some("multus" | "multus-shim")) {
        return false;
    }
    // A file, or the name of a network.
    let network = config.get("clusterNetwork").and_then(Value::as_str);
    if let Some(path) = network.filter(|network| is_config(network)) {
        return Path::new(path).file_name() == Some(own.as_ref());
    }
    let delegates = config.get("delegates").and_then(Value::as_array);
    delegates.and_then(|all| all.first()).is_none_or(|first| {
        let plugins = first.get("plugins").and_then(Value::as_array);
        let plugin = plugins.and_then(|all| all.first()).unwrap_or(first);
        kind(plugin).as_deref() == Some("tweed")
    })
}

/// Whether a runtime reads a file of this name, by the rule of libcni's
/// `ConfFiles`.
pub fn is_config(name: &str) -> bool {
    [".conflist", ".conf", ".json"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// Whether a config calls the plugin `loopback` and no other one, as CRI-O installs it: it
/// is no network, and no packet of it leaves its pod. Not of a file that cannot be read.
pub fn is_loopback(content: &[u8]) -> bool {
    let is_one = |plugin: &Value| plugin.get("type").and_then(Value::as_str) == Some("loopback");
    match serde_json::from_slice::<Value>(content) {
        Ok(config) => match config.get("plugins").and_then(Value::as_array) {
            Some(plugins) => !plugins.is_empty() && plugins.iter().all(is_one),
            None => is_one(&config),
        },
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_configs_that_sort_before_ours_are_named() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "05-cilium.conflist",
            "10-flannel.conf",
            "10-tweed.conflist",
            "20-x.conflist",
            "00-notes.txt",
            "00-old.conf.bak",
        ] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let named: Vec<String> = problems(dir.path(), "10-tweed.conflist")
            .into_iter()
            .map(|problem| problem.object)
            .collect();
        let path = |name: &str| dir.path().join(name).display().to_string();
        assert_eq!(named, [path("05-cilium.conflist"), path("10-flannel.conf")]);
    }

    #[test]
    fn only_a_config_of_nothing_but_loopback_is_no_network() {
        for (content, expected) in [
            (r#"{"type": "loopback"}"#, true),
            (r#"{"plugins": [{"type": "loopback"}]}"#, true),
            (
                r#"{"plugins": [{"type": "loopback"}, {"type": "bridge"}]}"#,
                false,
            ),
            (r#"{"plugins": []}"#, false),
            (r#"{"type": "bridge"}"#, false),
            ("{}", false),
            ("", false),
        ] {
            assert_eq!(is_loopback(content.as_bytes()), expected, "{content}");
        }
    }

    #[test]
    fn multus_that_may_call_ours_is_no_rival() {
        let own = "10-tweed.conflist";
        for (content, expected) in [
            (r#"{"type": "multus-shim"}"#, true),
            (r#"{"type": "multus", "clusterNetwork": "tweed"}"#, true),
            (
                r#"{"type": "multus-shim", "clusterNetwork": "/host/etc/cni/net.d/10-tweed.conflist"}"#,
                true,
            ),
            (
                r#"{"type": "multus-shim", "clusterNetwork": "/host/etc/cni/net.d/10-flannel.conflist"}"#,
                false,
            ),
            (
                r#"{"type": "multus", "delegates": [{"name": "tweed", "plugins": [{"type": "tweed"}]}]}"#,
                true,
            ),
            (
                r#"{"type": "multus", "delegates": [{"type": "bridge"}]}"#,
                false,
            ),
            (r#"{"type": "bridge"}"#, false),
            (r#"{"plugins": [{"type": "flannel"}]}"#, false),
            ("", false),
        ] {
            assert_eq!(may_call(content.as_bytes(), own), expected, "{content}");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("00-multus.conf");
        std::fs::write(&path, r#"{"type": "multus-shim"}"#).unwrap();
        assert_eq!(problems(dir.path(), own), []);
        std::fs::write(&path, r#"{"type": "bridge"}"#).unwrap();
        assert_eq!(problems(dir.path(), own).len(), 1);
    }

    #[test]
    fn a_folder_that_is_not_there_has_no_rivals() {
        assert!(problems(Path::new("/nonexistent"), "10-tweed.conflist").is_empty());
    }
}
