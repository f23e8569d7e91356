//! What can be wrong with the files and the plugins: pure functions.

use std::path::Path;
use std::{fs, io::ErrorKind};

use tweed_core::atomic_file::ReplaceError;
use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_diagnosis::cni_plugins;

use super::TWEED;

/// The first config waits until a plugin has answered, at most for `limit`.
pub(super) fn waits_for(path: &Path, limit: std::time::Duration) -> Problem {
    let seconds = limit.as_secs();
    let text = format!(
        "it has not said yet which CNI versions it supports; the CNI config waits for it, at most for {seconds} s"
    );
    Problem::new(ProblemKind::Starting, path.display().to_string(), text)
}

/// What follows if the agent cannot ask the plugin at `path` for its versions.
pub(super) fn without(path: &Path) -> &'static str {
    if path.ends_with("portmap") {
        "it is not chained, and the hostPort of pods does nothing"
    } else if path.ends_with("bandwidth") {
        "it is not chained, and the bandwidth of pods is not limited"
    } else {
        "its versions are not known"
    }
}

/// Nothing is at the plugin's `path`. `was_there` says that it has been there before: then this
/// is where the runtime looks for it.
pub(super) fn missing(path: &Path, was_there: bool) -> Option<Problem> {
    let problem = |kind, text: &str| Problem::new(kind, path.display().to_string(), text);
    if path.ends_with(TWEED) && was_there {
        let text = "somebody has removed the CNI plugin: no pod can be added";
        return Some(install_again(problem(ProblemKind::PluginMissing, text)));
    }
    if path.ends_with(TWEED) {
        let text = "the CNI plugin is not where the runtime looks for it";
        return Some(problem(ProblemKind::PluginMissing, text));
    }
    path.ends_with("portmap").then(|| {
        let text =
            "the hostPort of pods does nothing, because the reference plugin portmap is not there";
        problem(ProblemKind::PortmapMissing, text)
    })
}

fn install_again(problem: Problem) -> Problem {
    problem.with_effect(Effect::NewPods).with_cure(
        "copy the program tweed there again (on Kubernetes: delete the pod of tweed on this \
         node, whose init container does it)",
    )
}

/// What a `portmap` says of itself names a version with CVE-2025-67499: 1.6.0 to 1.8.x.
pub(super) fn vulnerable(path: &Path, says: &str) -> Option<Problem> {
    let mut words = says.split_whitespace();
    let version = words.find_map(|word| word.strip_prefix("v1."))?;
    let minor = version.split('.').next()?.parse::<u32>().ok()?;
    (6..9).contains(&minor).then(|| {
        let text = format!(
            "portmap 1.{version} is one of 1.6.0 to 1.8.x: where it uses nftables, a hostPort takes \
             what is for other addresses with this port too (CVE-2025-67499)"
        );
        Problem::new(ProblemKind::PortmapVulnerable, path.display().to_string(), text)
    })
}

/// It does not run here, whoever tries. Without `tweed` no pod can be added.
pub(super) fn broken(path: &Path, why: &str) -> Problem {
    let problem = unusable(path, why);
    if path.ends_with(TWEED) {
        install_again(problem)
    } else {
        problem
    }
}

/// It is where nobody can run a program.
pub(super) fn no_exec(path: &Path) -> Problem {
    let problem = cni_plugins::no_exec(path, without(path));
    if path.ends_with(TWEED) {
        problem.with_effect(Effect::NewPods)
    } else {
        problem
    }
}

/// The runtime may be able to use it, or the agent at another time.
pub(super) fn unusable(path: &Path, why: &str) -> Problem {
    Problem::new(
        ProblemKind::PluginUnusable,
        path.display().to_string(),
        format!("this CNI plugin does not answer VERSION as it should: {why}"),
    )
}

/// What to know where the reference plugin `loopback` is missing: the node is ready, and no pod
/// starts if its runtime is one that needs it. A link may lead to what only the runtime sees.
pub(super) fn of_loopback(bin_dir: &Path) -> Option<String> {
    let path = bin_dir.join("loopback");
    let is_missing = fs::symlink_metadata(&path).is_err_and(|e| e.kind() == ErrorKind::NotFound);
    is_missing.then(|| {
        format!(
            "{} does not exist: {}",
            path.display(),
            cni_plugins::WITHOUT_LOOPBACK
        )
    })
}

/// A file that cannot be written, in the folder that `flag` names.
pub(super) fn unwritable(flag: &str, error: &ReplaceError) -> Problem {
    Problem::new(
        ProblemKind::FileUnwritable,
        error.path.display().to_string(),
        error.to_string(),
    )
    .with_cure(format!(
        "let the agent write there, or give {flag} another folder; it is tried again"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_alone_may_be_missing_in_silence() {
        let missing = ["tweed", "portmap", "bandwidth"]
            .map(|name| missing(&Path::new("/opt/cni/bin").join(name), false));
        let kinds = missing.map(|problem| problem.map(|problem| problem.kind.word()));
        assert_eq!(
            kinds,
            [Some("plugin-missing"), Some("portmap-missing"), None]
        );
    }
}
