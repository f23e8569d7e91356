use super::*;
use crate::config;

fn node(name: &str) -> Node {
    Node {
        name: name.to_owned(),
        pod_cidrs: vec!["10.244.1.0/24".to_owned()],
        labels: [("zone".to_owned(), name.to_owned())].into(),
        ..Node::default()
    }
}

/// A node `me` with a run folder of its own.
struct Fixture {
    folder: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

/// A run of the agent: what it keeps, and its state.
struct Run {
    kept: KeptNodes,
    state: State,
}

impl Fixture {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            runtime: tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(NODES_KEPT)
    }

    /// Puts a folder in the file's place, so that it cannot be written.
    fn obstruct(&self) {
        fs::remove_file(self.path()).unwrap();
        fs::create_dir(self.path()).unwrap();
    }

    fn clear(&self) {
        fs::remove_dir(self.path()).unwrap();
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    fn kept(&self, node: &str, source: &str, boot_id: &str) -> KeptNodes {
        let run_dir = self.folder.path().to_str().unwrap();
        let line = format!("--node-name {node} --run-dir {run_dir} --nodes {source}");
        KeptNodes::new(&Arc::new(config::of_line(&line)), boot_id)
    }

    /// A run that starts with what the one before has kept.
    fn start(&self) -> Run {
        let kept = self.kept("me", "/nodes.yaml", "boot");
        let config = config::of_line("--node-name me");
        let state = State::new(&config, self.runtime.block_on(kept.load())).unwrap();
        Run { kept, state }
    }

    fn apply(&self, run: &mut Run, event: Event<Node>) {
        self.runtime.block_on(run.kept.update(&run.state, event));
    }

    fn list(&self, run: &mut Run, nodes: &[&str]) {
        self.apply(run, Event::Init);
        for name in nodes {
            self.apply(run, Event::InitApply(node(name)));
        }
        self.apply(run, Event::InitDone);
    }

    /// The names of the Nodes that a start would use.
    fn loaded(&self, kept: &KeptNodes) -> Vec<String> {
        let nodes = self.runtime.block_on(kept.load());
        nodes.into_iter().map(|node| node.name).collect()
    }

    fn next(&self) -> Vec<String> {
        self.loaded(&self.kept("me", "/nodes.yaml", "boot"))
    }
}

#[test]
fn the_next_run_knows_what_this_one_knew() {
    let fixture = Fixture::new();
    let mut run = fixture.start();
    assert_eq!(fixture.next(), Vec::<String>::new());
    fixture.list(&mut run, &["me", "a", "b"]);
    assert_eq!(fixture.next(), ["a", "b", "me"]);
    let changed = Node {
        uid: "7".to_owned(),
        ..node("a")
    };
    fixture.apply(&mut run, Event::Apply(changed.clone()));
    fixture.apply(&mut run, Event::Apply(node("c")));
    fixture.apply(&mut run, Event::Delete("b".into()));
    let next = fixture.start();
    let nodes = &next.state.read().nodes;
    let names: Vec<&str> = nodes.nodes().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["a", "c", "me"]);
    assert_eq!(nodes.get(&"a".into()), Some(&changed));
    assert!(!nodes.is_current());
}

#[test]
fn the_nodes_that_a_version_without_labels_has_kept_are_used() {
    let fixture = Fixture::new();
    let mut run = fixture.start();
    fixture.list(&mut run, &["me", "a"]);
    let with = fixture.text();
    let without = with
        .replace(r#","labels":{"zone":"me"}"#, "")
        .replace(r#","labels":{"zone":"a"}"#, "");
    assert!(with.contains("labels") && !without.contains("labels"));
    fs::write(fixture.path(), without).unwrap();
    assert_eq!(fixture.next(), ["a", "me"]);
    // And they get their labels from the next list.
    let mut run = fixture.start();
    fixture.list(&mut run, &["me", "a"]);
    assert_eq!(fixture.text(), with);
}

#[test]
fn one_node_of_many_that_changes_writes_itself_and_a_heartbeat_nothing() {
    let fixture = Fixture::new();
    let mut run = fixture.start();
    let numbered: Vec<String> = (0..500).map(|n| format!("n{n}")).collect();
    let names: Vec<&str> = numbered.iter().map(String::as_str).chain(["me"]).collect();
    fixture.list(&mut run, &names);
    let whole = fixture.text();
    fixture.apply(&mut run, Event::Apply(node("n7")));
    fixture.apply(&mut run, Event::Lost("why".into()));
    fixture.apply(&mut run, Event::Restored);
    assert_eq!(fixture.text(), whole);
    fixture.apply(&mut run, Event::Delete("n7".into()));
    let text = fixture.text();
    assert_eq!(text.strip_prefix(&whole), Some("{\"deleted\":\"n7\"}\n"));
}

#[test]
fn the_file_does_not_grow_without_limit() {
    let fixture = Fixture::new();
    let mut run = fixture.start();
    fixture.list(&mut run, &["me", "a"]);
    let mut longest = 0;
    for n in 0..2000 {
        let changed = Node {
            uid: format!("{n:0>64}"),
            ..node("a")
        };
        fixture.apply(&mut run, Event::Apply(changed));
        longest = longest.max(fs::metadata(fixture.path()).unwrap().len());
    }
    assert!(longest < MIN_APPENDED + 2048, "{longest}");
    let next = fixture.start();
    let uid = next
        .state
        .read()
        .nodes
        .get(&"a".into())
        .unwrap()
        .uid
        .clone();
    assert_eq!(uid, format!("{:0>64}", 1999));
}

#[test]
fn the_last_good_snapshot_is_kept_while_the_own_node_is_missing() {
    let fixture = Fixture::new();
    let mut run = fixture.start();
    fixture.list(&mut run, &["me", "a"]);
    fixture.apply(&mut run, Event::Delete("me".into()));
    fixture.apply(&mut run, Event::Delete("a".into()));
    fixture.list(&mut run, &["x"]);
    assert_eq!(fixture.next(), ["a", "me"]);
    fixture.apply(&mut run, Event::Apply(node("me")));
    assert_eq!(fixture.next(), ["me", "x"]);
}

#[test]
fn a_file_of_something_else_is_not_used() {
    let fixture = Fixture::new();
    let mut run = fixture.start();
    fixture.list(&mut run, &["me", "a"]);
    for (node, source, boot_id) in [
        ("a", "/nodes.yaml", "boot"),
        ("me", "/other.yaml", "boot"),
        ("me", "/nodes.yaml", "other boot"),
    ] {
        let other = fixture.kept(node, source, boot_id);
        assert_eq!(fixture.loaded(&other), Vec::<String>::new());
    }
    assert_eq!(fixture.next(), ["a", "me"]);
}

/// `kubeadm reset` and a join of another cluster, without a boot in between: in a pod the URL
/// of the API server is the same. A cluster that changes its authority has two for a time.
#[test]
fn a_file_of_another_cluster_with_the_same_url_is_not_used() {
    let header = |authorities: &[&str]| Header {
        format: FORMAT,
        boot_id: "boot".to_owned(),
        node: "me".to_owned(),
        source: "https://10.96.0.1/".to_owned(),
        authorities: authorities.iter().map(|one| (*one).to_owned()).collect(),
    };
    for (written, read, is_used) in [
        (&["a"][..], &["a"][..], true),
        (&["a"], &["b"], false),
        (&["a"], &["a", "b"], true),
        (&["a", "b"], &["b"], true),
        (&[], &["b"], true),
        (&["a"], &[], true),
    ] {
        let mut text = Vec::new();
        let nodes = |count| [node("me")].into_iter().skip(count).collect();
        write(&mut text, &header(written), nodes).unwrap();
        let nodes = parse(&text, &header(read));
        assert_eq!(nodes.is_ok(), is_used, "{written:?} {read:?}");
    }
    let (old, new) = (kubeconfig("a"), kubeconfig("b"));
    let identity = |kubeconfig: &tempfile::TempDir| {
        let path = kubeconfig.path().join("kubeconfig");
        let line = format!("--node-name me --kubeconfig {}", path.display());
        let source = config::of_line(&line).source;
        Fixture::new().runtime.block_on(source.identity()).unwrap()
    };
    let (old, new) = (identity(&old), identity(&new));
    assert_eq!(old.name, new.name);
    assert_eq!((old.authorities.len(), new.authorities.len()), (1, 1));
    assert_ne!(old.authorities, new.authorities);
}

/// A folder with a kubeconfig of a cluster with an authority of its own.
fn kubeconfig(authority: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let authority = rcgen::generate_simple_self_signed([authority.to_owned()]).unwrap();
    fs::write(folder.path().join("ca.crt"), authority.cert.pem()).unwrap();
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
        clusters: [{name: c, cluster: {server: 'https://10.96.0.1', certificate-authority: ca.crt}}]\n\
        users: [{name: c, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: c}}]\n";
    fs::write(folder.path().join("kubeconfig"), text).unwrap();
    folder
}

#[test]
fn a_damaged_or_incomplete_file_is_not_used() {
    let fixture = Fixture::new();
    let mut run = fixture.start();
    fixture.list(&mut run, &["me", "a"]);
    let good = fixture.text();
    let damaged = [
        String::new(),
        "\n".to_owned(),
        "no JSON\n".to_owned(),
        good.replace("\"format\":1", "\"format\":2"),
        good.replace("\"listed\"\n", ""),
        good.replace("\"name\":\"me\"", "\"name\":\"you\""),
        format!("{good}{{\"news\":1}}\n"),
        format!("{good}\"listed\""),
    ];
    for text in damaged
        .iter()
        .map(String::as_str)
        .chain([&good[..good.len() / 2]])
    {
        fs::write(fixture.path(), text).unwrap();
        assert_eq!(fixture.next(), Vec::<String>::new(), "{text:?}");
    }
    fs::write(fixture.path(), [0xff, b'\n']).unwrap();
    assert_eq!(fixture.next(), Vec::<String>::new());
    fs::write(fixture.path(), good).unwrap();
    assert_eq!(fixture.next(), ["a", "me"]);
}

#[test]
fn a_file_that_cannot_be_written_is_not_left_with_what_is_no_longer_true() {
    let fixture = Fixture::new();
    let mut run = fixture.start();
    fixture.list(&mut run, &["me", "a"]);
    fixture.obstruct();
    fixture.apply(&mut run, Event::Apply(node("b")));
    fixture.apply(&mut run, Event::Apply(node("c")));
    assert_eq!(fixture.next(), Vec::<String>::new());
    fixture.clear();
    fixture.apply(&mut run, Event::Apply(node("d")));
    assert_eq!(fixture.next(), ["a", "b", "c", "d", "me"]);
}

#[test]
fn a_heartbeat_of_the_own_node_has_a_failed_write_tried_again() {
    let fixture = Fixture::new();
    let mut run = fixture.start();
    fixture.list(&mut run, &["me", "a"]);
    fixture.obstruct();
    fixture.apply(&mut run, Event::Apply(node("b")));
    fixture.apply(&mut run, Event::Apply(node("me")));
    fixture.clear();
    fixture.apply(&mut run, Event::Apply(node("a")));
    assert!(!fixture.path().exists(), "those of thousands do not");
    fixture.apply(&mut run, Event::Apply(node("me")));
    assert_eq!(fixture.next(), ["a", "b", "me"]);
    let whole = fixture.text();
    fixture.apply(&mut run, Event::Apply(node("me")));
    assert_eq!(fixture.text(), whole);
}

#[test]
fn a_stale_file_that_cannot_be_removed_is_an_error_in_the_log() {
    let fixture = Fixture::new();
    let mut run = fixture.start();
    let log = fixture.folder.path().join("log");
    let subscriber = tracing_subscriber::fmt()
        .with_writer(Arc::new(fs::File::create(&log).unwrap()))
        .finish();
    let logged = || {
        let text = fs::read_to_string(&log).unwrap();
        fs::write(&log, "").unwrap();
        let has = |level: &str| text.matches(level).count();
        (has("WARN"), has("ERROR"))
    };
    // While there is only one in the process, `tracing` asks that of the thread that comes to
    // a message first, which may be another test's that has none, and then drops it for all.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    tracing::subscriber::with_default(subscriber, || {
        fixture.list(&mut run, &["me", "a"]);
        fixture.obstruct();
        assert_eq!(logged(), (0, 0));
        fixture.apply(&mut run, Event::Apply(node("b")));
        fixture.apply(&mut run, Event::Apply(node("c")));
        assert_eq!(logged(), (0, 1), "once");
        fixture.clear();
        fixture.apply(&mut run, Event::Apply(node("d")));
        assert_eq!(logged(), (0, 0));
        // What is gone need not be removed.
        fs::remove_file(fixture.path()).unwrap();
        fixture.apply(&mut run, Event::Apply(node("e")));
        assert_eq!(logged(), (1, 0));
    });
}
