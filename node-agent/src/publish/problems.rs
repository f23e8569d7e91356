//! What can be wrong with the files and the plugins: pure functions.

use std::path::Path;
use std::{fs, io::ErrorKind};

use tweed_core::atomic_file::ReplaceError;
use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_diagnosis::cni_plugins;

use super::{TWEED, plugins::Answer};

/// A problem for each plugin that is missing or cannot be used. `had_plugin` says that `tweed`
/// has been in the folder before.
pub(super) fn of_plugins(
    bin_dir: &Path,
    answers: &[(&'static str, Answer)],
    had_plugin: bool,
) -> Vec<Problem> {
    let problem = |(name, answer): &(&'static str, Answer)| match answer {
        Answer::Missing if *name == TWEED && had_plugin => Some(gone(&bin_dir.join(name))),
        Answer::Missing => missing(&bin_dir.join(name), name),
        Answer::Unseen(target) => Some(cni_plugins::link_leads_nowhere(
            &bin_dir.join(name),
            target,
            without(name),
        )),
        Answer::NoLoader => {
            let path = bin_dir.join(name);
            Some(cni_plugins::loader_is_missing(&path, without(name)))
        }
        Answer::Late(why) | Answer::Denied(why) => Some(unusable(&bin_dir.join(name), why)),
        Answer::Broken(why) => Some(broken(&bin_dir.join(name), name, why)),
        Answer::Versions(versions) if versions.is_empty() => Some(broken(
            &bin_dir.join(name),
            name,
            "it knows no CNI version that tweed does (0.3.1 to 1.1.0)",
        )),
        Answer::Versions(_) => None,
    };
    answers.iter().filter_map(problem).collect()
}

/// The first config waits until a plugin has answered, at most for `limit`.
pub(super) fn waits_for(path: &Path, limit: std::time::Duration) -> Problem {
    let seconds = limit.as_secs();
    let text = format!(
        "it has not said yet which CNI versions it supports; the CNI config waits for it, at most for {seconds} s"
    );
    Problem::new(ProblemKind::Starting, path.display().to_string(), text)
}

/// What follows if the agent cannot ask a plugin for its versions.
fn without(name: &str) -> &'static str {
    match name {
        "portmap" => "it is not chained, and the hostPort of pods does nothing",
        "bandwidth" => "it is not chained, and the bandwidth of pods is not limited",
        _ => "its versions are not known",
    }
}

fn missing(path: &Path, name: &str) -> Option<Problem> {
    let path = path.display().to_string();
    match name {
        TWEED => Some(Problem::new(
            ProblemKind::PluginMissing,
            path,
            "the CNI plugin is not where the runtime looks for it",
        )),
        "portmap" => Some(Problem::new(
            ProblemKind::PortmapMissing,
            path,
            "the hostPort of pods does nothing, because the reference plugin portmap is not there",
        )),
        _ => None,
    }
}

/// The plugin has been there, so this is where the runtime looks for it, and no pod can be added.
fn gone(path: &Path) -> Problem {
    let text = "somebody has removed the CNI plugin: no pod can be added";
    Problem::new(ProblemKind::PluginMissing, path.display().to_string(), text)
        .with_effect(Effect::NewPods)
        .with_cure(INSTALL_AGAIN)
}

const INSTALL_AGAIN: &str = "copy the program tweed there again (on Kubernetes: delete the pod of \
    tweed on this node, whose init container does it)";

/// It does not run here, whoever tries. Without `tweed` no pod can be added.
fn broken(path: &Path, name: &str, why: &str) -> Problem {
    let problem = unusable(path, why);
    match name {
        TWEED => problem
            .with_effect(Effect::NewPods)
            .with_cure(INSTALL_AGAIN),
        _ => problem,
    }
}

fn unusable(path: &Path, why: &str) -> Problem {
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
    use tweed_cni::CniVersion;

    use super::*;

    fn kinds(answers: &[(&'static str, Answer)]) -> Vec<&'static str> {
        let problems = of_plugins(Path::new("/opt/cni/bin"), answers, false);
        problems.iter().map(|problem| problem.kind.word()).collect()
    }

    #[test]
    fn bandwidth_alone_may_be_missing_in_silence() {
        let missing = ["tweed", "portmap", "bandwidth"].map(|name| (name, Answer::Missing));
        assert_eq!(kinds(&missing), ["plugin-missing", "portmap-missing"]);
    }

    #[test]
    fn a_plugin_that_answers_nothing_of_use_is_named() {
        let old = Answer::Versions([].into());
        let good = Answer::Versions([CniVersion::V1_0_0].into());
        let silent = Answer::Late("no answer within 2s".to_owned());
        let answers = [("tweed", good), ("portmap", old), ("bandwidth", silent)];
        assert_eq!(kinds(&answers), ["plugin-unusable", "plugin-unusable"]);
    }

    #[test]
    fn what_the_agent_does_not_see_is_not_called_broken() {
        let target = "/usr/lib/cni/portmap".into();
        let answers = [
            ("portmap", Answer::Unseen(target)),
            ("bandwidth", Answer::NoLoader),
        ];
        let problems = of_plugins(Path::new("/opt/cni/bin"), &answers, false);
        for (problem, parts) in problems.iter().zip([
            &[
                "a link to /usr/lib/cni/portmap",
                "hostPort",
                "see /usr/lib/cni ",
                "agentSees",
            ][..],
            &["the program that loads", "bandwidth", "statically linked"],
        ]) {
            assert_eq!(problem.kind, ProblemKind::PluginUnusable);
            let text = problem.to_string();
            for part in parts {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
        assert_eq!(problems.len(), 2);
    }
}
