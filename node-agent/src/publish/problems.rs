//! What can be wrong with the files and the plugins around them: pure.

use std::path::Path;

use super::file::WriteError;
use super::plugins::Answer;
use super::{TWEED, conflist};
use crate::problem::{Effect, Problem};

/// A problem for each plugin that is missed or cannot be used.
pub(super) fn of_plugins(bin_dir: &Path, answers: &[(&'static str, Answer)]) -> Vec<Problem> {
    let problem = |(name, answer): &(&'static str, Answer)| match answer {
        Answer::Missing => missing(&bin_dir.join(name), name),
        Answer::Silent(why) => Some(unusable(&bin_dir.join(name), why)),
        Answer::Versions(versions) if conflist::offers_any_of(versions) => None,
        Answer::Versions(_) => Some(unusable(
            &bin_dir.join(name),
            "it knows no CNI version from 0.3.1 to 1.1.0",
        )),
    };
    answers.iter().filter_map(problem).collect()
}

fn missing(path: &Path, name: &str) -> Option<Problem> {
    let (kind, message, cure) = match name {
        TWEED => (
            "plugin-missing",
            "the CNI plugin is not where the runtime looks for it",
            "copy the program tweed there, or give --cni-bin-dir the folder where it is",
        ),
        "portmap" => (
            "portmap-missing",
            "the hostPort of pods does nothing, because the reference plugin portmap is not there",
            "install the reference CNI plugins into that folder, if pods are to have hostPorts",
        ),
        _ => return None,
    };
    let path = path.display().to_string();
    Some(Problem::new(kind, path, Effect::Warning, message, cure))
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
pub(super) fn unwritable(what: &str, flag: &str, error: &WriteError) -> Problem {
    Problem::new(
        &format!("{what}-unwritable"),
        error.path.display().to_string(),
        Effect::NewPods,
        error.to_string(),
        format!("let the agent write there, or give {flag} another folder; it is tried again"),
    )
}

#[cfg(test)]
mod tests {
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
        let old = Answer::Versions(["0.1.0".to_owned()].into());
        let good = Answer::Versions(["1.0.0".to_owned()].into());
        let silent = Answer::Silent("no answer within 2 s".to_owned());
        let answers = [("tweed", good), ("portmap", old), ("bandwidth", silent)];
        assert_eq!(kinds(&answers), ["plugin-unusable", "plugin-unusable"]);
    }
}
