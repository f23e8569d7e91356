//! The guides name existing files, settings and messages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::CommandFactory as _;
use tweed_install::cli::Cli;

use crate::files::{objects, pod, read, root, shipped, sources};
use crate::flags;

const DOCUMENTS: [&str; 16] = [
    "README.md",
    "SECURITY.md",
    "docs/compatibility.md",
    "docs/fast-path.md",
    "docs/from-calico.md",
    "docs/from-flannel.md",
    "docs/install.md",
    "docs/monitoring.md",
    "docs/night-call.md",
    "docs/pod-cidr.md",
    "docs/ports.md",
    "docs/quickstart.md",
    "docs/services.md",
    "docs/troubleshooting.md",
    "docs/upgrade.md",
    "install/README.md",
];

/// Words of the commands and of the prose, without the marks around them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| letter.is_whitespace() || "`()\"',<>".contains(letter))
        .map(|word| word.trim_end_matches(['.', ':', ';']))
}

#[test]
fn every_file_that_they_name_is_there() {
    for document in DOCUMENTS {
        let text = read(document);
        for word in words(&text).filter(|word| word.starts_with("install/")) {
            assert!(root().join(word).exists(), "{document}: {word}");
        }
    }
}

#[test]
fn every_value_that_they_set_is_a_flag() {
    let keys: Vec<String> = flags::all().into_iter().map(|flag| flag.key).collect();
    let text = DOCUMENTS.map(read).concat();
    let mut seen = 0;
    for word in words(&text).filter(|word| !word.contains(".md")) {
        if let Some(set) = word.strip_prefix("agent.") {
            let key = set.split(['=', '[', '{']).next().unwrap_or_default();
            assert!(keys.iter().any(|known| known == key), "agent.{key}");
            seen += 1;
        }
    }
    assert!(seen > 0);
}

#[test]
fn every_variable_that_they_name_is_a_flags() {
    let mut variables = flags::variables();
    for verb in Cli::command().get_subcommands() {
        let of_flags = verb.get_arguments().filter_map(clap::Arg::get_env);
        variables.extend(of_flags.map(|name| name.display().to_string()));
    }
    for document in DOCUMENTS {
        for word in words(&read(document)) {
            // With a hyphen at its end `kubectl set env` removes it.
            let assigned = word.split('=').next().unwrap_or_default();
            let name = assigned.trim_end_matches('-');
            if name.starts_with("TWEED_") {
                assert!(
                    variables.iter().any(|known| known == name),
                    "{document}: {name}"
                );
            }
        }
    }
}

/// An interactive zsh takes a comment for words of the command before it.
#[test]
fn commands_to_paste_have_no_comments() {
    let mut seen = 0;
    for document in DOCUMENTS.into_iter().filter(|name| *name != "README.md") {
        let text = read(document);
        let parts = text.split("```sh\n").skip(1);
        let blocks = parts.filter_map(|rest| rest.split("```").next());
        for line in blocks.flat_map(str::lines) {
            let has_comment = line.split_whitespace().any(|word| word.starts_with('#'));
            assert!(!has_comment, "{document}: {line}");
            seen += 1;
        }
    }
    assert!(seen > 150, "{seen} lines");
}

/// The pod sees the node's other folder at the path that its program knows.
#[test]
fn commands_for_other_folders_change_those_of_the_node() {
    let mut changed = Vec::new();
    for document in ["docs/install.md", "docs/services.md"] {
        for rest in read(document).split("\nsed 's|path: ").skip(1) {
            let (command, _) = rest.split_once(" | kubectl").unwrap();
            let command = format!("sed 's|path: {command}");
            let mut shell = Command::new("sh");
            let output = shell.args(["-c", &command]).current_dir(root()).output();
            let after = String::from_utf8(output.unwrap().stdout).unwrap();
            let before = words(&command).find(|word| word.starts_with("install/"));
            let before = read(before.unwrap());
            assert_eq!(before.lines().count(), after.lines().count(), "{document}");
            let lines = before.lines().zip(after.lines());
            let different = lines.filter(|(before, after)| before != after);
            changed.extend(different.map(|(before, _)| before.trim().to_owned()));
        }
    }
    let expected = ["/opt/cni/bin", "/etc/cni/net.d", "/run/tweed"];
    assert_eq!(changed, expected.map(|path| format!("path: {path}")));
}

/// The pods that remove kube-proxy's rules, or tweed, have the name of the agent's, and
/// cannot answer for it.
#[test]
fn commands_for_the_agents_pods_select_no_others() {
    let mut seen = 0;
    for document in DOCUMENTS.into_iter().chain(["docs/policy.md"]) {
        let text = read(document);
        for rest in text.split("-l app.kubernetes.io/name=tweed").skip(1) {
            let is_agent = rest.starts_with(",app.kubernetes.io/component=agent");
            assert!(is_agent, "{document}: all pods of tweed are selected");
            seen += 1;
        }
    }
    assert!(seen > 1, "{seen} commands");
}

/// A protection that loses its test is named here.
#[test]
fn every_test_that_the_security_page_names_is_there() {
    let page = read("SECURITY.md");
    let mut names = Vec::new();
    let mut seen = 0;
    for word in page.split('`').skip(1).step_by(2) {
        let is_test = word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
            && word.matches('_').count() > 1;
        if is_test {
            names.push(word);
        } else if word.ends_with(".rs") {
            let file = read(word);
            for name in names.drain(..) {
                assert!(file.contains(name), "{word} has no {name}");
                seen += 1;
            }
        }
    }
    assert!(names.is_empty(), "no file is named for {names:?}");
    assert!(seen > 5, "the page names {seen} tests");
}

/// All names in the sources: of functions, modules and files.
fn names_in_sources() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let of_crate = |entry: &PathBuf| entry.join("Cargo.toml").exists();
    let mut folders: Vec<PathBuf> = entries(&root())
        .chain(entries(&root().join("conformance")))
        .filter(of_crate)
        .collect();
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            names.extend(
                path.file_stem()
                    .map(|stem| stem.to_string_lossy().into_owned()),
            );
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|of| of == "rs") {
                let source = fs::read_to_string(&path).unwrap();
                let is_apart = |letter: char| letter != '_' && !letter.is_ascii_alphanumeric();
                names.extend(source.split(is_apart).map(str::to_owned));
            }
        }
    }
    names
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path())
}

/// Whether `name` is this text, in which a star or dots stand for anything.
fn is_like(name: &str, text: &str) -> bool {
    let mut parts = text.split(['*', '…']);
    let Some(rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut rest = Some(rest);
    let mut last = None;
    for part in parts {
        rest = rest
            .and_then(|rest| rest.split_once(part))
            .map(|(_, rest)| rest);
        last = Some(part);
    }
    rest.is_some_and(|rest| rest.is_empty() || last.is_some_and(|last| name.ends_with(last)))
}

/// The tables of promises name the test that shows each.
#[test]
fn every_test_that_the_page_of_promises_names_is_there() {
    let names = names_in_sources();
    let page = read("docs/proof/reliability.md");
    let mut seen = 0;
    let rows = page.lines().filter(|line| line.starts_with('|'));
    for word in rows.flat_map(|row| row.split('`').skip(1).step_by(2)) {
        let is_letter = |letter: char| {
            letter.is_ascii_lowercase() || letter.is_ascii_digit() || "_:*…".contains(letter)
        };
        let is_path = word.contains("::") || word.matches('_').count() > 1;
        if !is_path || !word.chars().all(is_letter) {
            continue;
        }
        for part in word.split("::").filter(|part| !part.is_empty()) {
            let is_there = names.contains(part) || names.iter().any(|name| is_like(name, part));
            assert!(is_there, "no {part} of {word} in the sources");
            seen += 1;
        }
    }
    assert!(seen > 100, "the page names {seen} tests");
}

/// A row without a test says that tweed has no such part.
#[test]
fn every_test_that_the_table_of_cves_names_is_there() {
    let page = read("SECURITY.md");
    let (_, section) = page.split_once("\n## What others had CVEs for\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1);
    let mut seen = 0;
    for row in rows {
        let answer = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let words = answer.split('`').skip(1).step_by(2);
        let pairs = words.filter_map(|word| word.split_once(' '));
        let tests: Vec<_> = pairs.filter(|(of, _)| of.starts_with("tweed-")).collect();
        assert_ne!(
            answer.starts_with("no such part: "),
            !tests.is_empty(),
            "{row}"
        );
        for (binary, path) in tests {
            assert!(has_test(binary, path), "there is no {binary} {path}");
        }
        seen += 1;
    }
    assert!(seen >= 30, "{seen} rows");
}

/// Whether a test is there that nextest names so: `tweed-nft::nft spoofing::redirects`.
fn has_test(binary: &str, path: &str) -> bool {
    let (package, target) = binary.split_once("::").unwrap_or((binary, "src"));
    let manifest = format!("name = \"{package}\"\n");
    let is_package = |folder: &PathBuf| {
        let text = fs::read_to_string(folder.join("Cargo.toml"));
        text.is_ok_and(|text| text.contains(&manifest))
    };
    let mut folders = entries(&root()).chain(entries(&root().join("conformance")));
    let Some(package) = folders.find(is_package) else {
        return false;
    };
    let is_there = |path: &PathBuf| path.exists();
    let targets = [package.join("tests").join(target), package.join(target)];
    let is_target = |one: &PathBuf| one.is_dir() || one.with_extension("rs").exists();
    let Some(mut folder) = targets.into_iter().find(is_target) else {
        return false;
    };
    let roots = ["main.rs", "lib.rs"].map(|file| folder.join(file));
    let mut roots = [folder.with_extension("rs")].into_iter().chain(roots);
    let mut file = roots.find(is_there);
    let mut modules: Vec<&str> = path.split("::").collect();
    let name = modules.pop().unwrap_or_default();
    // A module without a file of its own stands in the one around it.
    for module in modules {
        folder = folder.join(module);
        let mut own = [folder.with_extension("rs"), folder.join("mod.rs")].into_iter();
        file = own.find(is_there).or(file);
    }
    let text = file.and_then(|file| fs::read_to_string(file).ok());
    text.is_some_and(|text| text.contains(&format!("fn {name}(")))
}

/// Whoever gives the agent a right says there what it is for.
#[test]
fn the_security_page_names_every_right() {
    let page = read("SECURITY.md");
    let named = |word: &str| page.contains(&format!("`{word}`"));
    let pod = pod();
    for list in ["initContainers", "containers"] {
        for container in pod[list].as_array().unwrap() {
            let adds = container.pointer("/securityContext/capabilities/add");
            for capability in adds.unwrap().as_array().unwrap() {
                assert!(named(capability.as_str().unwrap()), "{capability}");
            }
        }
    }
    for volume in pod["volumes"].as_array().unwrap() {
        let path = volume.pointer("/hostPath/path").unwrap();
        assert!(named(path.as_str().unwrap()), "{path}");
    }
    let component = read("install/kustomize/with-fast-path/kustomization.yaml");
    let added = component
        .lines()
        .filter_map(|line| line.trim().strip_prefix("value: "));
    for word in added.chain(["/sys/fs/bpf"]) {
        assert!(named(word), "{word}");
    }
    let mut all = shipped();
    all.extend(objects(&read("install/kustomize/with-services/rbac.yaml")));
    for rules in all.values().filter_map(|one| one["rules"].as_array()) {
        for resource in rules.iter().flat_map(|rule| rule["resources"].as_array()) {
            for resource in resource.iter().filter_map(|one| one.as_str()) {
                assert!(named(resource), "{resource}");
            }
        }
    }
}

/// A reader searches for what the screen shows.
#[test]
fn every_message_of_the_plugins_that_the_night_call_quotes_is_one() {
    // A string continues in the next line without the blanks at its start.
    let code = sources(&["cni-plugin/src", "ipam/src"]);
    let mut lines = code.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    let code = lines.fold(first, |text, line| text + line.trim_start());
    let guide = read("docs/night-call.md");
    let mut seen = 0;
    let rows = guide.lines().filter_map(|line| line.strip_prefix("| \""));
    for quote in rows.filter_map(|row| row.split('"').next()) {
        for part in quote.split('…').map(str::trim) {
            assert!(code.contains(part), "no plugin says {part:?}");
        }
        seen += 1;
    }
    assert!(seen > 1, "the night call quotes no message");
}
