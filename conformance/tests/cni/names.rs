//! Names from the runtime and the config: those that the specification forbids
//! are refused by every verb that takes them, and nothing is done.

use crate::bench::{Bench, refused, refused_with, silent};

/// The variable of a call that a row breaks.
#[derive(Clone, Copy)]
enum Name {
    Container,
    Interface,
}
use Name::{Container, Interface};

fn is_refused(bench: &Bench, which: Name, name: &str) {
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    for verb in ["ADD", "DEL", "CHECK"] {
        let call = bench.call(verb, &pod);
        let call = match which {
            Container => call.container(name),
            Interface => call.ifname(name),
        };
        let document = refused(&bench.run(&call));
        assert_eq!(document["code"], 4, "{verb}: {document}");
    }
    bench.assert_nothing_left(&before);
}

rows! {
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
        // A file name's length is the file system's affair, not the kernel's.
        container_id_of_300_bytes: Container, &"c".repeat(300);
        ifname_with_delete: Interface, "a\u{7f}b";
    }
}

mod the_longest {
    use super::*;

    /// Names at the limit are served, and found again.
    #[test]
    fn names_are_served() {
        let bench = Bench::tweed();
        let before = bench.snapshot();
        let pod = bench.pod("pod");
        let long = |verb: &str| {
            let mut config = bench.config();
            config["name"] = "n".repeat(200).into();
            let call = bench.call(verb, &pod).container(&"c".repeat(200));
            bench.run(&call.ifname("a12345678901234").config(&config))
        };
        assert_eq!(long("ADD").code, Some(0));
        assert_eq!(long("ADD").error_code(), Some(102), "it is found again");
        silent(&long("DEL"));
        bench.assert_nothing_left(&before);
    }
}

mod of_network {
    use super::*;

    fn is_refused(bench: &Bench, name: &str) {
        let before = bench.snapshot();
        let pod = bench.pod("pod");
        let mut config = bench.config();
        config["name"] = name.into();
        for verb in ["ADD", "DEL", "CHECK"] {
            let output = bench.run(&bench.call(verb, &pod).config(&config));
            refused_with(&output, 7, &[]);
        }
        bench.assert_nothing_left(&before);
    }

    rows! {
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

    /// The file is there and could be run: it must not be. (CVE-2021-20206)
    fn runs_nothing(bench: &Bench, name: &str) {
        let before = bench.snapshot();
        let ran = bench.node.folder().join("ran");
        bench.wrapper("evil", &format!("touch {}", ran.display()));
        let mut config = bench.config();
        config["ipam"]["type"] = name.into();
        let pod = bench.pod("pod");
        for verb in ["ADD", "DEL", "CHECK", "STATUS", "GC"] {
            let output = bench.run(&bench.call(verb, &pod).config(&config));
            let document = refused(&output);
            assert!(!ran.exists(), "{verb} ran it: {document}");
            if bench.is_tweed() {
                refused_with(&output, 7, &["ipam.type"]);
            }
        }
        bench.assert_nothing_left(&before);
    }

    // The plugin folder is `bin` in the lab's folder, where `evil` is. The
    // reference refuses on the verbs that use it only.
    rows! {
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
