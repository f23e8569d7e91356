//! Files of the repository, the objects in them, and the tools that read them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub fn read(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The Rust sources in these folders, without the tests beside them.
pub fn sources(folders: &[&str]) -> String {
    let mut text = String::new();
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let source = fs::read_to_string(&path).unwrap();
                text += source.split("#[cfg(test)]").next().unwrap_or_default();
            }
        }
    }
    text
}

/// Whether files are to be written in place of compared.
pub fn updating() -> bool {
    std::env::var_os("TWEED_UPDATE_DOCS").is_some()
}

/// The file holds just this text, or is made to.
pub fn holds(path: &str, expected: &str) {
    if updating() {
        // By rename: other tests read it meanwhile.
        let (path, new) = (root().join(path), root().join(format!("{path}.new")));
        fs::write(&new, expected).unwrap();
        fs::rename(&new, &path).unwrap();
    } else {
        assert_eq!(read(path), expected, "{path} is stale: run make manifests");
    }
}

/// The documents of a YAML text. Lines of comments are dropped before: the
/// parser takes a limited number of them in a row.
pub fn documents(text: &str) -> Vec<Value> {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    let bare: String = lines.flat_map(|line| [line, "\n"]).collect();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&bare).unwrap();
    documents.into_iter().filter(|one| !one.is_null()).collect()
}

/// Kubernetes objects by kind, namespace and name.
pub fn objects(text: &str) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for object in documents(text) {
        let name = |pointer| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or("-")
        };
        let (kind, namespace) = (name("/kind"), name("/metadata/namespace"));
        let key = format!("{kind} {namespace}/{}", name("/metadata/name"));
        assert!(
            all.insert(key.clone(), object).is_none(),
            "{key} is there twice"
        );
    }
    all
}

/// `install/tweed.yaml`.
pub fn shipped() -> BTreeMap<String, Value> {
    objects(&read("install/tweed.yaml"))
}

/// The pod that the DaemonSet of `install/tweed.yaml` makes.
pub fn pod() -> Value {
    let daemon_set = &shipped()["DaemonSet kube-system/tweed"];
    daemon_set.pointer("/spec/template/spec").unwrap().clone()
}

/// The same objects with the same contents, told one by one where not.
pub fn same(found: &BTreeMap<String, Value>, expected: &BTreeMap<String, Value>) {
    let names = |all: &BTreeMap<String, Value>| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected));
    for (name, object) in expected {
        assert_eq!(&found[name], object, "{name}");
    }
}

/// Runs a tool of cargo's `target/tools` in the repository: what it prints, or why not.
pub fn try_tool(tool: &str, args: &[&str]) -> Result<String, String> {
    // This program is in target/<profile>/deps.
    let own = std::env::current_exe().unwrap();
    let program = own.ancestors().nth(3).unwrap().join("tools").join(tool);
    assert!(
        program.exists(),
        "{} is missing: run conformance/setup.sh e2e",
        program.display()
    );
    outcome(Command::new(program).args(args).current_dir(root()))
}

/// What a program prints if it succeeds, or else all that it says.
pub fn outcome(command: &mut Command) -> Result<String, String> {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stdout) + &text(&output.stderr))
    }
}

/// The same, which must succeed.
pub fn tool(tool: &str, args: &[&str]) -> String {
    try_tool(tool, args).unwrap_or_else(|error| panic!("{tool} {args:?}: {error}"))
}
