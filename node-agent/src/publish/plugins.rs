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
use tweed_core::problem::Problem;
use tweed_diagnosis::cni_plugins;

use super::problems;

/// Maximum time for an answer to VERSION. A plugin does nothing else for it, so
/// it normally takes milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after which a plugin that is not usable is asked again, although the file is the same:
/// the machine may have been busy, or what it needs may have come.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Maximum size of an answer, in bytes: more than any plugin's list of versions.
const ANSWER_MAX: u64 = 64 * 1024;

/// What is known of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plugin {
    /// The file does not exist.
    Missing,
    /// The CNI versions that both it and tweed support: one at least.
    Usable(BTreeSet<CniVersion>),
    /// It is there, and is not chained.
    Unusable {
        /// Why.
        problem: Problem,
        /// Whether the machine may only lack something, such as time or memory: then it may be
        /// a good one.
        may_pass: bool,
    },
}

/// What is known of the plugins, by path.
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

#[derive(Debug, Clone)]
struct Asked {
    /// The file that was asked; none if there was nothing to ask.
    file: Option<Stamp>,
    at: Instant,
    plugin: Plugin,
    /// What is wrong with it although it is usable.
    warning: Option<Problem>,
}

/// Distinguishes a file from the one that replaces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    mode: u32,
    modified: (i64, i64),
    /// Whether nobody can run a program of its file system.
    no_exec: bool,
}

/// The permission bits by which anybody may execute a file.
const ANY_EXECUTE: u32 = 0o111;

impl Plugins {
    /// The plugins at `paths`, which are asked at once: all together take no longer than one.
    /// An answer is kept while the file is the same.
    pub(super) async fn ask(&mut self, paths: &[PathBuf]) -> Vec<Plugin> {
        let asked = join_all(paths.iter().map(|path| self.ask_one(path))).await;
        self.asked = paths.iter().cloned().zip(asked.iter().cloned()).collect();
        asked.into_iter().map(|asked| asked.plugin).collect()
    }

    /// What is wrong with those that are usable.
    pub(super) fn warnings(&self) -> impl Iterator<Item = &Problem> {
        self.asked
            .values()
            .filter_map(|asked| asked.warning.as_ref())
    }

    async fn ask_one(&self, path: &Path) -> Asked {
        let (file, plugin) = match stamp(path) {
            Ok(Some(file)) => match self.asked.get(path) {
                Some(asked) if asked.still_holds(file) => return asked.clone(),
                _ => (Some(file), question(path, file, self.limit).await),
            },
            Ok(None) => (None, absent(path)),
            Err(error) => {
                let problem = problems::unusable(path, &format!("cannot look at it: {error}"));
                let may_pass = true;
                (None, Plugin::Unusable { problem, may_pass })
            }
        };
        let warning = match &plugin {
            Plugin::Usable(_) if path.ends_with("portmap") => {
                let text = run(path, None, self.limit).await.unwrap_or_default();
                problems::vulnerable(path, &String::from_utf8_lossy(&text))
            }
            _ => None,
        };
        let at = Instant::now();
        Asked {
            file,
            at,
            plugin,
            warning,
        }
    }
}

/// No file is at `path`. If a link is, the runtime may see what it leads to.
fn absent(path: &Path) -> Plugin {
    match cni_plugins::missing_target(path) {
        None => Plugin::Missing,
        Some(target) => Plugin::Unusable {
            problem: cni_plugins::link_leads_nowhere(path, &target, problems::without(path)),
            may_pass: false,
        },
    }
}

/// Asks the plugin at `path`, which is this file.
async fn question(path: &Path, file: Stamp, limit: Duration) -> Plugin {
    let error = match run(path, Some("VERSION"), limit).await {
        Ok(reply) => match versions(&reply) {
            Ok(versions) => return Plugin::Usable(versions),
            Err(why) => {
                let problem = problems::broken(path, &why);
                let may_pass = false;
                return Plugin::Unusable { problem, may_pass };
            }
        },
        Err(error) => error,
    };
    let why = match error.raw_os_error() {
        Some(_) => format!("cannot run it: {error}"),
        None => error.to_string(),
    };
    // The machine lacked something, such as memory or processes: the plugin may be a good one.
    let is_refused = [NotFound, PermissionDenied].contains(&error.kind());
    let may_pass = !is_refused && error.raw_os_error() != Some(ENOEXEC);
    let problem = match error.kind() {
        NotFound => cni_plugins::loader_is_missing(path, problems::without(path)),
        PermissionDenied if file.no_exec => problems::no_exec(path),
        // The runtime may run it.
        PermissionDenied if file.mode & ANY_EXECUTE != 0 => problems::unusable(path, &why),
        _ if may_pass => problems::unusable(path, &why),
        _ => problems::broken(path, &why),
    };
    Plugin::Unusable { problem, may_pass }
}

impl Asked {
    fn still_holds(&self, file: Stamp) -> bool {
        let is_usable = matches!(self.plugin, Plugin::Usable(_));
        self.file == Some(file) && (is_usable || self.at.elapsed() < ASK_AGAIN)
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
        no_exec: cni_plugins::is_no_exec(path),
    }))
}

/// CNI specification 1.1, "VERSION: probe plugin version support".
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VersionReply {
    supported_versions: Vec<String>,
}

fn versions(reply: &[u8]) -> Result<BTreeSet<CniVersion>, String> {
    let reply: VersionReply = serde_json::from_slice(reply)
        .map_err(|error| format!("its answer is not that of a CNI plugin: {error}"))?;
    let known = |version: &String| CniVersion::find(version);
    let versions: BTreeSet<_> = reply.supported_versions.iter().filter_map(known).collect();
    if versions.is_empty() {
        return Err("it knows no CNI version that tweed does (0.3.1 to 1.1.0)".to_owned());
    }
    Ok(versions)
}

/// What a plugin answers to a verb within `limit`. Without a verb the reference plugins write to
/// stderr what they are (`skel.PluginMainFuncs` of containernetworking/cni).
async fn run(path: &Path, verb: Option<&str>, limit: Duration) -> io::Result<Vec<u8>> {
    match timeout(limit, answer(path, verb)).await {
        Ok(answer) => answer,
        Err(_) => Err(io::Error::other(format!("no answer within {limit:?}"))),
    }
}

async fn answer(path: &Path, verb: Option<&str>) -> io::Result<Vec<u8>> {
    let mut command = Command::new(path);
    match verb {
        Some(verb) => command
            .env("CNI_COMMAND", verb)
            .stdout(Stdio::piped())
            .stderr(Stdio::null()),
        None => command
            .env_remove("CNI_COMMAND")
            .stdout(Stdio::null())
            .stderr(Stdio::piped()),
    };
    let mut child = command.stdin(Stdio::piped()).kill_on_drop(true).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(br#"{"cniVersion":"1.0.0"}"#).await {
            // It may answer without having read its input.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
            _ => {}
        }
    }
    let mut text = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(ANSWER_MAX).read_to_end(&mut text).await?;
    } else if let Some(stderr) = child.stderr.take() {
        stderr.take(ANSWER_MAX).read_to_end(&mut text).await?;
    }
    // As the kernel does where memory is short.
    if child.wait().await?.signal() == Some(SIGKILL) {
        return Err(io::Error::other("it was killed"));
    }
    Ok(text)
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

    fn versions(given: &[&str]) -> Plugin {
        Plugin::Usable(given.iter().filter_map(|v| CniVersion::find(v)).collect())
    }

    /// Why a plugin is not usable, and whether that may pass.
    fn unusable(plugin: &Plugin) -> (String, bool) {
        let Plugin::Unusable { problem, may_pass } = plugin else {
            panic!("{plugin:?}");
        };
        (problem.to_string(), *may_pass)
    }

    /// The answer of one plugin.
    async fn ask(plugins: &mut Plugins, path: &Path) -> Plugin {
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
            assert_eq!(ask(&mut plugins, &path).await, Plugin::Missing);
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
            let (text, may_pass) = unusable(&answer);
            assert!(text.contains("cannot look at it") && may_pass, "{text}");
            let beside_a_file = path.with_file_name("file").join("portmap");
            std::fs::write(path.with_file_name("file"), "").unwrap();
            let answer = ask(&mut Plugins::default(), &beside_a_file).await;
            assert_eq!(answer, Plugin::Missing);
        });
    }

    #[test]
    fn a_portmap_with_a_known_vulnerability_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("portmap");
        runtime().block_on(async {
            for (version, is_named) in [
                ("v1.1.1", false),
                ("v1.6.0", true),
                ("v1.8.0", true),
                ("v1.9.0", false),
                ("version unknown", false),
            ] {
                let script = format!(
                    r#"[ -n "$CNI_COMMAND" ] || {{ echo "CNI portmap plugin {version}" >&2; exit; }}
                    echo '{{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}}'"#
                );
                plugin(&path, &script);
                let mut plugins = Plugins::default();
                assert_eq!(ask(&mut plugins, &path).await, versions(&["1.0.0"]));
                let warnings: Vec<_> = plugins.warnings().map(ToString::to_string).collect();
                assert_eq!(!warnings.is_empty(), is_named, "{version}: {warnings:?}");
            }
        });
    }

    #[test]
    fn a_program_that_is_no_plugin_is_broken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("portmap");
        plugin(&path, "echo hello");
        runtime().block_on(async {
            let answer = ask(&mut Plugins::default(), &path).await;
            let (text, may_pass) = unusable(&answer);
            assert!(
                text.contains("not that of a CNI plugin") && !may_pass,
                "{text}"
            );
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
            for (answer, parts) in answers.iter().zip([
                [
                    format!("a link to {}", linked.display()),
                    "hostPort".to_owned(),
                    format!("see {} ", dir.path().join("lib").display()),
                    "agentSees".to_owned(),
                ],
                [
                    "program that loads",
                    "bandwidth",
                    "not seen",
                    "statically linked",
                ]
                .map(str::to_owned),
            ]) {
                let (text, may_pass) = unusable(answer);
                assert!(!may_pass);
                for part in parts {
                    assert!(text.contains(&part), "{part}: {text}");
                }
            }

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
            let (text, may_pass) = unusable(&answer);
            assert!(text.contains("cannot run it") && !may_pass, "{text}");
        });
    }
}
