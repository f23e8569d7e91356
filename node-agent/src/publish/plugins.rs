//! Which CNI plugins are there, and which versions of the protocol they support:
//! each is run with VERSION, once for each file.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{
    self,
    ErrorKind::{NotADirectory, NotFound, PermissionDenied},
};
use std::os::unix::{fs::MetadataExt as _, process::ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use futures::future::join_all;
use nix::libc::{ENOEXEC, SIGKILL};
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::time::timeout;
use tweed_cni::CniVersion;
use tweed_diagnosis::cni_plugins;

/// Maximum time for an answer to VERSION. A plugin does nothing else for it, so
/// it normally takes milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after which a plugin that did not answer in time is asked again: the machine may have
/// been busy.
const ASK_LATE_AGAIN: Duration = Duration::from_secs(10);
/// Time after which one that gave another answer is asked again: what it needs may have come.
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// Maximum size of an answer, in bytes: more than any plugin's list of versions.
const ANSWER_MAX: u64 = 64 * 1024;

/// What is known of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The file does not exist.
    Missing,
    /// There was no answer yet, and why: the machine may have been busy.
    Late(String),
    /// What is there is no plugin that runs on this machine, and why.
    Broken(String),
    /// The agent may not run it, and why. The runtime may.
    Denied(String),
    /// It is a symbolic link to this path, which the agent does not see. The runtime may.
    Unseen(PathBuf),
    /// It is there, but not the program that loads it. The runtime may have that.
    NoLoader,
    /// The CNI versions that both it and tweed support.
    Versions(BTreeSet<CniVersion>),
}

/// The answers so far, by path.
#[derive(Debug)]
pub(super) struct Plugins {
    asked: BTreeMap<PathBuf, Asked>,
    /// How long an answer may take.
    pub(super) limit: Duration,
}

impl Default for Plugins {
    fn default() -> Self {
        Self {
            asked: BTreeMap::new(),
            limit: ANSWER_TIMEOUT,
        }
    }
}

#[derive(Debug)]
struct Asked {
    file: Stamp,
    /// When it is asked again, although the file is the same.
    again: Option<Instant>,
    answer: Answer,
}

/// Distinguishes a file from the one that replaces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    mode: u32,
    modified: (i64, i64),
}

/// The permission bits by which anybody may execute a file.
const ANY_EXECUTE: u32 = 0o111;

impl Plugins {
    /// The answers of the plugins at `paths`, which are asked at once: all together take no
    /// longer than one. An answer is kept while the file is the same.
    pub(super) async fn ask(&mut self, paths: &[PathBuf]) -> Vec<Answer> {
        let mut questions = Vec::new();
        let mut unreadable = BTreeMap::new();
        for path in paths {
            match stamp(path) {
                Ok(None) => drop(self.asked.remove(path)),
                Ok(Some(file)) if self.known(path, file).is_some() => {}
                Ok(Some(file)) => questions.push(question(path, file, self.limit)),
                Err(error) => drop(unreadable.insert(path, error)),
            }
        }
        self.asked.extend(join_all(questions).await);
        let answer = |path: &PathBuf| match unreadable.get(path) {
            Some(error) => Answer::Late(format!("cannot look at it: {error}")),
            None => self.answer(path),
        };
        paths.iter().map(answer).collect()
    }

    fn answer(&self, path: &Path) -> Answer {
        match self.asked.get(path) {
            Some(asked) => asked.answer.clone(),
            None => cni_plugins::missing_target(path).map_or(Answer::Missing, Answer::Unseen),
        }
    }

    fn known(&self, path: &Path, file: Stamp) -> Option<&Asked> {
        let asked = self.asked.get(path);
        asked.filter(|asked| asked.still_holds(file))
    }
}

/// Asks the plugin at `path`, which is this file.
async fn question(path: &Path, file: Stamp, limit: Duration) -> (PathBuf, Asked) {
    let late = |why: String| (Answer::Late(why), Some(ASK_LATE_AGAIN));
    let (answer, again) = match timeout(limit, run_version(path)).await {
        Ok(Ok(versions)) => (Answer::Versions(versions), None),
        Ok(Err(error)) if error.may_pass() => late(error.to_string()),
        Ok(Err(AskError::Run(error))) if error.kind() == NotFound => {
            (Answer::NoLoader, Some(ASK_AGAIN))
        }
        Ok(Err(error)) if error.is_denial() && file.mode & ANY_EXECUTE != 0 => {
            (Answer::Denied(error.to_string()), Some(ASK_AGAIN))
        }
        Ok(Err(error)) => (Answer::Broken(error.to_string()), Some(ASK_AGAIN)),
        Err(_) => late(format!("no answer within {limit:?}")),
    };
    let asked = Asked {
        file,
        again: again.map(|after| Instant::now() + after),
        answer,
    };
    (path.to_owned(), asked)
}

impl Asked {
    fn still_holds(&self, file: Stamp) -> bool {
        self.file == file && self.again.is_none_or(|at| Instant::now() < at)
    }
}

/// What is at `path`, through symbolic links: a plugin is replaced when what its link leads to
/// is. None if there is no file.
///
/// # Errors
/// Why it is not known whether there is one.
fn stamp(path: &Path) -> io::Result<Option<Stamp>> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => metadata,
        Ok(_) => return Ok(None),
        Err(error) if [NotFound, NotADirectory].contains(&error.kind()) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(Stamp {
        inode: metadata.ino(),
        size: metadata.size(),
        mode: metadata.mode(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
    }))
}

#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("cannot run it: {0}")]
    Run(#[from] io::Error),
    #[error("its answer is not that of a CNI plugin: {0}")]
    Answer(#[from] serde_json::Error),
    #[error("it was killed")]
    Killed,
}

impl AskError {
    /// Whether the machine lacked something, such as memory or processes, and the plugin may
    /// be a good one.
    fn may_pass(&self) -> bool {
        match self {
            Self::Answer(_) => false,
            Self::Killed => true,
            Self::Run(error) if error.raw_os_error() == Some(ENOEXEC) => false,
            Self::Run(error) => ![NotFound, PermissionDenied].contains(&error.kind()),
        }
    }

    /// Whether the agent may not run it.
    fn is_denial(&self) -> bool {
        matches!(self, Self::Run(error) if error.kind() == PermissionDenied)
    }
}

/// CNI specification 1.1, "VERSION: probe plugin version support".
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VersionReply {
    supported_versions: Vec<String>,
}

async fn run_version(path: &Path) -> Result<BTreeSet<CniVersion>, AskError> {
    let mut child = Command::new(path)
        .env("CNI_COMMAND", "VERSION")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(br#"{"cniVersion":"1.0.0"}"#).await {
            // It may answer without having read its input.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
            _ => {}
        }
    }
    let mut text = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(ANSWER_MAX).read_to_end(&mut text).await?;
    }
    // As the kernel does where memory is short.
    if child.wait().await?.signal() == Some(SIGKILL) {
        return Err(AskError::Killed);
    }
    let reply: VersionReply = serde_json::from_slice(&text)?;
    let known = |version: &String| CniVersion::find(version);
    Ok(reply.supported_versions.iter().filter_map(known).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a plugin from a process of its own: a writer in this one could
    /// be inherited by another test's child, and exec would say "text busy".
    fn plugin(path: &Path, script: &str) {
        let line =
            r#"printf '#!/bin/sh\n%s\n' "$2" > "$1.new"; chmod 755 "$1.new"; mv "$1.new" "$1""#;
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", line, "sh"]).arg(path).arg(script);
        assert!(shell.status().unwrap().success());
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    }

    fn versions(given: &[&str]) -> Answer {
        Answer::Versions(given.iter().filter_map(|v| CniVersion::find(v)).collect())
    }

    /// The answer of one plugin.
    async fn ask(plugins: &mut Plugins, path: &Path) -> Answer {
        let answers = plugins.ask(&[path.to_owned()]).await;
        answers.into_iter().next().unwrap()
    }

    /// Each waits until the other was begun.
    #[test]
    fn plugins_are_asked_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["portmap", "bandwidth"].map(|name| dir.path().join(name));
        for (own, other) in [(0, 1), (1, 0)] {
            let script = format!(
                r#"> "$0.begun"; while [ ! -e {}.begun ]; do sleep 0.01; done
                echo '{{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}}'"#,
                paths[other].display()
            );
            plugin(&paths[own], &script);
        }
        runtime().block_on(async {
            let mut plugins = Plugins {
                limit: Duration::from_secs(60),
                ..Plugins::default()
            };
            let answers = plugins.ask(&paths).await;
            assert_eq!(answers, [versions(&["1.0.0"]), versions(&["1.0.0"])]);
        });
    }

    #[test]
    fn a_plugin_is_asked_once_and_again_when_it_was_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("portmap");
        let script = |list: &str| {
            format!(
                r#"[ "$CNI_COMMAND" = VERSION ] || exit 1; cat > /dev/null; echo x >> "$0.asked"
                echo '{{"cniVersion":"1.0.0","supportedVersions":[{list}]}}'"#
            )
        };
        plugin(&path, &script(r#""0.1.0","0.4.0","1.0.0""#));
        runtime().block_on(async {
            let mut plugins = Plugins::default();
            let old = versions(&["0.4.0", "1.0.0"]);
            assert_eq!(ask(&mut plugins, &path).await, old);
            assert_eq!(ask(&mut plugins, &path).await, old);
            let asked = || std::fs::read_to_string(dir.path().join("portmap.asked")).unwrap();
            assert_eq!(asked(), "x\n");
            plugin(&path, &script(r#""1.1.0""#));
            assert_eq!(ask(&mut plugins, &path).await, versions(&["1.1.0"]));
            std::fs::remove_file(&path).unwrap();
            assert_eq!(ask(&mut plugins, &path).await, Answer::Missing);
        });
    }

    /// An error of the disk, or of a share that is not there for a moment, removes no plugin.
    #[test]
    fn a_plugin_that_cannot_be_looked_at_is_late_and_not_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("portmap");
        std::os::unix::fs::symlink(&path, &path).unwrap();
        runtime().block_on(async {
            let answer = ask(&mut Plugins::default(), &path).await;
            assert!(matches!(&answer, Answer::Late(why) if why.contains("cannot look at it")));
            let beside_a_file = path.with_file_name("file").join("portmap");
            std::fs::write(path.with_file_name("file"), "").unwrap();
            let answer = ask(&mut Plugins::default(), &beside_a_file).await;
            assert_eq!(answer, Answer::Missing);
        });
    }

    #[test]
    fn a_program_that_is_no_plugin_is_broken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("portmap");
        plugin(&path, "echo hello");
        runtime().block_on(async {
            let answer = ask(&mut Plugins::default(), &path).await;
            let Answer::Broken(why) = answer else {
                panic!("{answer:?}");
            };
            assert!(why.contains("not that of a CNI plugin"), "{why}");
        });
    }

    /// As in the agent's container, which has neither the folder that a plugin is a link into,
    /// nor the shell or the C library of the host.
    #[test]
    fn a_plugin_that_only_the_host_can_run_is_not_broken() {
        let dir = tempfile::tempdir().unwrap();
        let (linked, path) = (dir.path().join("lib/portmap"), dir.path().join("portmap"));
        std::os::unix::fs::symlink(&linked, &path).unwrap();
        let elsewhere = dir.path().join("bandwidth");
        plugin(&elsewhere, "exit 1");
        let line = r#"sed -i '1s|.*|#!/nowhere/sh|' "$1""#;
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", line, "sh"]).arg(&elsewhere);
        assert!(shell.status().unwrap().success());
        runtime().block_on(async {
            let mut plugins = Plugins::default();
            let answers = plugins.ask(&[path.clone(), elsewhere]).await;
            assert_eq!(answers, [Answer::Unseen(linked.clone()), Answer::NoLoader]);

            std::fs::create_dir(dir.path().join("lib")).unwrap();
            let script = r#"echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}'"#;
            plugin(&linked, script);
            assert_eq!(ask(&mut plugins, &path).await, versions(&["1.0.0"]));
            // What the link leads to is replaced, as by an upgrade of the host's package.
            plugin(&linked, &script.replace("[\"1.0.0\"]", "[\"0.4.0\"]"));
            assert_eq!(ask(&mut plugins, &path).await, versions(&["0.4.0"]));
        });
    }

    #[test]
    fn a_file_that_cannot_be_run_is_broken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("portmap");
        std::fs::write(&path, "").unwrap();
        runtime().block_on(async {
            let answer = ask(&mut Plugins::default(), &path).await;
            assert!(
                matches!(&answer, Answer::Broken(why) if why.contains("cannot run it")),
                "{answer:?}"
            );
        });
    }
}
