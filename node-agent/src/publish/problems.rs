//! What can be wrong with the files and the plugins around them: pure.

use std::path::Path;

use super::TWEED;
use super::file::WriteError;
use super::plugins::Answer;
use tweed_core::problem::{Effect, Problem};

/// A problem for each plugin that is missed or cannot be used.
pub(super) fn of_plugins(bin_dir: &Path, answers: &[(&'static str, Answer)]) -> Vec<Problem> {
    let problem = |(name, answer): &(&'static str, Answer)| match answer {
        Answer::Missing => missing(&bin_dir.join(name), name),
        Answer::Silent(why) => Some(unusable(&bin_dir.join(name), why)),
        Answer::Versions(versions) if versions.is_empty() => Some(unusable(
            &bin_dir.join(name),
            "it knows no CNI version that tweed does (0.3.1 to 1.1.0)",
        )),
        Answer::Versions(_) => None,
    };
    answers.iter().filter_map(problem).collect()
}

fn missing(path: &Path, name: &str) -> Option<Problem> {
    let path = path.display().to_string();
    match name {
        TWEED => Some(Problem::new(
            "plugin-missing",
            path,
            Effect::Warning,
            "the CNI plugin is not where the runtime looks for it",
            "copy the program tweed there, or give --cni-bin-dir the folder where it is",
        )),
        "portmap" => Some(Problem::new(
            "portmap-missing",
            path,
            Effect::Warning,
            "the hostPort of pods does nothing, because the reference plugin portmap is not there",
            "install the reference CNI plugins into that folder, if pods are to have hostPorts",
        )),
        _ => None,
    }
}

fn unusable(path: &Path, why: &str) -> Problem {
    Problem::new(
        "plugin-unusable",
        path.display().to_string(),
        Effect::Warning,
        format!("this CNI plugin does not answer VERSION as it should: {why}"),
        "replace it by one that is built for this machine, or remove it",
    )
}

/// A file that cannot be written, in the folder that `flag` names.
pub(super) fn unwritable(flag: &str, error: &WriteError) -> Problem {
    Problem::new(
        "file-unwritable",
        error.path.display().to_string(),
        Effect::NewPods,
        error.to_string(),
        format!("let the agent write there, or give {flag} another folder; it is tried again"),
    )
}

#[cfg(test)]
mod tests {
    use tweed_cni::CniVersion;

    use super::*;

    fn kinds(answers: &[(&'static str, Answer)]) -> Vec<String> {
        let problems = of_plugins(Path::new("/opt/cni/bin"), answers);
        problems.into_iter().map(|problem| problem.kind).collect()
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
        let silent = Answer::Silent("no answer within 2 s".to_owned());
        let answers = [("tweed", good), ("portmap", old), ("bandwidth", silent)];
        assert_eq!(kinds(&answers), ["plugin-unusable", "plugin-unusable"]);
    }
}
