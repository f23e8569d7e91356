//! Secrets wherever a cluster may have them: none may be in the archive.

use std::cell::RefCell;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use ruzstd::decoding::StreamingDecoder;
use serde_json::{Value, json};

use super::*;

/// What nobody may read.
const COUNT: usize = 24;

fn secret(number: usize) -> String {
    format!("hunter2x{number:02}")
}

/// A cluster with secrets in it.
#[derive(Default)]
struct Planted {
    asked: RefCell<Vec<String>>,
}

impl Agents for Planted {
    fn ask(&self, _: Option<&[String]>, _: &[String]) -> Result<Vec<Answered<Vec<u8>>>> {
        let log = format!(
            "token: {}\nclient-key-data: {}\n  password: \"{} with spaces\"\nproxy http://user:{}@proxy:3128\n",
            secret(0),
            secret(1),
            secret(2),
            secret(3)
        );
        let quoted = json!({ "fields": { "error": format!(r#"{{"password":"{}"}}"#, secret(4)) } });
        let pem = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----",
            secret(5)
        );
        let escaped = json!({ "key": pem }).to_string();
        let message = format!("Authorization: Bearer {}", secret(6));
        let header = format!(r#"headers {{"authorization": "Basic {}"}}"#, secret(7));
        let jwt = format!("eyJhbGciOiJSUzI1NiIs.{}.sig", secret(8));
        let files = BTreeMap::from([
            ("agent.json".to_owned(), log),
            ("status.json".to_owned(), quoted.to_string()),
            (
                "metrics.txt".to_owned(),
                format!("{pem}\n{escaped}\n{message}\n{header}\n{jwt}"),
            ),
        ]);
        let url = format!("GET https://x/?access_token={}&a=b failed", secret(9));
        let errors = BTreeMap::from([("check.json".to_owned(), url)]);
        let report = Report { files, errors };
        let printed = serde_json::to_vec(&json!({ "version": 1, "bundle": report }))?;
        let why = format!("its agent is down: https://admin:{}@192.0.2.1", secret(10));
        let down = Err(Unanswered::new(why));
        Ok(vec![("a".to_owned(), Ok(printed)), ("b".to_owned(), down)])
    }

    fn get(&self, path: &str) -> Result<Option<Value>> {
        self.asked.borrow_mut().push(path.to_owned());
        let applied = json!({ "spec": { "password": secret(11) } }).to_string();
        let metadata = json!({ "name": "x", "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": applied,
            "example.com/anything": secret(12),
        }, "managedFields": [{ "f:x": secret(13) }] });
        let container = json!({
            "env": [
                { "name": "DB", "value": secret(14) },
                { "name": "TWEED_API_SERVER", "value": format!("https://u:{}@192.0.2.1", secret(15)) },
                { "name": "TWEED_TOKEN", "value": secret(16) },
            ],
            "args": ["--token", secret(17), format!("--api-key={}", secret(18)), "--password-file=/x"],
        });
        let mut items = vec![
            json!({ "metadata": metadata, "spec": { "containers": [container] } }),
            json!({ "kind": "Secret", "data": { "a": secret(19) }, "type": secret(20) }),
            json!({ "kind": "ConfigMap", "data": { "kubeconfig": secret(21) }, "binaryData": { "b": secret(22) } }),
        ];
        items.push(json!({ "kind": "Event", "message": format!("pull failed: {{\"identitytoken\": \"{}\"}}", secret(23)) }));
        Ok(Some(json!({ "items": items })))
    }
}

/// The files of an archive, by their paths.
fn unpacked(archive: &[u8]) -> BTreeMap<String, String> {
    let mut frames = archive;
    let mut tar = Vec::new();
    while !frames.is_empty() {
        let mut decoder = StreamingDecoder::new(&mut frames).unwrap();
        decoder.read_to_end(&mut tar).unwrap();
    }
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(tar.as_slice()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        files.insert(path, text);
    }
    files
}

fn bundle() -> Bundle {
    Bundle {
        file: None,
        log_lines: 5000,
    }
}

#[test]
fn no_secret_is_in_the_archive_and_each_failure_is_a_file() {
    let planted = Planted::default();
    let mut out = Vec::new();
    let mut archive = Archive::new(&mut out, "b", 0);
    add_objects(&mut archive, &planted, "kube-system").unwrap();
    for (node, report) in ask(&bundle(), &planted, None).unwrap() {
        add_report(&mut archive, &format!("nodes/{node}"), report).unwrap();
    }
    let long = "x".repeat(3 * 1024 * 1024);
    archive.add("nodes/a/agent.log", Ok(long.clone())).unwrap();
    assert_eq!(archive.end("tweedctl\n").unwrap(), (11, 2));

    let files = unpacked(&out);
    assert_eq!(files["b/nodes/a/agent.log"], long);
    for number in 0..COUNT {
        let found = files
            .iter()
            .find(|(_, text)| text.contains(&secret(number)));
        assert!(found.is_none(), "{number}: {found:?}");
    }
    assert!(files["b/nodes/b/node.error.txt"].starts_with("its agent is down"));
    assert!(files["b/nodes/a/check.json.error.txt"].contains("failed"));
    let index = &files["b/index.txt"];
    assert!(
        index.contains("ERROR nodes/b/node.error.txt: its agent is down"),
        "{index}"
    );
    assert!(index.contains(" cluster/nodes.json\n"), "{index}");
    let asked = planted.asked.take();
    let is_of_secrets = |path: &String| path.contains("secrets");
    assert!(!asked.iter().any(is_of_secrets), "{asked:?}");
    // Without the removal they would be there: the plants are where they are said to be.
    let objects = planted.get("/").unwrap().unwrap().to_string();
    assert!((11..COUNT).all(|number| objects.contains(&secret(number))));
}

#[test]
fn what_a_node_cannot_have_is_an_error_of_its_own() {
    let run_dir = tempfile::tempdir().unwrap();
    let node = Node {
        run_dir: run_dir.path().to_owned(),
    };
    let report = bundle().local(&node).unwrap();
    for name in ["agent.json", "status.json", "metrics.txt"] {
        assert!(report.errors.contains_key(name), "{name}: {report:?}");
    }
    let printed = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&printed).unwrap(), report);
}

#[test]
fn the_archive_is_for_who_asked_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.tar.zst");
    let bundle = Bundle {
        file: Some(path.clone()),
        ..bundle()
    };
    let mut out = Vec::new();
    let mut page = Page::new(&mut out, Format::Table);
    bundle.write(&mut page, |_| Ok(())).unwrap();
    let mode = std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
