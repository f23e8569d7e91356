//! `completion` and `man`: what shells and `man` read about this program.

use std::io;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, Command};
use clap_complete::Shell;

use crate::exit::Exit;
use crate::output::Page;

const COMPLETION_EXAMPLES: &str = "\
Examples:
  For this shell only:
    source <(tweedctl completion bash)

  For every shell of fish:
    tweedctl completion fish >~/.config/fish/completions/tweedctl.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  Read the page:
    tweedctl man | man -l -

  Pages for each verb, for a package:
    tweedctl man /usr/local/share/man/man1";

/// The arguments of `completion`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = COMPLETION_EXAMPLES)]
pub struct Completion {
    /// The shell: bash, elvish, fish, powershell or zsh
    #[arg(value_enum, hide_possible_values = true)]
    shell: Shell,
}

/// The arguments of `man`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = MAN_EXAMPLES)]
pub struct Man {
    /// Folder in which a page for each verb is written; if not given, the page of the
    /// program is printed
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl Completion {
    /// Prints the script.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn run(&self, mut program: Command, page: &mut Page<'_>) -> Result<Exit> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, "tweedctl", &mut script);
        page.raw(&script)?;
        Ok(Exit::Fine)
    }
}

impl Man {
    /// Prints the page, or writes all.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn run(&self, program: Command, page: &mut Page<'_>) -> Result<Exit> {
        match &self.folder {
            Some(folder) => clap_mangen::generate_to(program, folder)
                .with_context(|| format!("cannot write pages into {}", folder.display()))?,
            None => page.raw(&rendered(program)?)?,
        }
        Ok(Exit::Fine)
    }
}

fn rendered(program: Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    clap_mangen::Man::new(program).render(&mut text)?;
    Ok(text)
}
