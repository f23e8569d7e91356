use crate::fixture::NodeFixture as _;
use std::fmt::Write as _;
use std::path::Path;

use super::*;
use tweed_planner::overlay::cluster::Cluster;

fn names(text: &str) -> Result<Vec<String>, Broken> {
    let nodes = parse(text.as_bytes())?;
    Ok(nodes.into_iter().map(|node| node.name).collect())
}

#[test]
fn several_documents() {
    let text = "
# The nodes of the lab.
---
apiVersion: v1
kind: Node
metadata:
  name: a
spec:
  podCIDRs: [10.244.1.0/24]
status:
  addresses:
  - {type: InternalIP, address: 192.0.2.1}
---
---
kind: Node
metadata: {name: b, creationTimestamp: 2026-11-21T10:00:00Z}
";
    let nodes = parse(text.as_bytes()).unwrap();
    let expected = [
        crate::fixture::node("a")
            .cidr("10.244.1.0/24")
            .internal("192.0.2.1"),
        crate::fixture::node("b").created(1_795_255_200),
    ];
    assert_eq!(nodes, expected);
}

#[test]
fn lists_of_every_kind() {
    for text in [
        "kind: List\nitems:\n- kind: Node\n  metadata: {name: a}\n- kind: Node\n  metadata: {name: b}\n",
        "kind: NodeList\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\n",
        r#"{"kind": "List", "items": [{"kind": "Node", "metadata": {"name": "a"}}, {"kind": "Node", "metadata": {"name": "b"}}]}"#,
        "{\"kind\": \"Node\",\n\t\"metadata\": {\"name\": \"a\"}}\n{\"kind\": \"Node\", \"metadata\": {\"name\": \"b\"}}",
        "{kind: Node, metadata: {name: a}}\n---\n{kind: Node, metadata: {name: b}}",
    ] {
        assert_eq!(names(text), Ok(vec!["a".into(), "b".into()]), "{text}");
    }
}

#[test]
fn an_empty_file_has_no_nodes() {
    for text in [
        "",
        "\n",
        "---\n",
        "# nothing\n",
        "kind: List\nitems: []\n",
        "kind: List",
    ] {
        assert_eq!(names(text), Ok(vec![]), "{text:?}");
    }
}

#[test]
fn other_kinds_are_passed_over() {
    let text = "kind: Pod\nmetadata: {name: x}\n---\nkind: Node\nmetadata: {name: a}\n";
    assert_eq!(names(text), Ok(vec!["a".into()]));
}

#[test]
fn what_is_no_manifest_breaks_the_file() {
    let broken = |text: &str| names(text).unwrap_err().to_string();
    assert_eq!(broken("metadata: {name: a}"), "object 1 has no kind");
    assert_eq!(
        broken("kind: Node\n---\nkind: Node\nmetadata: {name: a}"),
        "object 1 has no metadata.name"
    );
    assert_eq!(
        broken(
            "kind: List\nitems:\n- kind: Node\n  metadata: {name: a}\n- kind: Node\n  metadata: {name: a b}"
        ),
        "object 3 has the name \"a b\", which no Node can have"
    );
    assert_eq!(
        broken("kind: Node\nmetadata: {name: a}\n---\nkind: Node\nmetadata: {name: a}"),
        "there are two Nodes of the name a"
    );
    assert_eq!(parse(b"kind: \xff").unwrap_err(), Broken::NotText);
    for text in [
        "kind: [",
        "kind: Node\n metadata: {}",
        "just words",
        "- kind: Node",
        "{\"kind\": \"List\", \"items\": [{\"kind\": \"Node\", \"metad",
        "kind: Node\nkind: Node\nmetadata: {name: a}",
        "\u{1b}[2J",
    ] {
        let why = names(text).unwrap_err();
        assert!(matches!(why, Broken::Syntax(_)), "{text:?}: {why}");
        let why = why.to_string();
        assert!(why.chars().all(|c| !c.is_control()), "{why:?}");
    }
}

#[test]
fn hostile_files_are_refused_in_bounded_memory() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = vec![format!("*a{}", level - 1); 9].join(", ");
        writeln!(bomb, "a{level}: &a{level} [{below}]").unwrap();
    }
    bomb.push_str("kind: Node\nmetadata: {name: *a11}\n");
    assert!(matches!(names(&bomb), Err(Broken::Syntax(_))));

    let deep = format!("kind: {}", "[".repeat(100_000));
    assert!(matches!(names(&deep), Err(Broken::Syntax(_))));
    let deep = "{\"items\":[".repeat(100_000);
    assert!(matches!(names(&deep), Err(Broken::Syntax(_))));
}

#[test]
fn five_thousand_documents_are_within_the_limits() {
    let documents: String = (0..5000)
        .map(|number| format!("---\nkind: Node\nmetadata: {{name: n{number}}}\n"))
        .collect();
    assert_eq!(names(&documents).map(|names| names.len()), Ok(5000));
}

/// Longer than anything takes: a test that waits for what does not come fails.
const STUCK: Duration = Duration::from_secs(60);

/// The source at work on a file, and what an index makes of it.
struct Watched {
    folder: tempfile::TempDir,
    events: mpsc::Receiver<Event<Node>>,
    index: Cluster,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Watched {
    fn start(content: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes.yaml");
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        let (sender, events) = mpsc::channel(4);
        let stop = CancellationToken::new();
        let task = tokio::spawn(FileSource::new(path).run(sender, stop.clone()));
        Self {
            folder,
            events,
            index: Cluster::new("a"),
            stop,
            task,
        }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("nodes.yaml")
    }

    fn rename_over(&self, content: &str) {
        let other = self.folder.path().join("other");
        std::fs::write(&other, content).unwrap();
        std::fs::rename(other, self.path()).unwrap();
    }

    /// Takes events until one of them is `last`; all of them.
    async fn until(&mut self, last: impl Fn(&Event<Node>) -> bool) -> Vec<Event<Node>> {
        let mut seen = Vec::new();
        let stuck = tokio::time::Instant::now() + STUCK;
        loop {
            let event = tokio::time::timeout_at(stuck, self.events.recv()).await;
            let event = event.expect("the event that was waited for").unwrap();
            let _ = self.index.apply(event.clone());
            seen.push(event);
            if seen.last().is_some_and(&last) {
                return seen;
            }
        }
    }

    fn known(&self) -> Option<Vec<String>> {
        let snapshot = self.index.snapshot()?;
        Some(snapshot.nodes().map(|node| node.name.clone()).collect())
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

fn file(names: &[&str]) -> String {
    let objects = names.iter();
    objects
        .map(|name| format!("---\nkind: Node\nmetadata: {{name: {name}}}\n"))
        .collect()
}

fn lost(event: &Event<Node>) -> bool {
    matches!(event, Event::Lost(_))
}

#[tokio::test]
async fn a_file_renamed_over_is_seen() {
    let mut watched = Watched::start(Some(&file(&["a", "b"])));
    let seen = watched.until(|e| *e == Event::InitDone).await;
    assert_eq!(seen[0], Event::Init);
    assert_eq!(seen.len(), 4);
    assert_eq!(watched.known(), Some(vec!["a".into(), "b".into()]));
    for names in [vec!["a", "c"], vec!["a", "d"]] {
        watched.rename_over(&file(&names));
        watched.until(|e| *e == Event::InitDone).await;
        assert_eq!(watched.known().unwrap(), names);
    }
    watched.end().await;
}

#[tokio::test]
async fn a_file_written_in_place_is_seen() {
    let mut watched = Watched::start(Some(&file(&["a"])));
    watched.until(|e| *e == Event::InitDone).await;
    std::fs::write(watched.path(), file(&["a", "b"])).unwrap();
    watched.until(|e| *e == Event::InitDone).await;
    assert_eq!(watched.known(), Some(vec!["a".into(), "b".into()]));
    watched.end().await;
}

#[tokio::test]
async fn a_broken_file_is_reported_and_the_last_good_one_kept() {
    let mut watched = Watched::start(Some(&file(&["a", "b"])));
    watched.until(|e| *e == Event::InitDone).await;
    watched.rename_over("kind: [");
    let seen = watched.until(lost).await;
    let Event::Lost(why) = &seen[0] else {
        panic!("{seen:?}")
    };
    assert!(why.contains("nodes.yaml is broken: "), "{why}");
    assert_eq!(watched.known(), Some(vec!["a".into(), "b".into()]));
    watched.rename_over(&file(&["a"]));
    let seen = watched.until(|e| *e == Event::Restored).await;
    assert_eq!(watched.known(), Some(vec!["a".into()]));
    assert_eq!(seen.iter().filter(|e| lost(e)).count(), 0);
    watched.end().await;
}

#[tokio::test]
async fn a_missing_file_is_reported_and_waited_for() {
    let mut watched = Watched::start(None);
    let seen = watched.until(lost).await;
    let Event::Lost(why) = &seen[0] else {
        panic!("{seen:?}")
    };
    assert!(why.contains("No such file"), "{why}");
    std::fs::write(watched.path(), file(&["a"])).unwrap();
    watched.until(|e| *e == Event::Restored).await;
    assert_eq!(watched.known(), Some(vec!["a".into()]));
    std::fs::remove_file(watched.path()).unwrap();
    watched.until(lost).await;
    assert_eq!(watched.known(), Some(vec!["a".into()]));
    watched.end().await;
}

#[tokio::test]
async fn what_is_no_file_is_reported_and_not_waited_for() {
    let pipe = |path: &Path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let folder = |path: &Path| std::fs::create_dir(path).unwrap();
    for make in [&pipe as &dyn Fn(&Path), &folder] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes.yaml");
        make(&path);
        let error = look(&path, Known::default()).map(|_| ()).unwrap_err();
        assert!(matches!(error, FileError::NotFile(_)), "{error}");
    }
}

#[test]
fn a_file_being_written_is_not_read_yet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nodes.yaml");
    std::fs::write(&path, file(&["a"])).unwrap();
    let Ok(Look::Busy(stamp)) = look(&path, Known::default()) else {
        panic!("a file of this moment was read")
    };
    let seen = Known {
        seen: Some(stamp),
        ..Known::default()
    };
    let Ok(Look::Read(read, Ok(_))) = look(&path, seen) else {
        panic!("a quiet file was not read")
    };
    let known = Known {
        read: Some(read),
        seen: Some(stamp),
    };
    assert!(matches!(look(&path, known), Ok(Look::Same)));
    std::fs::write(&path, file(&["a", "b"])).unwrap();
    assert!(matches!(look(&path, known), Ok(Look::Busy(_))));
}

#[test]
fn a_file_too_large_is_refused_unread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nodes.yaml");
    let big = File::create(&path).unwrap();
    big.set_len(LARGEST + 1).unwrap();
    let Ok(Look::Busy(stamp)) = look(&path, Known::default()) else {
        panic!("a file of this moment was read")
    };
    let seen = Known {
        seen: Some(stamp),
        ..Known::default()
    };
    let error = look(&path, seen).map(|_| ()).unwrap_err();
    assert!(matches!(error, FileError::TooLarge { .. }), "{error}");
}
