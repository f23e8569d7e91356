//! The kustomize base, the overlays, and `install/tweed.yaml`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::chart::{render, take_keep};
use crate::files::{documents, holds, objects, read, root, same, shipped, tool};

const KUBECTL: &str = "kubernetes/bin/kubectl";
const BASE: &str = "install/kustomize/base";

/// The base in one file. Put together here and not by `kubectl kustomize`,
/// which drops all comments.
fn in_one_file() -> String {
    let kustomization = &documents(&read(&format!("{BASE}/kustomization.yaml")))[0];
    let mut text = String::from(
        "# All of tweed for a Kubernetes cluster:\n\
         #   kubectl apply -f install/tweed.yaml\n\
         # Written by `make manifests` from install/kustomize/base: change it there.\n",
    );
    for name in kustomization["resources"].as_array().unwrap() {
        let file = read(&format!("{BASE}/{}", name.as_str().unwrap()));
        write!(text, "---\n{file}").unwrap();
    }
    text
}

#[test]
fn tweed_yaml_is_the_base() {
    holds("install/tweed.yaml", &in_one_file());
}

#[test]
fn the_base_changes_nothing_of_its_files() {
    let kustomization = &documents(&read(&format!("{BASE}/kustomization.yaml")))[0];
    let keys: Vec<&String> = kustomization.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["apiVersion", "kind", "resources"]);
}

#[test]
fn every_image_is_that_of_this_version() {
    let expected = format!("localhost/tweed:{}", env!("CARGO_PKG_VERSION"));
    for file in [
        "install/tweed.yaml",
        "install/uninstall-node.yaml",
        "install/remove-kube-proxy.yaml",
    ] {
        let text = read(file);
        let images: Vec<&str> = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("image: "))
            .collect();
        assert_eq!(images, [expected.as_str(); 2], "{file}");
    }
}

#[test]
#[ignore = "needs kubectl: conformance/setup.sh e2e"]
fn kustomize_makes_the_same() {
    let built = tool(KUBECTL, &["kustomize", BASE]);
    same(&objects(&built), &shipped());
}

/// The agent's container and its volumes, as an overlay makes them.
fn overlay(name: &str) -> (Value, Value) {
    let folder = format!("install/kustomize/{name}");
    let built = objects(&tool(KUBECTL, &["kustomize", &folder]));
    assert_eq!(built.len(), shipped().len());
    let daemon_set = &built["DaemonSet kube-system/tweed"];
    let pod = daemon_set.pointer("/spec/template/spec").unwrap();
    (pod["containers"][0].clone(), pod["volumes"].clone())
}

/// The objects of a folder of `install/kustomize` with a component.
fn with_component(below: &str, component: &str) -> BTreeMap<String, Value> {
    // kustomize refuses absolute paths.
    let folder = tempfile::tempdir().unwrap();
    symlink(root().join("install"), folder.path().join("install")).unwrap();
    let kustomization = format!(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n\
         resources: [install/kustomize/{below}]\n\
         components: [install/kustomize/{component}]\n"
    );
    std::fs::write(folder.path().join("kustomization.yaml"), kustomization).unwrap();
    let path = folder.path().to_str().unwrap();
    objects(&tool(KUBECTL, &["kustomize", path]))
}

fn paths(list: &Value, pointer: &str) -> Vec<String> {
    let path = |one: &Value| Some(one.pointer(pointer)?.as_str()?.to_owned());
    let mut paths: Vec<String> = list.as_array().unwrap().iter().filter_map(path).collect();
    paths.sort();
    paths
}

#[test]
#[ignore = "needs kubectl: conformance/setup.sh e2e"]
fn on_k3s_the_folders_are_where_k3s_has_them() {
    let (agent, volumes) = overlay("k3s");
    let expected = [
        "/host/proc/sys/kernel/random/boot_id",
        "/host/proc/sys/net",
        "/run/tweed",
        "/var/lib/rancher/k3s/agent/etc/cni/net.d",
        // What the links in the next one lead to.
        "/var/lib/rancher/k3s/data",
        "/var/lib/rancher/k3s/data/cni",
    ];
    assert_eq!(paths(&agent["volumeMounts"], "/mountPath"), expected);
    let on_the_host = paths(&volumes, "/hostPath/path");
    assert_eq!(on_the_host[2..], expected[2..]);
}

#[test]
#[ignore = "needs kubectl: conformance/setup.sh e2e"]
fn without_kube_proxy_the_api_server_is_named() {
    let (agent, _) = overlay("without-kube-proxy");
    let names = paths(&agent["env"], "/name");
    assert!(names.contains(&"TWEED_API_SERVER".to_owned()), "{names:?}");
    assert!(names.contains(&"TWEED_NODE_NAME".to_owned()), "{names:?}");
}

/// The component sets the flag and takes the rights away, as the chart's value does.
#[test]
#[ignore = "needs kubectl: conformance/setup.sh e2e"]
fn without_policy_the_agent_may_read_neither_policies_nor_pods() {
    let built = with_component("base", "without-policy");
    let chart = objects(&render(&["--set", "agent.policy=off"]).unwrap());
    for found in [&built, &chart] {
        assert!(found.contains_key("ClusterRole -/tweed"));
        assert!(!found.keys().any(|key| key.contains("tweed-policy")));
        let agent =
            found["DaemonSet kube-system/tweed"].pointer("/spec/template/spec/containers/0");
        let env = agent.unwrap()["env"].as_array().unwrap();
        let set = env.iter().find(|one| one["name"] == "TWEED_POLICY");
        assert_eq!(set.unwrap()["value"], "off");
    }
}

/// The overlays are what they are made of, with the flag and the rights for Services, and
/// nothing else: images, probes and rights of the base stay as they are.
#[test]
#[ignore = "needs kubectl: conformance/setup.sh e2e"]
fn with_services_the_agent_has_one_flag_and_one_role_more() {
    let kustomize = |name: &str| {
        let folder = format!("install/kustomize/{name}");
        objects(&tool(KUBECTL, &["kustomize", &folder]))
    };
    let rbac = objects(&read("install/kustomize/with-services/rbac.yaml"));
    for (overlay, below) in [
        ("services", "base"),
        ("services-without-kube-proxy", "without-kube-proxy"),
    ] {
        let mut expected = kustomize(below);
        expected.extend(rbac.clone());
        let mut built = kustomize(overlay);
        for (all, has_flag) in [(&mut built, true), (&mut expected, false)] {
            let daemon_set = all.get_mut("DaemonSet kube-system/tweed").unwrap();
            let agent = daemon_set.pointer_mut("/spec/template/spec/containers/0");
            let env = agent.unwrap()["env"].as_array_mut().unwrap();
            let is_flag = |one: &Value| one["name"] == "TWEED_SERVICES" && one["value"] == "on";
            assert_eq!(env.iter().any(is_flag), has_flag, "{overlay}");
            env.retain(|one| !is_flag(one));
            env.sort_by_key(|one| one["name"].to_string());
        }
        same(&built, &expected);
    }
}

/// The chart's value does the same as the overlay.
#[test]
#[ignore = "needs helm: conformance/setup.sh e2e"]
fn the_charts_value_for_services_brings_the_rights() {
    let mut expected = shipped();
    let rights = objects(&read("install/kustomize/with-services/rbac.yaml"));
    let mut built = objects(&render(&["--set", "agent.services=on"]).unwrap());
    take_keep(&mut built, &["tweed-policy", "tweed-services"]);
    expected.extend(rights);
    let agent = "/spec/template/spec/containers/0";
    let daemon_set = built.get_mut("DaemonSet kube-system/tweed").unwrap();
    let env = daemon_set.pointer_mut(agent).unwrap()["env"].as_array_mut();
    let (env, flag) = (env.unwrap(), "TWEED_SERVICES");
    let at = env.iter().position(|one| one["name"] == flag).unwrap();
    assert_eq!(env.remove(at)["value"], "on");
    same(&built, &expected);
}

/// The component and the chart's value make the same of the agent's pod: two capabilities,
/// two variables and one mount more, and nothing else.
#[test]
#[ignore = "needs kubectl: conformance/setup.sh e2e"]
fn with_the_fast_path_the_agent_has_two_capabilities_and_one_mount_more() {
    let mut built = with_component("base", "with-fast-path");
    let mut chart = objects(&render(&["--set", "fastPath=true"]).unwrap());
    take_keep(&mut chart, &["tweed-policy"]);
    let mut taken = Vec::new();
    for all in [&mut built, &mut chart] {
        let daemon_set = all.get_mut("DaemonSet kube-system/tweed").unwrap();
        let pod = daemon_set.pointer_mut("/spec/template/spec").unwrap();
        let volume = take(&mut pod["volumes"], |one| one["name"] == "bpf");
        let agent = &mut pod["containers"][0];
        let mount = take(&mut agent["volumeMounts"], |one| one["name"] == "bpf");
        let variables = take(&mut agent["env"], |one| {
            ["TWEED_FAST_PATH", "TWEED_BPF_DIR"].contains(&one["name"].as_str().unwrap())
        });
        let adds = &mut agent["securityContext"]["capabilities"]["add"];
        let adds = take(adds, |one| {
            ["BPF", "PERFMON"].contains(&one.as_str().unwrap())
        });
        assert_eq!(adds, ["BPF", "PERFMON"]);
        assert_eq!(variables.len(), 2, "{variables:?}");
        let mode = variables
            .iter()
            .find(|one| one["name"] == "TWEED_FAST_PATH");
        assert_eq!(mode.unwrap()["value"], "auto");
        taken.push((volume, mount, variables));
        same(all, &shipped());
    }
    assert_eq!(taken[0], taken[1]);
    assert_eq!(taken[0].0.len(), 1);
}

/// Takes what is like that out of a list.
fn take(list: &mut Value, is_like: impl Fn(&Value) -> bool) -> Vec<Value> {
    let list = list.as_array_mut().unwrap();
    let mut taken: Vec<Value> = list.extract_if(.., |one| is_like(one)).collect();
    taken.sort_by_key(|one| one["name"].to_string());
    taken
}

/// An agent that is to remove the programs needs the mount.
#[test]
#[ignore = "needs helm: conformance/setup.sh e2e"]
fn the_charts_fast_path_is_switched_off_with_its_rights() {
    let agent = |set: &str| {
        let rendered = objects(&render(&["--set", set]).unwrap());
        let agent =
            rendered["DaemonSet kube-system/tweed"].pointer("/spec/template/spec/containers/0");
        agent.unwrap().clone()
    };
    for (set, mode, has_rights) in [
        ("fastPath=true", Some("auto"), true),
        ("fastPath=true,agent.fastPath=off", Some("off"), true),
        ("fastPath=true,agent.fastPath=on", Some("on"), true),
        ("agent.fastPath=auto", Some("auto"), true),
        ("agent.fastPath=off", Some("off"), false),
        ("fastPath=false", None, false),
    ] {
        let agent = agent(set);
        let env = agent["env"].as_array().unwrap();
        let value = |name: &str| {
            let mut found = env.iter().filter(|one| one["name"] == name);
            let value = found.next().and_then(|one| one["value"].as_str());
            assert!(found.next().is_none(), "{set}: {name} is there twice");
            value
        };
        assert_eq!(value("TWEED_FAST_PATH"), mode, "{set}");
        assert_eq!(value("TWEED_BPF_DIR").is_some(), has_rights, "{set}");
        let adds = agent["securityContext"]["capabilities"]["add"].to_string();
        assert_eq!(adds.contains("BPF"), has_rights, "{set}");
        let mounts = paths(&agent["volumeMounts"], "/name");
        assert_eq!(mounts.contains(&"bpf".to_owned()), has_rights, "{set}");
    }
    let named = agent(r"capabilities={NET_ADMIN,BPF},fastPath=true");
    let adds = &named["securityContext"]["capabilities"]["add"];
    assert_eq!(adds, &serde_json::json!(["NET_ADMIN", "BPF", "PERFMON"]));
}

/// The component adds the flag and the two rights, as the chart's value does.
#[test]
#[ignore = "needs kubectl: conformance/setup.sh e2e"]
fn with_metrics_auth_the_agent_may_ask_for_reviews() {
    let built = with_component("base", "metrics-auth");
    let chart = objects(&render(&["--set", "agent.metricsAuth=token-review"]).unwrap());
    for object in [
        "ClusterRole -/tweed-metrics-auth",
        "ClusterRoleBinding -/tweed-metrics-auth",
    ] {
        assert_eq!(built[object], chart[object], "{object}");
    }
    let agent = built["DaemonSet kube-system/tweed"].pointer("/spec/template/spec/containers/0");
    let env = agent.unwrap()["env"].as_array().unwrap();
    let set = env.iter().find(|one| one["name"] == "TWEED_METRICS_AUTH");
    assert_eq!(set.unwrap()["value"], "token-review");
}

/// The component sets the flag and mounts the folder, as the chart's value does.
#[test]
#[ignore = "needs kubectl: conformance/setup.sh e2e"]
fn with_displace_cni_the_init_container_sees_the_configs() {
    let pod = |all: &BTreeMap<String, Value>| {
        let pod = all["DaemonSet kube-system/tweed"].pointer("/spec/template/spec");
        pod.unwrap().clone()
    };
    let chart = pod(&objects(&render(&["--set", "displaceCni=true"]).unwrap()));
    let built = pod(&with_component("base", "displace-cni"));
    let [install, of_chart] = [&built, &chart].map(|pod| &pod["initContainers"][0]);
    assert_eq!(install["env"], of_chart["env"]);
    for part in ["/name", "/mountPath"] {
        let [ours, charts] = [install, of_chart].map(|one| paths(&one["volumeMounts"], part));
        assert_eq!(ours, charts);
    }
    assert_eq!(built["containers"][0], overlay("base").0);
    // The node's folder is another one there, the container's need not be.
    let on_k3s = pod(&with_component("k3s", "displace-cni"));
    let install = &on_k3s["initContainers"][0];
    let mounts = paths(&install["volumeMounts"], "/mountPath");
    assert_eq!(mounts[0], "/etc/cni/net.d");
    let names = paths(&install["env"], "/name");
    assert!(
        !names.contains(&"TWEED_CNI_CONF_DIR".to_owned()),
        "{names:?}"
    );
    let volumes = on_k3s["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["name"] == "cni-conf");
    let path = volume.unwrap().pointer("/hostPath/path").unwrap();
    assert_eq!(path, "/var/lib/rancher/k3s/agent/etc/cni/net.d");
}

#[test]
fn nothing_shipped_is_forgotten_in_the_base() {
    let kustomization = read(&format!("{BASE}/kustomization.yaml"));
    for entry in std::fs::read_dir(root().join(BASE)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let listed = kustomization.contains(&format!("- {name}\n"));
        assert!(
            listed || name == "kustomization.yaml",
            "{name} is not listed"
        );
    }
}

/// What a folder of `install/kustomize` is, by its own words.
fn kind(folder: &str) -> &'static str {
    let kustomization = &documents(&read(&format!("{folder}/kustomization.yaml")))[0];
    let resources = kustomization["resources"].as_array();
    let uses_another = |one: &Value| one.as_str().unwrap().starts_with("../");
    if kustomization["kind"] == "Component" {
        "component"
    } else if resources.unwrap().iter().any(uses_another) {
        "overlay"
    } else {
        "base"
    }
}

/// The names in a folder, a slash after those of folders.
fn entries(folder: &str) -> BTreeSet<String> {
    let entry = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let is_folder = entry.file_type().unwrap().is_dir();
        if is_folder { format!("{name}/") } else { name }
    };
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    entries.map(entry).collect()
}

/// The first two cells of each row that begins with names in code.
fn rows(table: &str) -> impl Iterator<Item = (Vec<&str>, &str)> {
    table.lines().filter_map(|line| {
        let (cell, rest) = line.strip_prefix("| `")?.split_once(" | ")?;
        let names = cell.split(", ").map(|name| name.trim_matches('`'));
        Some((names.collect(), rest.split(" | ").next()?))
    })
}

#[test]
fn the_readme_lists_every_file_and_the_kind_of_every_folder() {
    let readme = read("install/README.md");
    let (files, folders) = readme.split_once("## Which kustomize folder").unwrap();
    let listed: BTreeSet<&str> = rows(files).flat_map(|(names, _)| names).collect();
    let of_crate = ["Cargo.toml", "README.md"];
    let found = entries("install");
    let names = found.iter().map(String::as_str);
    let there = names.filter(|name| !of_crate.contains(name));
    assert_eq!(listed, there.collect());

    let listed: BTreeMap<String, &str> = rows(folders)
        .map(|(names, kind)| (format!("{}/", names[0]), kind))
        .collect();
    let names = entries("install/kustomize").into_iter();
    let there = names.map(|name| {
        let kind = kind(&format!("install/kustomize/{name}"));
        (name, kind)
    });
    assert_eq!(listed, there.collect());
}
