//! Names from the runtime and the config: every verb refuses names that the specification
//! forbids, and changes nothing.

use crate::fixture::{Fixture, assert_refused, assert_refused_with, assert_silent};

/// The variable of a call that a case sets.
#[derive(Clone, Copy)]
enum Name {
    Container,
    Interface,
}
use Name::{Container, Interface};

fn is_refused(fixture: &Fixture, which: Name, name: &str) {
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    for verb in ["ADD", "DEL", "CHECK"] {
        let call = fixture.call(verb, &pod);
        let call = match which {
            Container => call.container(name),
            Interface => call.ifname(name),
        };
        let document = assert_refused(&fixture.run(&call));
        assert_eq!(document["code"], 4, "{verb}: {document}");
    }
    fixture.assert_nothing_left(&before);
}

cases! {
    is_refused;
    all {
        container_id_empty: Container, "";
        container_id_up: Container, "../../etc/x";
        container_id_with_slash: Container, "a/b";
        container_id_with_dash_first: Container, "-rf";
        container_id_with_dot_first: Container, ".hidden";
        container_id_with_space: Container, "a b";
        container_id_with_newline: Container, "a\nb";
        container_id_not_ascii: Container, "pöd";
        ifname_empty: Interface, "";
        ifname_of_16_bytes: Interface, "a123456789012345";
        ifname_dot: Interface, ".";
        ifname_dot_dot: Interface, "..";
        ifname_with_slash: Interface, "a/b";
        ifname_with_colon: Interface, "a:b";
        ifname_with_space: Interface, "a b";
    }
    tweed {
        // The reference leaves the length to the file system.
        container_id_of_4097_bytes: Container, &"c".repeat(4097);
        ifname_with_delete: Interface, "a\u{7f}b";
    }
}

mod the_longest {
    use super::*;

    /// Names of maximum length are accepted, and found again.
    #[test]
    fn names_are_served() {
        let fixture = Fixture::tweed();
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
}

mod of_network {
    use super::*;

    fn is_refused(fixture: &Fixture, name: &str) {
        let before = fixture.snapshot();
        let pod = fixture.pod("pod");
        let mut config = fixture.config();
        config["name"] = name.into();
        for verb in ["ADD", "DEL", "CHECK"] {
            let output = fixture.run(&fixture.call(verb, &pod).config(&config));
            assert_refused_with(&output, 7, &[]);
        }
        fixture.assert_nothing_left(&before);
    }

    cases! {
        is_refused;
        all {
            empty: "";
            up: "../../etc";
            with_slash: "a/b";
            dot_dot: "..";
            with_dash_first: "-a";
            not_ascii: "nétz";
        }
    }
}

mod of_ipam_type {
    use super::*;

    /// The program exists and must not be run. (CVE-2021-20206)
    fn runs_nothing(fixture: &Fixture, name: &str) {
        let before = fixture.snapshot();
        let ran = fixture.node.folder().join("ran");
        fixture.wrapper("evil", &format!("touch {}", ran.display()));
        let mut config = fixture.config();
        config["ipam"]["type"] = name.into();
        let pod = fixture.pod("pod");
        for verb in ["ADD", "DEL", "CHECK", "STATUS", "GC"] {
            let output = fixture.run(&fixture.call(verb, &pod).config(&config));
            let document = assert_refused(&output);
            assert!(!ran.exists(), "{verb} ran it: {document}");
            if fixture.is_tweed() {
                assert_refused_with(&output, 7, &["ipam.type"]);
            }
        }
        fixture.assert_nothing_left(&before);
    }

    // The plugin folder is `bin` in the lab's folder, which contains `evil`. The reference
    // refuses the name only for verbs that use it.
    cases! {
        runs_nothing;
        tweed {
            up: "../evil";
            through_itself: "./../evil";
            absolute: "/bin/sh";
            dot_dot: "..";
            empty: "";
        }
    }
}
