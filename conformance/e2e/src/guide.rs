//! The commands of a guide, run as somebody pastes them.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tweed_lab::{Programs, run};

use crate::fixture::Fixture;

/// Maximum time for a block of commands, in seconds: some of them wait without a limit.
const LIMIT: &str = "600";

/// A guide, and the folder in which its commands run. What they write stays there, and
/// later commands find it. It has the project's folder `install`, as a clone has.
pub struct Guide {
    text: String,
    folder: TempDir,
    programs: PathBuf,
}

impl Guide {
    /// The guide with this path in the project.
    ///
    /// # Errors
    /// It cannot be read, or the folder cannot be made.
    pub fn open(path: &str) -> Result<Self> {
        let programs = Programs::find()?;
        let source = programs.source();
        let text = fs::read_to_string(source.join(path));
        let folder = tempfile::tempdir()?;
        std::os::unix::fs::symlink(source.join("install"), folder.path().join("install"))?;
        Ok(Self {
            text: text.with_context(|| format!("reading {path}"))?,
            folder,
            programs: programs.target().join("tools/kubernetes/bin"),
        })
    }

    /// Runs the only block of commands with this `phrase`, and returns what it prints.
    ///
    /// # Errors
    /// There is not one such block, or its last command fails or takes too long.
    pub fn paste(&self, fixture: &Fixture<'_>, phrase: &str) -> Result<String> {
        self.paste_with(fixture, phrase, &[])
    }

    /// As [`Guide::paste`], where these variables are set.
    ///
    /// # Errors
    /// As [`Guide::paste`].
    pub fn paste_with(
        &self,
        fixture: &Fixture<'_>,
        phrase: &str,
        variables: &[(&str, &str)],
    ) -> Result<String> {
        let commands = block(&self.text, phrase)?;
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = fixture.kubectl().client("timeout");
        shell
            .args([LIMIT, "bash", "-c", commands])
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", self.programs.display()))
            .env("HOME", self.folder.path())
            .envs(variables.iter().copied());
        run(&mut shell).with_context(|| format!("running the commands with `{phrase}`"))
    }
}

fn block<'a>(text: &'a str, phrase: &str) -> Result<&'a str> {
    let opened = text.split("\n```sh\n").skip(1);
    let blocks = opened.filter_map(|rest| rest.split("\n```").next());
    let found: Vec<&str> = blocks.filter(|block| block.contains(phrase)).collect();
    ensure!(
        found.len() == 1,
        "{} blocks of commands have `{phrase}`",
        found.len()
    );
    Ok(found[0])
}
