//! Installation on a machine without Kubernetes: programs, systemd unit, and the
//! two files that a person edits.

mod environment;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::error::InstallError;
use crate::journal::{Action, Journal};
use crate::places::{PlaceArgs, Places, folder};
use crate::plugins::{self, DisplaceArgs, PLUGINS, Programs};
use crate::put::{Content, Folder, drafts};
pub use environment::{Environment, Word};

/// The programs that are not plugins.
const PROGRAMS: [&str; 2] = ["tweed-agent", "tweed-install"];
const PROGRAM_DIR: &str = "/usr/local/bin";
const UNIT_DIR: &str = "/etc/systemd/system";
const UNIT: &str = "tweed-agent.service";
const UNIT_TEXT: &str = include_str!("../systemd/tweed-agent.service");
const CONFIG_DIR: &str = "/etc/tweed";
const ENVIRONMENT: &str = "agent.env";
const NODES: &str = "nodes.yaml";
const NODES_TEXT: &str = include_str!("../systemd/nodes.yaml");
/// Mode of files that everybody may read.
const READABLE: u32 = 0o644;

/// Flags of `host`.
#[derive(Debug, Clone, Args)]
pub struct HostArgs {
    /// Folder of the programs to install; if not given, that of this program
    #[arg(long, env = "TWEED_SOURCE", value_name = "DIR", value_parser = folder)]
    source: Option<PathBuf>,

    #[command(flatten)]
    environment: Environment,

    #[command(flatten)]
    displace: DisplaceArgs,

    #[command(flatten)]
    places: PlaceArgs,
}

/// Installs on this machine.
///
/// # Errors
/// The programs are missing or damaged. Other failures are in the journal.
pub fn run(asked: &HostArgs, journal: &mut Journal<'_>) -> Result<(), InstallError> {
    let places = asked.places.resolve();
    let source = match &asked.source {
        Some(source) => source.clone(),
        None => own_folder()?,
    };
    let names = [PLUGINS, PROGRAMS].concat();
    let cure = "build it with `cargo build --release`, or name its folder with --source";
    let programs = Programs::read(&source, &names, cure)?;
    plugins::install(&programs, &places, &asked.displace, journal);
    programs.install(&PROGRAMS, &places.on_host(PROGRAM_DIR), journal);
    let was_there = places.on_host(UNIT_DIR).join(UNIT).exists();
    // Changes of the unit belong in a drop-in (systemctl edit): it is replaced.
    write(&places.on_host(UNIT_DIR), UNIT, UNIT_TEXT, true, journal);
    let config = places.on_host(CONFIG_DIR);
    write(
        &config,
        ENVIRONMENT,
        &asked.environment.render(),
        false,
        journal,
    );
    if asked.environment.nodes.is_none() {
        write(&config, NODES, NODES_TEXT, false, journal);
    }
    if journal.failures() == 0 {
        journal.line(next(asked, was_there));
    }
    Ok(())
}

/// What a person has to do next.
fn next(asked: &HostArgs, upgraded: bool) -> String {
    if upgraded {
        return "next: systemctl daemon-reload && systemctl restart tweed-agent".to_owned();
    }
    let example = || format!("{CONFIG_DIR}/{NODES}");
    let nodes = asked.environment.nodes.as_ref();
    let nodes = nodes.map_or_else(example, |nodes| nodes.as_str().to_owned());
    format!(
        "next: write all nodes into {nodes}, the same on each of them, and then run\n  \
         systemctl daemon-reload && systemctl enable --now tweed-agent"
    )
}

fn own_folder() -> Result<PathBuf, InstallError> {
    let own = Path::new("/proc/self/exe");
    let path = std::env::current_exe().map_err(InstallError::file("find", own))?;
    Ok(path.parent().unwrap_or(Path::new("/")).to_owned())
}

/// Writes a text file. An existing file that differs is replaced only if `replace`
/// is true.
fn write(target: &Path, name: &str, text: &str, replace: bool, journal: &mut Journal<'_>) {
    let content = Content::Text(text);
    let path = target.join(name);
    if !replace && path.exists() {
        return journal.kept(path.display(), "it exists, and may have been edited");
    }
    let outcome = Folder::open(target).and_then(|folder| {
        let digest = content.digest()?;
        Ok((folder.holds(name, digest, READABLE)?, folder, digest))
    });
    match outcome {
        Ok((true, ..)) => journal.kept(path.display(), "it has this content already"),
        Ok((false, folder, digest)) => {
            journal.act(Action::INSTALL, path.display(), || {
                folder.put(name, content, digest, READABLE)
            });
        }
        Err(error) => journal.failed(&error),
    }
}

/// A file that uninstall may remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// Its path.
    pub path: PathBuf,
    /// Whether a person has changed it.
    pub edited: bool,
}

/// Everything that [`run`] may have installed on this machine except the plugins.
///
/// # Errors
/// A file cannot be read.
pub fn installed(places: &Places) -> Result<Vec<Installed>, InstallError> {
    let units = places.on_host(UNIT_DIR);
    let programs = places.on_host(PROGRAM_DIR);
    let mut files = vec![
        // By `systemctl enable`; a symbolic link to the unit.
        units.join("multi-user.target.wants").join(UNIT),
        units.join(UNIT),
    ];
    files.extend(PROGRAMS.map(|name| programs.join(name)));
    files.retain(|path| fs::symlink_metadata(path).is_ok());
    let config = places.on_host(CONFIG_DIR);
    for folder in [&units, &programs, &config] {
        files.extend(drafts(folder)?);
    }
    let unedited = |path| Installed {
        path,
        edited: false,
    };
    let mut installed: Vec<Installed> = files.into_iter().map(unedited).collect();
    let environment: fn(&str) -> bool = |text| Environment::of(text).render() == text;
    let nodes: fn(&str) -> bool = |text| text == NODES_TEXT;
    for (name, is_ours) in [(ENVIRONMENT, environment), (NODES, nodes)] {
        let path = config.join(name);
        let text = InstallError::if_exists("read", &path, fs::read_to_string(&path))?;
        let edited = text.map(|text| !is_ours(&text));
        installed.extend(edited.map(|edited| Installed { path, edited }));
    }
    Ok(installed)
}

/// The folder of the config, which contains nothing but tweed's files.
#[must_use]
pub fn config_dir(places: &Places) -> PathBuf {
    places.on_host(CONFIG_DIR)
}
