//! The network configs that the runtime reads: which of them it uses, and whether
//! those that call tweed are valid.

use std::path::Path;

use serde_json::{Map, Value};
use tweed_cni::{CniError, CniVersion, Config};
use tweed_cni_plugin::config::{OWN_IPAM, Settings};
use tweed_core::paths::CONFLIST;
use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_core::{limits, regular_file};
use tweed_diagnosis::cni_configs;
use tweed_ipam::ranges::IpamConfig;

use super::near_miss::{self, Unknown};
use super::{Outcome, incomplete, ok, or_ok};
use crate::displaced::{SUFFIX, names};

const TWEED: &str = "tweed";

pub(super) fn find(conf_dir: &Path) -> Vec<Outcome> {
    let folder = conf_dir.display().to_string();
    let names = match names(conf_dir) {
        Ok(names) => names,
        Err(error) => return vec![incomplete(&folder, error.to_string())],
    };
    let mut findings = Vec::new();
    for name in &names {
        let path = conf_dir.join(name);
        if name.ends_with(SUFFIX) {
            let message = format!("{} was renamed by --displace-cni", path.display());
            findings.push(ok(message));
        } else if cni_configs::is_config(name) {
            let content = regular_file::read(&path, limits::CNI_CONFIG).ok();
            findings.extend(judge(&path, name, content.as_deref()));
        }
    }
    or_ok(findings, || {
        format!("there is no config in {folder}: the agent will write {CONFLIST}")
    })
}

/// Judges one file by its name and its content.
fn judge(path: &Path, name: &str, content: Option<&[u8]>) -> Vec<Outcome> {
    let parsed = content.and_then(|bytes| serde_json::from_slice(bytes).ok());
    let Some(Value::Object(document)) = parsed else {
        let message = format!(
            "{} cannot be read as JSON, and runtimes may stop at it",
            path.display()
        );
        let problem = invalid(path, message).with_effect(Effect::Warning);
        let cure = "correct it, or move it out of the folder";
        return vec![Err(problem.with_cure(cure))];
    };
    let plugins = plugins(&document);
    let types: Vec<&str> = plugins.iter().map(kind).collect();
    let mut findings = Vec::new();
    if types.contains(&TWEED) || plugins.iter().any(uses_own_ipam) {
        findings.extend(judge_ours(path, &document, &plugins));
    }
    if name != CONFLIST && types.first() != Some(&TWEED) {
        let calls_ours = content.is_some_and(|bytes| cni_configs::may_call(bytes, CONFLIST));
        findings.push(judge_other(path, name, &types, calls_ours));
    }
    findings
}

fn invalid(path: &Path, message: String) -> Problem {
    let object = path.display().to_string();
    Problem::new(ProblemKind::CniConfigInvalid, object, message)
}

fn judge_other(path: &Path, name: &str, types: &[&str], calls_ours: bool) -> Outcome {
    let what = format!("{} ({})", path.display(), types.join(", "));
    if calls_ours {
        return ok(format!(
            "{what} calls another config, which may be {CONFLIST}"
        ));
    }
    if cni_configs::wins(name, CONFLIST) {
        let (kind, path) = (ProblemKind::OtherCniConfig, path.display().to_string());
        let message = format!("{what} comes before {CONFLIST}: the runtime uses it, not tweed's");
        let cure = "remove it, if pods are to be tweed's; `tweed-install host --displace-cni`, or \
                    on Kubernetes the chart's value displaceCni or the kustomize component \
                    displace-cni, renames it, so that it can be restored";
        return Err(Problem::new(kind, path, message).with_cure(cure));
    }
    ok(format!(
        "{what} comes after {CONFLIST}, which the runtime uses"
    ))
}

/// Judges a config that calls tweed or its address store.
fn judge_ours(
    path: &Path,
    document: &Map<String, Value>,
    plugins: &[Map<String, Value>],
) -> Vec<Outcome> {
    let mut findings = Vec::new();
    let mut unknown = Vec::new();
    if document.contains_key("plugins") {
        unknown.extend(near_miss::in_list(document));
    }
    for plugin in plugins {
        let is_tweed = kind(plugin) == TWEED;
        unknown.extend(near_miss::in_plugin(plugin, is_tweed));
        if let Err(error) = read_as_plugin(document, plugin, is_tweed) {
            let message = format!("{}: {} refuses it: {error}", path.display(), kind(plugin));
            findings.push(Err(invalid(path, message)));
        }
    }
    findings.extend(unknown.iter().map(|unknown| judge_key(path, unknown)));
    or_ok(findings, || format!("{} is valid", path.display()))
}

fn judge_key(path: &Path, unknown: &Unknown) -> Outcome {
    let (file, key) = (path.display(), &unknown.path);
    let message = format!("{file}: the key {key} is not known, and so ignored");
    Err(match unknown.meant {
        Some(meant) => invalid(path, format!("{message}; {meant} is known"))
            .with_cure(format!("write {meant}, or remove {key}")),
        None => invalid(path, message)
            .with_effect(Effect::Warning)
            .with_cure(format!("remove {key}")),
    })
}

/// Reads a plugin's config as the plugin does at ADD.
fn read_as_plugin(
    document: &Map<String, Value>,
    plugin: &Map<String, Value>,
    is_tweed: bool,
) -> Result<(), CniError> {
    if !is_tweed && !uses_own_ipam(plugin) {
        return Ok(());
    }
    // The runtime adds name and version of the list to each plugin's config.
    let mut keys = plugin.clone();
    for key in ["cniVersion", "name"] {
        if let Some(value) = document.get(key) {
            keys.insert(key.to_owned(), value.clone());
        }
    }
    let bytes = Value::Object(keys).to_string().into_bytes();
    let config = Config::parse(bytes, &mut CniVersion::LATEST.clone())?;
    if is_tweed {
        Settings::read(&config)?;
    }
    if uses_own_ipam(plugin) {
        let ipam = config.ipam()?;
        IpamConfig::parse(&ipam, None).map_err(CniError::config)?;
    }
    Ok(())
}

/// The plugins of a list, or the one plugin of a config that is not a list.
fn plugins(document: &Map<String, Value>) -> Vec<Map<String, Value>> {
    match document.get("plugins") {
        Some(Value::Array(plugins)) => {
            let objects = plugins.iter().filter_map(Value::as_object);
            objects.cloned().collect()
        }
        _ => vec![document.clone()],
    }
}

fn kind(plugin: &Map<String, Value>) -> &str {
    let kind = plugin.get("type").and_then(Value::as_str);
    kind.unwrap_or("no type")
}

fn uses_own_ipam(plugin: &Map<String, Value>) -> bool {
    plugin.get("ipam").and_then(|ipam| ipam.get("type")) == Some(&Value::from(OWN_IPAM))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Level;
    use super::*;

    fn judged(name: &str, content: &Value) -> Vec<(Level, String)> {
        let path = Path::new("/etc/cni/net.d").join(name);
        judge(&path, name, Some(content.to_string().as_bytes()))
            .into_iter()
            .map(|outcome| {
                let level = Level::of(&outcome);
                (level, outcome.unwrap_or_else(|problem| problem.message))
            })
            .collect()
    }

    fn list(plugin: Value) -> Value {
        json!({"cniVersion": "1.0.0", "name": "net", "plugins": [plugin]})
    }

    fn tweed() -> Value {
        json!({
            "type": "tweed", "mtu": 1450,
            "ipam": {"type": "tweed-ipam", "ranges": [[{"subnet": "10.244.1.0/24"}]]},
        })
    }

    #[test]
    fn what_sorts_first_wins_whoever_it_is() {
        let flannel = list(json!({"type": "flannel"}));
        let [(level, message)] = &judged("10-flannel.conflist", &flannel)[..] else {
            panic!("not one finding");
        };
        assert_eq!(*level, Level::Warning);
        assert!(message.contains("(flannel) comes before"), "{message}");
        let later = judged(
            "87-podman-bridge.conflist",
            &list(json!({"type": "bridge"})),
        );
        assert_eq!(later[0].0, Level::Ok);
    }

    #[test]
    fn multus_comes_first_and_calls_ours() {
        let path = "/host/etc/cni/net.d/10-tweed.conflist";
        let multus = json!({"name": "multus", "type": "multus-shim", "clusterNetwork": path});
        let [(level, message)] = &judged("00-multus.conf", &multus)[..] else {
            panic!("not one finding");
        };
        assert_eq!(*level, Level::Ok, "{message}");
        assert!(
            message.contains("which may be 10-tweed.conflist"),
            "{message}"
        );
    }

    #[test]
    fn a_config_of_the_agent_is_understood() {
        let findings = judged(CONFLIST, &list(tweed()));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].0, Level::Ok);
    }

    #[test]
    fn a_near_miss_is_refused_with_both_keys() {
        let mut plugin = tweed();
        plugin["mtuu"] = plugin["mtu"].take();
        let findings = judged("05-mine.conflist", &list(plugin));
        assert!(findings.iter().all(|(level, _)| *level == Level::Error));
        let all: String = findings.into_iter().map(|(_, message)| message).collect();
        assert!(all.contains("mtu is missing"), "{all}");
        assert!(
            all.contains("the key mtuu is not known") && all.contains("mtu is known"),
            "{all}"
        );
    }

    #[test]
    fn a_config_that_is_no_list_is_read_too() {
        let mut plugin = tweed();
        plugin["cniVersion"] = "1.0.0".into();
        plugin["name"] = "net".into();
        assert_eq!(judged("05-mine.conf", &plugin)[0].0, Level::Ok);
        plugin["ipam"]["ranges"] = json!([]);
        let findings = judged("05-mine.conf", &plugin);
        assert!(findings[0].1.contains("ipam.ranges"), "{findings:?}");
    }

    #[test]
    fn another_plugin_over_the_store_is_read_as_far_as_the_store() {
        let bridge = json!({
            "type": "bridge", "bridge": "cni0",
            "ipam": {"type": "tweed-ipam", "subnet": "10.0.0.0/33"},
        });
        let findings = judged("20-bridge.conflist", &list(bridge));
        let errors = findings.iter().filter(|(level, _)| *level == Level::Error);
        assert_eq!(errors.count(), 1, "{findings:?}");
    }

    #[test]
    fn damage_is_named() {
        for content in [None, Some(&b"{"[..]), Some(b"[]")] {
            let findings = judge(Path::new("/x/05-a.conf"), "05-a.conf", content);
            assert_eq!(findings.len(), 1);
            assert_eq!(Level::of(&findings[0]), Level::Warning);
        }
    }
}
