//! Names from the runtime and the config: every verb refuses names that the specification
//! forbids, and changes nothing.

use crate::fixture::{Fixture, assert_refused, assert_refused_with, assert_silent};

subjects! {
    all: names_of_containers_and_interfaces_are_refused, names_of_networks_are_refused;
    tweed: the_longest_names_are_served, an_ipam_type_that_is_a_path_runs_nothing;
}

fn names_of_containers_and_interfaces_are_refused(fixture: &Fixture) {
    let (container, interface) = ("CNI_CONTAINERID", "CNI_IFNAME");
    let containers = [
        "",
        "../../etc/x",
        "a/b",
        "-rf",
        ".hidden",
        "a b",
        "a\nb",
        "pöd",
    ];
    let interfaces = ["", "a123456789012345", ".", "..", "a/b", "a:b", "a b"];
    let mut names: Vec<_> = containers.map(|name| (container, name.to_owned())).into();
    names.extend(interfaces.map(|name| (interface, name.to_owned())));
    if fixture.is_tweed() {
        // The reference leaves the length to the file system.
        names.push((container, "c".repeat(4097)));
        names.push((interface, "a\u{7f}b".to_owned()));
    }
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    for (variable, name) in names {
        for verb in ["ADD", "DEL", "CHECK"] {
            let call = fixture.call(verb, &pod).env(variable, &name);
            let document = assert_refused(&fixture.run(&call));
            assert_eq!(
                document["code"], 4,
                "{verb}, {variable} {name:?}: {document}"
            );
        }
    }
    fixture.assert_nothing_left(&before);
}

fn names_of_networks_are_refused(fixture: &Fixture) {
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    for name in ["", "../../etc", "a/b", "..", "-a", "nétz"] {
        println!("{name:?}");
        let mut config = fixture.config();
        config["name"] = name.into();
        for verb in ["ADD", "DEL", "CHECK"] {
            let output = fixture.run(&fixture.call(verb, &pod).config(&config));
            assert_refused_with(&output, 7, &[]);
        }
    }
    fixture.assert_nothing_left(&before);
}

/// Names of maximum length are accepted, and found again.
fn the_longest_names_are_served(fixture: &Fixture) {
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    let long = |verb: &str| {
        let mut config = fixture.config();
        config["name"] = "n".repeat(200).into();
        let call = fixture.call(verb, &pod).container(&"c".repeat(4096));
        fixture.run(&call.ifname("a12345678901234").config(&config))
    };
    assert_eq!(long("ADD").code, Some(0));
    assert_eq!(
        long("ADD").error_code(),
        Some(102),
        "the attachment is found again"
    );
    assert_silent(&long("DEL"));
    fixture.assert_nothing_left(&before);
}

/// The program exists and must not be run (CVE-2021-20206). The plugin folder is `bin` in the
/// lab's folder, which contains `evil`.
fn an_ipam_type_that_is_a_path_runs_nothing(fixture: &Fixture) {
    let before = fixture.snapshot();
    let ran = fixture.node.folder().join("ran");
    fixture.wrapper("evil", &format!("touch {}", ran.display()));
    let pod = fixture.pod("pod");
    for name in ["../evil", "./../evil", "/bin/sh", "..", ""] {
        let mut config = fixture.config();
        config["ipam"]["type"] = name.into();
        for verb in ["ADD", "DEL", "CHECK", "STATUS", "GC"] {
            let output = fixture.run(&fixture.call(verb, &pod).config(&config));
            assert_refused_with(&output, 7, &["ipam.type"]);
            assert!(!ran.exists(), "{verb} ran {name:?}");
        }
    }
    fixture.assert_nothing_left(&before);
}
