//! The agent's pod: least rights, and settings that the programs understand.

use serde_json::{Value, json};
use tweed_agent::config::defaults::{HEALTH_ADDR, METRICS_ADDR};
use tweed_core::paths::{DEFAULT_BOOT_ID_FILE, DEFAULT_BPF_DIR};

use crate::files::{documents, objects, pod, read};
use crate::flags;

fn containers() -> Vec<Value> {
    let pod = pod();
    let lists = [&pod["initContainers"], &pod["containers"]];
    let all = lists
        .into_iter()
        .flat_map(|list| list.as_array().unwrap().clone());
    all.collect()
}

fn agent() -> Value {
    pod()["containers"][0].clone()
}

#[test]
fn no_container_has_more_than_it_needs() {
    for container in containers() {
        let security = &container["securityContext"];
        let adds = match container["name"].as_str().unwrap() {
            "install" => json!(["DAC_OVERRIDE"]),
            "agent" => json!(["NET_ADMIN", "NET_RAW"]),
            other => panic!("{other}: say here what it may"),
        };
        let expected = json!({
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"], "add": adds },
        });
        assert_eq!(security, &expected);
        assert!(container["resources"]["requests"].is_object());
        assert!(container["resources"]["limits"].is_null());
    }
}

#[test]
fn it_lives_on_every_node_and_needs_no_network() {
    let pod = pod();
    assert_eq!(pod["hostNetwork"], true);
    assert!(pod["hostPID"].is_null());
    assert_eq!(pod["dnsPolicy"], "Default");
    assert_eq!(pod["enableServiceLinks"], false);
    assert_eq!(pod["tolerations"], json!([{ "operator": "Exists" }]));
    assert_eq!(pod["priorityClassName"], "system-node-critical");
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
}

#[test]
fn every_variable_is_one_that_the_agent_reads() {
    let known = flags::variables();
    for variable in agent()["env"].as_array().unwrap() {
        let name = variable["name"].as_str().unwrap();
        let read = known.contains(&name.to_owned()) || name == "NODE_IP";
        assert!(read, "tweed-agent reads no {name}");
    }
}

#[test]
fn probes_ask_where_the_agent_answers() {
    let agent = agent();
    let env = agent["env"].as_array().unwrap();
    let address = env.iter().find(|one| one["name"] == "TWEED_METRICS_ADDR");
    assert_eq!(address.unwrap()["value"], "$(NODE_IP):9116");
    assert_eq!(agent["ports"][0]["name"], "metrics");
    assert_eq!(agent["ports"][0]["containerPort"], METRICS_ADDR.port());
    let (host, port) = (HEALTH_ADDR.ip().to_string(), HEALTH_ADDR.port());
    let expected = json!({
        "name": "health",
        "containerPort": port,
        "hostPort": port,
        "hostIP": host,
        "protocol": "TCP",
    });
    assert_eq!(agent["ports"][1], expected);
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        let get = &agent[probe]["httpGet"];
        let expected = json!({ "path": path, "port": "health", "host": host });
        assert_eq!(get, &expected, "{probe}");
    }
}

#[test]
fn only_folders_of_the_design_are_mounted_and_as_little_as_possible_for_writing() {
    let mut writable = Vec::new();
    for mount in agent()["volumeMounts"].as_array().unwrap() {
        if mount["readOnly"] != true {
            writable.push(mount["mountPath"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(
        writable,
        ["/etc/cni/net.d", "/run/tweed", "/host/proc/sys/net"]
    );
    for volume in pod()["volumes"].as_array().unwrap() {
        let kind = &volume["hostPath"]["type"];
        assert!(kind.is_string(), "{volume} has no type");
    }
}

/// A mount of a file that the node has otherwise: a container has its own /proc.
#[test]
fn the_boot_id_is_that_of_the_node() {
    let agent = agent();
    let find = |list: &Value, name: &str| {
        let mut entries = list.as_array().unwrap().iter();
        entries.find(|one| one["name"] == name).unwrap().clone()
    };
    let file = find(&agent["env"], "TWEED_BOOT_ID_FILE")["value"].clone();
    let mount = find(&agent["volumeMounts"], "boot-id");
    assert_eq!(mount["mountPath"], file);
    assert_eq!(mount["readOnly"], true);
    let host = json!({ "path": DEFAULT_BOOT_ID_FILE, "type": "File" });
    assert_eq!(find(&pod()["volumes"], "boot-id")["hostPath"], host);
}

/// What the component adds to the pod for the fast path.
fn for_fast_path() -> Value {
    let patch = &documents(&read("install/kustomize/with-fast-path/pod.yaml"))[0];
    patch.pointer("/spec/template/spec").unwrap().clone()
}

/// The same for the agent, for the uninstallation and in the chart, where AppArmor's profiles
/// of containerd and CRI-O let a container write: they deny `/sys/fs/[^c]*/**`.
#[test]
fn bpffs_is_where_a_container_may_write() {
    let objects = objects(&read("install/uninstall-node.yaml"));
    let cleaner = objects["DaemonSet kube-system/tweed-uninstall"]
        .pointer("/spec/template/spec/initContainers/0")
        .unwrap();
    let agent = &for_fast_path()["containers"][0];
    let chart = read("install/chart/templates/daemonset.yaml");
    for container in [cleaner, agent] {
        let find = |list: &str, name: &str| {
            let mut list = container[list].as_array().unwrap().iter();
            list.find(|one| one["name"] == name).unwrap().clone()
        };
        let folder = find("env", "TWEED_BPF_DIR")["value"].clone();
        let mount = find("volumeMounts", "bpf");
        let mounted = mount["mountPath"].as_str().unwrap();
        assert!(!mounted.starts_with("/sys"), "{mounted}");
        assert_eq!(folder, DEFAULT_BPF_DIR.replacen("/sys/fs/bpf", mounted, 1));
        // The host's, as it is when the pod starts: a runtime refuses any other propagation
        // where the host shares no mounts.
        assert_eq!(mount, json!({ "name": "bpf", "mountPath": mounted }));
        for line in [
            format!("value: {}\n", folder.as_str().unwrap()),
            format!("mountPath: {mounted}\n"),
        ] {
            assert!(chart.contains(&line), "{line}");
        }
    }
}

/// The component for the fast path adds to the pod what the drop-in adds to the unit.
#[test]
fn the_unit_has_the_capabilities_of_the_pod() {
    let of_unit = |file: &str| {
        let text = read(file);
        let mut lines = text.lines();
        let set = lines.find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
        let names = set.unwrap().split(' ').map(|name| name.replace("CAP_", ""));
        names.collect::<Vec<_>>()
    };
    let adds = agent()["securityContext"]["capabilities"]["add"].clone();
    assert_eq!(adds, json!(of_unit("install/systemd/tweed-agent.service")));
    let component = &documents(&read("install/kustomize/with-fast-path/kustomization.yaml"))[0];
    let patch = component["patches"][1]["patch"].as_str().unwrap();
    let patch = &documents(patch)[0];
    let values = patch.as_array().unwrap().iter().map(|one| &one["value"]);
    let drop_in = "install/systemd/fast-path.conf";
    assert_eq!(json!(values.collect::<Vec<_>>()), json!(of_unit(drop_in)));
    let drop_in = read(drop_in);
    let mode = &for_fast_path()["containers"][0]["env"][0];
    let mode = format!(
        "\nEnvironment=TWEED_FAST_PATH={}\n",
        mode["value"].as_str().unwrap()
    );
    assert!(
        drop_in.contains(&mode) && drop_in.contains("\nSystemCallFilter=bpf\n"),
        "{drop_in}"
    );
}

/// Asserts that a list of a pod has one container, which has no other rights than these; gives it.
fn assert_confined<'a>(pod: &'a Value, list: &str, adds: &Value) -> &'a Value {
    let [container] = &pod[list].as_array().unwrap()[..] else {
        panic!("{list}: not one");
    };
    let security = &container["securityContext"];
    assert_eq!(security["allowPrivilegeEscalation"], false);
    assert_eq!(security["readOnlyRootFilesystem"], true);
    assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));
    assert_eq!(security["capabilities"]["add"], *adds, "{list}");
    container
}

/// The pod that takes tweed off a node sees no more of it than the agent's does.
#[test]
fn what_cleans_a_node_has_the_folders_of_the_agent_and_no_others() {
    let objects = objects(&read("install/uninstall-node.yaml"));
    let daemon_set = &objects["DaemonSet kube-system/tweed-uninstall"];
    let cleaner = daemon_set.pointer("/spec/template/spec").unwrap();
    let mut volumes = pod()["volumes"].as_array().unwrap().clone();
    volumes.extend(for_fast_path()["volumes"].as_array().unwrap().clone());
    assert_eq!(cleaner["volumes"], json!(volumes));
    assert_eq!(cleaner["automountServiceAccountToken"], false);
    assert!(cleaner["hostPID"].is_null());
    for (list, adds) in [
        ("initContainers", json!(["NET_ADMIN", "DAC_OVERRIDE"])),
        ("containers", Value::Null),
    ] {
        assert_confined(cleaner, list, &adds);
    }
    assert!(cleaner["containers"][0]["volumeMounts"].is_null());
}

/// The pod that removes kube-proxy's rules changes nothing but the node's network, and
/// runs only where somebody wants it.
#[test]
fn what_removes_kube_proxy_has_one_right_and_one_folder_to_read() {
    let objects = objects(&read("install/remove-kube-proxy.yaml"));
    let daemon_set = &objects["DaemonSet kube-system/tweed-remove-kube-proxy"];
    let remover = daemon_set.pointer("/spec/template/spec").unwrap();
    assert_eq!(remover["nodeSelector"]["service-proxy"], "tweed");
    assert_eq!(remover["automountServiceAccountToken"], false);
    assert_eq!(remover["hostNetwork"], true);
    assert!(remover["hostPID"].is_null());
    let volumes = remover["volumes"].as_array().unwrap();
    assert_eq!(volumes.len(), 1);
    assert_eq!(volumes[0]["hostPath"]["path"], "/run/tweed");
    for (list, adds, mounts) in [
        ("initContainers", json!(["NET_ADMIN"]), 1),
        ("containers", Value::Null, 0),
    ] {
        let container = assert_confined(remover, list, &adds);
        let mounted = container["volumeMounts"].as_array();
        assert_eq!(mounted.map_or(0, Vec::len), mounts, "{list}");
        for mount in mounted.into_iter().flatten() {
            assert_eq!(mount["readOnly"], true);
        }
    }
}
