//! Installation on a machine without Kubernetes: programs, systemd unit, and the
//! two files that a person edits.

mod environment;
mod unit;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use tweed_core::{limits, regular_file};

use crate::displaced;
use crate::error::InstallError;
use crate::journal::{Action, Journal};
use crate::places::{ENVIRONMENT, Folders, PlaceArgs, Places, folder};
use crate::plugins::{DisplaceArgs, PLUGINS, Programs};
use crate::put::{Content, Folder, drafts};
use environment::{Environment, EnvironmentArgs, Word};

/// The programs that are not plugins.
const PROGRAMS: [&str; 2] = [unit::AGENT, "tweed-install"];
const PROGRAM_DIR: &str = "/usr/local/bin";
const UNIT_DIR: &str = "/etc/systemd/system";
const UNIT: &str = "tweed-agent.service";
const CONFIG_DIR: &str = "/etc/tweed";
const ENVIRONMENT_NAME: &str = "agent.env";
const NODES: &str = "nodes.yaml";
const NODES_PATH: &str = "/etc/tweed/nodes.yaml";
const NODES_TEXT: &str = include_str!("../systemd/nodes.yaml");
/// Mode of files that everybody may read.
const READABLE: u32 = 0o644;
/// Cures where a file system is read-only.
const ELSEWHERE_PLUGINS: &str = "mount it writable, or give another folder with --cni-bin-dir";
const ELSEWHERE_PROGRAMS: &str = "mount it writable, or give another folder with --program-dir";

/// Flags of `host`.
#[derive(Debug, Clone, Args)]
pub struct HostArgs {
    /// Folder of the programs to install; if not given, that of this program
    #[arg(long, env = "TWEED_SOURCE", value_name = "DIR", value_parser = folder)]
    source: Option<PathBuf>,

    /// Folder for tweed-agent and tweed-install; if not given, that in the unit which
    /// is installed, or /usr/local/bin
    #[arg(long, env = "TWEED_PROGRAM_DIR", value_name = "DIR", value_parser = folder)]
    program_dir: Option<PathBuf>,

    #[command(flatten)]
    environment: EnvironmentArgs,

    #[command(flatten)]
    displace: DisplaceArgs,

    #[command(flatten)]
    places: PlaceArgs,
}

/// Installs on this machine. Another network's config is displaced at the end, if nothing
/// failed: until then the machine has that network.
///
/// # Errors
/// The programs are missing or damaged, or a flag cannot be used. Other failures are in the
/// journal.
pub fn run(asked: &HostArgs, journal: &mut Journal<'_>) -> Result<(), InstallError> {
    let places = asked.places.resolve()?;
    let folders = asked.places.folders()?;
    check_folders(asked)?;
    let environment_path = places.on_host(ENVIRONMENT);
    let found = regular_file::read_text(&environment_path, limits::HOST_CONFIG);
    let found = InstallError::if_exists("read", &environment_path, found)?;
    let environment = Environment::of(found.as_deref().unwrap_or(environment::EXAMPLE))
        .with(&asked.environment, &folders)
        .map_err(InstallError::Flag)?;
    let source = match &asked.source {
        Some(source) => source.clone(),
        None => own_folder()?,
    };
    let names = [PLUGINS, PROGRAMS].concat();
    let cure = "build it with `cargo build --release`, or name its folder with --source";
    let programs = Programs::read(&source, &names, cure)?;
    let found_unit = found_unit(&places)?;
    let program_dir = match (&asked.program_dir, &found_unit) {
        (Some(given), _) => given.clone(),
        (None, Some(unit)) => unit::program_dir(unit).unwrap_or(PROGRAM_DIR.into()),
        (None, None) => PROGRAM_DIR.into(),
    };
    programs.install(&PLUGINS, &places.cni_bin_dir, ELSEWHERE_PLUGINS, journal);
    let target = places.on_host(&program_dir);
    programs.install(&PROGRAMS, &target, ELSEWHERE_PROGRAMS, journal);
    make_folders(&folders, &places, journal);
    // Changes of the unit belong in a drop-in (systemctl edit): it is replaced.
    let unit = unit::render(&program_dir, &folders);
    write(&places.on_host(UNIT_DIR), UNIT, &unit, journal);
    write_environment(&places, found.as_deref(), &environment, journal);
    let nodes = environment.nodes().unwrap_or(NODES_PATH);
    if nodes == NODES_PATH && !places.on_host(NODES_PATH).exists() {
        write(&places.on_host(CONFIG_DIR), NODES, NODES_TEXT, journal);
    } else if nodes == NODES_PATH {
        journal.kept(
            places.on_host(NODES_PATH).display(),
            "it exists, and may have been edited",
        );
    }
    if asked.displace.displace_cni && journal.failures() == 0 {
        displaced::displace(&places.cni_conf_dir, journal);
    }
    if journal.failures() == 0 {
        journal.line(next(&places, nodes, found_unit.is_some()));
    }
    Ok(())
}

/// The agent would not see a folder that the unit hides, and systemd would read some paths
/// otherwise.
fn check_folders(asked: &HostArgs) -> Result<(), InstallError> {
    let program_dir = asked.program_dir.as_deref();
    let program_dir = program_dir.map(|path| ("--program-dir", path));
    for (flag, path) in asked.places.given().chain(program_dir) {
        let text = path.display().to_string();
        let why = text.parse::<Word>().map_err(|error| error.to_string());
        if let Some(why) = why.err().or_else(|| unit::hides(path)) {
            return Err(InstallError::Flag(format!("{flag} {text}: {why}")));
        }
    }
    Ok(())
}

/// Makes the folders that have to exist when the unit starts. In place of the default ones
/// systemd makes them, and what is below /run.
fn make_folders(folders: &Folders, places: &Places, journal: &mut Journal<'_>) {
    let default = Folders::default();
    for (own, default, path) in [
        (&folders.run_dir, &default.run_dir, &places.run_dir),
        (
            &folders.cni_conf_dir,
            &default.cni_conf_dir,
            &places.cni_conf_dir,
        ),
    ] {
        if own != default && !path.exists() {
            journal.act(Action::MAKE, path.display(), || {
                fs::create_dir_all(path).map_err(InstallError::file("create the folder", path))
            });
        }
    }
}

/// Writes the agent's flags. A file that a person has edited has to say already what the
/// flags do.
fn write_environment(
    places: &Places,
    found: Option<&str>,
    environment: &Environment,
    journal: &mut Journal<'_>,
) {
    let path = places.on_host(ENVIRONMENT);
    if let Some(found) = found.filter(|text| is_edited(text)) {
        let lacking = environment.lacking_in(&Environment::of(found));
        return match lacking.is_empty() {
            true => journal.kept(path.display(), "it was edited, and says what the flags do"),
            false => journal.failed(&InstallError::Edited { path, lacking }),
        };
    }
    let text = environment.render();
    write(
        &places.on_host(CONFIG_DIR),
        ENVIRONMENT_NAME,
        &text,
        journal,
    );
}

/// Whether a person has changed the file of the agent's flags.
fn is_edited(text: &str) -> bool {
    Environment::of(text).render() != text
}

/// What a person has to do next. A service that is not enabled does not come back after a
/// boot, and one that runs has to be restarted.
fn next(places: &Places, nodes: &str, had_unit: bool) -> String {
    let is_enabled = fs::symlink_metadata(wanted(places)).is_ok();
    let command = match (had_unit, is_enabled) {
        (false, _) => "systemctl enable --now tweed-agent",
        (true, false) => "systemctl enable tweed-agent && systemctl restart tweed-agent",
        (true, true) => "systemctl restart tweed-agent",
    };
    let listed = regular_file::read_text(&places.on_host(nodes), limits::NODES);
    let is_listed = listed.is_ok_and(|text| text != NODES_TEXT);
    let command = format!("systemctl daemon-reload && {command}");
    match is_listed || is_enabled {
        true => format!("next: {command}"),
        false => format!(
            "next: write all nodes into {nodes}, the same on each of them, and then run\n  {command}"
        ),
    }
}

/// The link that `systemctl enable` makes.
fn wanted(places: &Places) -> PathBuf {
    let units = places.on_host(UNIT_DIR);
    units.join("multi-user.target.wants").join(UNIT)
}

/// The unit that is installed.
fn found_unit(places: &Places) -> Result<Option<String>, InstallError> {
    let path = places.on_host(UNIT_DIR).join(UNIT);
    InstallError::if_exists(
        "read",
        &path,
        regular_file::read_text(&path, limits::HOST_CONFIG),
    )
}

fn own_folder() -> Result<PathBuf, InstallError> {
    let own = Path::new("/proc/self/exe");
    let path = std::env::current_exe().map_err(InstallError::file("find", own))?;
    Ok(path.parent().unwrap_or(Path::new("/")).to_owned())
}

/// Writes a text file. An existing file that differs is replaced.
fn write(target: &Path, name: &str, text: &str, journal: &mut Journal<'_>) {
    let content = Content::Text(text);
    let path = target.join(name);
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
    let of_unit = found_unit(places)?.and_then(|unit| unit::program_dir(&unit));
    let default = Path::new(PROGRAM_DIR).to_owned();
    // An earlier installation may have had the default folder.
    let mut programs = vec![places.on_host(&default)];
    programs.extend(
        of_unit
            .filter(|of_unit| *of_unit != default)
            .map(|of_unit| places.on_host(&of_unit)),
    );
    // By `systemctl enable`; a symbolic link to the unit.
    let mut files = vec![wanted(places), units.join(UNIT)];
    files.extend(
        programs
            .iter()
            .flat_map(|folder| PROGRAMS.map(|name| folder.join(name))),
    );
    files.retain(|path| fs::symlink_metadata(path).is_ok());
    let config = places.on_host(CONFIG_DIR);
    for folder in programs.iter().chain([&units, &config]) {
        files.extend(drafts(folder)?);
    }
    let unedited = |path| Installed {
        path,
        edited: false,
    };
    let mut installed: Vec<Installed> = files.into_iter().map(unedited).collect();
    let is_nodes_edited: fn(&str) -> bool = |text| text != NODES_TEXT;
    for (name, is_edited) in [
        (ENVIRONMENT_NAME, is_edited as fn(&str) -> bool),
        (NODES, is_nodes_edited),
    ] {
        let path = config.join(name);
        let text = regular_file::read_text(&path, limits::NODES);
        let text = InstallError::if_exists("read", &path, text)?;
        let edited = text.map(|text| is_edited(&text));
        installed.extend(edited.map(|edited| Installed { path, edited }));
    }
    Ok(installed)
}

/// The folder of the config, which contains nothing but tweed's files.
#[must_use]
pub fn config_dir(places: &Places) -> PathBuf {
    places.on_host(CONFIG_DIR)
}
