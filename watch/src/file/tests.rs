use std::path::Path;

use tweed_core::object::network_policy::NetworkPolicy;
use tweed_core::object::node::Node;

use super::*;
use crate::tests::{Store, kinds::for_each_kind};

for_each_kind!(async
    a_file_replaced_by_rename_is_noticed,
    a_file_written_in_place_is_noticed,
    a_broken_file_is_reported_and_the_last_good_one_kept,
    a_missing_file_is_reported_and_waited_for,
);

const OWN_NODE: &str = "me";

/// A source of a file, and what a consumer knows from it.
struct Watched<K> {
    folder: tempfile::TempDir,
    events: mpsc::Receiver<Event<K>>,
    store: Store<K>,
    task: tokio::task::JoinHandle<()>,
}

impl<K: Kind> Watched<K> {
    fn start(content: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes.yaml");
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        let (sender, events) = mpsc::channel(4);
        let task = tokio::spawn(FileSource::new(path, OWN_NODE).run(sender));
        Self {
            folder,
            events,
            store: Store::new(),
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

    /// Receives events up to one that `last` accepts; returns all of them.
    async fn until(&mut self, last: impl Fn(&Event<K>) -> bool) -> Vec<Event<K>> {
        self.store.until(&mut self.events, last).await
    }

    /// Names of the objects that a consumer knows; `None` before the first list.
    fn known(&self) -> Option<Vec<String>> {
        self.store.names()
    }

    /// Ends the source, which must not have ended by itself.
    async fn end(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

/// A file of this node's cluster.
fn file<K: Kind>(names: &[&str]) -> String {
    let own = if K::NAME == Node::NAME {
        String::new()
    } else {
        objects::<Node>(&[OWN_NODE])
    };
    own + &objects::<K>(names)
}

fn objects<K: Kind>(names: &[&str]) -> String {
    let objects = names.iter();
    objects
        .map(|name| format!("---\nkind: {}\nmetadata: {{name: {name}}}\n", K::NAME))
        .collect()
}

fn lost<K>(event: &Event<K>) -> bool {
    matches!(event, Event::Lost(_))
}

async fn a_file_replaced_by_rename_is_noticed<K: Kind>() {
    let mut watched = Watched::<K>::start(Some(&file::<K>(&["a", "b"])));
    let seen = watched.until(|e| *e == Event::InitDone).await;
    assert_eq!(seen[0], Event::Init);
    assert_eq!(seen.len(), 4);
    assert_eq!(watched.known(), Some(vec!["a".into(), "b".into()]));
    for names in [vec!["a", "c"], vec!["a", "d"]] {
        watched.rename_over(&file::<K>(&names));
        watched.until(|e| *e == Event::InitDone).await;
        assert_eq!(watched.known().unwrap(), names);
    }
    watched.end().await;
}

async fn a_file_written_in_place_is_noticed<K: Kind>() {
    let mut watched = Watched::<K>::start(Some(&file::<K>(&["a"])));
    watched.until(|e| *e == Event::InitDone).await;
    std::fs::write(watched.path(), file::<K>(&["a", "b"])).unwrap();
    watched.until(|e| *e == Event::InitDone).await;
    assert_eq!(watched.known(), Some(vec!["a".into(), "b".into()]));
    watched.end().await;
}

async fn a_broken_file_is_reported_and_the_last_good_one_kept<K: Kind>() {
    let mut watched = Watched::<K>::start(Some(&file::<K>(&["a", "b"])));
    watched.until(|e| *e == Event::InitDone).await;
    watched.rename_over("kind: [");
    let seen = watched.until(lost).await;
    let Event::Lost(why) = &seen[0] else {
        panic!("{seen:?}")
    };
    assert!(why.reason.contains("nodes.yaml is broken: "), "{why:?}");
    assert_eq!(watched.known(), Some(vec!["a".into(), "b".into()]));
    watched.rename_over(&file::<K>(&["a"]));
    let seen = watched.until(|e| *e == Event::Restored).await;
    assert_eq!(watched.known(), Some(vec!["a".into()]));
    assert_eq!(seen.iter().filter(|e| lost(e)).count(), 0);
    watched.end().await;
}

/// Without policies everything would be allowed, and without Services none is reached.
#[tokio::test]
async fn a_file_that_is_empty_or_of_another_cluster_takes_nothing_away() {
    let other = objects::<Node>(&["other"]) + &objects::<NetworkPolicy>(&["b"]);
    for file_now in [String::new(), objects::<NetworkPolicy>(&["b"]), other] {
        let mut watched = Watched::<NetworkPolicy>::start(Some(&file::<NetworkPolicy>(&["a"])));
        watched.until(|e| *e == Event::InitDone).await;
        watched.rename_over(&file_now);
        let seen = watched.until(lost).await;
        let Event::Lost(why) = &seen[0] else {
            panic!("{seen:?}")
        };
        assert!(why.reason.contains("it has no Node me"), "{why:?}");
        assert_eq!(watched.known(), Some(vec!["a".into()]));
        // Nothing at all is what a whole file may say.
        watched.rename_over(&file::<NetworkPolicy>(&[]));
        watched.until(|e| *e == Event::Restored).await;
        assert_eq!(watched.known(), Some(Vec::new()));
        watched.end().await;
    }
}

async fn a_missing_file_is_reported_and_waited_for<K: Kind>() {
    let mut watched = Watched::<K>::start(None);
    let seen = watched.until(lost).await;
    let Event::Lost(why) = &seen[0] else {
        panic!("{seen:?}")
    };
    assert!(why.reason.contains("No such file"), "{why:?}");
    std::fs::write(watched.path(), file::<K>(&["a"])).unwrap();
    watched.until(|e| *e == Event::Restored).await;
    assert_eq!(watched.known(), Some(vec!["a".into()]));
    std::fs::remove_file(watched.path()).unwrap();
    watched.until(lost).await;
    assert_eq!(watched.known(), Some(vec!["a".into()]));
    watched.end().await;
}

/// As when what it is on is unmounted for a moment: the file itself has not changed.
#[tokio::test]
async fn a_file_that_was_out_of_reach_is_as_good_as_before() {
    let mut watched = Watched::<Node>::start(Some(&file::<Node>(&["me"])));
    watched
        .until(|event| matches!(event, Event::InitDone))
        .await;
    let folder = watched.folder.path().to_owned();
    let away = folder.with_extension("away");
    std::fs::rename(&folder, &away).unwrap();
    watched.until(lost).await;
    std::fs::rename(&away, &folder).unwrap();
    watched
        .until(|event| matches!(event, Event::Restored))
        .await;
    assert_eq!(watched.known().unwrap(), ["me"]);
    watched.end().await;
}

#[test]
fn a_pipe_or_a_folder_is_refused() {
    let pipe = |path: &Path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let folder = |path: &Path| std::fs::create_dir(path).unwrap();
    for make in [&pipe as &dyn Fn(&Path), &folder] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes.yaml");
        make(&path);
        let error = check::<Node>(&path, OWN_NODE, Known::default())
            .map(|_| ())
            .unwrap_err();
        assert!(
            matches!(
                error,
                FileError::Read {
                    source: ReadError::NotRegular,
                    ..
                }
            ),
            "{error}"
        );
    }
}

/// Makes a file one that has just been written, for however long a busy machine takes.
fn is_being_written(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    let later = SystemTime::now() + Duration::from_secs(3600);
    file.set_modified(later).unwrap();
}

#[test]
fn a_file_being_written_is_not_read_yet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nodes.yaml");
    std::fs::write(&path, file::<Node>(&["a"])).unwrap();
    is_being_written(&path);
    let Ok(Check::Busy(stamp)) = check::<Node>(&path, OWN_NODE, Known::default()) else {
        panic!("a file of this moment was read")
    };
    let seen = Known {
        busy: Some(stamp),
        ..Known::default()
    };
    let Ok(Check::Read(read, Ok(_))) = check::<Node>(&path, OWN_NODE, seen) else {
        panic!("a quiet file was not read")
    };
    let known = Known {
        read: Some(read),
        busy: Some(stamp),
    };
    assert!(matches!(
        check::<Node>(&path, OWN_NODE, known),
        Ok(Check::Same)
    ));
    std::fs::write(&path, file::<Node>(&["a", "b"])).unwrap();
    is_being_written(&path);
    assert!(matches!(
        check::<Node>(&path, OWN_NODE, known),
        Ok(Check::Busy(_))
    ));
}

#[test]
fn a_file_too_large_is_refused_unread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nodes.yaml");
    let big = File::create(&path).unwrap();
    big.set_len(limits::NODES + 1).unwrap();
    is_being_written(&path);
    let Ok(Check::Busy(stamp)) = check::<Node>(&path, OWN_NODE, Known::default()) else {
        panic!("a file of this moment was read")
    };
    let seen = Known {
        busy: Some(stamp),
        ..Known::default()
    };
    let error = check::<Node>(&path, OWN_NODE, seen)
        .map(|_| ())
        .unwrap_err();
    assert!(
        matches!(
            error,
            FileError::Read {
                source: ReadError::TooLong { .. },
                ..
            }
        ),
        "{error}"
    );
}
