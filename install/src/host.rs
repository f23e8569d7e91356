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
use crate::plugins::{self, DisplaceArgs, PLUGINS};
use crate::put::{self, PROGRAM, READABLE, drafts};
use environment::{Environment, EnvironmentArgs, word};

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
    let folders = &places.folders;
    check_folders(asked, folders)?;
    let found = places.environment.as_deref();
    let before = Environment::of(found.unwrap_or(environment::EXAMPLE));
    let environment = before.with(&asked.environment, folders);
    let source = match &asked.source {
        Some(source) => source.clone(),
        None => own_folder()?,
    };
    let cure = "build it with `cargo build --release`, or name its folder with --source";
    let plugins = plugins::read(&source, PLUGINS, cure)?;
    let programs = plugins::read(&source, PROGRAMS, cure)?;
    let found_unit = found_unit(&places)?;
    let program_dir = match (&asked.program_dir, &found_unit) {
        (Some(given), _) => given.clone(),
        (None, Some(unit)) => unit::program_dir(unit).unwrap_or(PROGRAM_DIR.into()),
        (None, None) => PROGRAM_DIR.into(),
    };
    let bin_dir = &places.cni_bin_dir;
    put::install(bin_dir, &plugins, PROGRAM, ELSEWHERE_PLUGINS, journal);
    let target = places.on_host(&program_dir);
    put::install(&target, &programs, PROGRAM, ELSEWHERE_PROGRAMS, journal);
    make_folders(&places, journal);
    // Changes of the unit belong in a drop-in (systemctl edit): it is replaced.
    let unit = unit::render(&program_dir, folders);
    write(&places.on_host(UNIT_DIR), UNIT, &unit, journal);
    write_environment(&places, &environment, journal);
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
        journal.line(next(&places, nodes));
    }
    Ok(())
}

/// The agent would not see a folder that the unit hides, and systemd would read some paths
/// otherwise.
fn check_folders(asked: &HostArgs, folders: &Folders) -> Result<(), InstallError> {
    let folders = [
        ("--cni-conf-dir", Some(&folders.cni_conf_dir)),
        ("--cni-bin-dir", Some(&folders.cni_bin_dir)),
        ("--run-dir", Some(&folders.run_dir)),
        ("--bpf-dir", Some(&folders.bpf_dir)),
        ("--program-dir", asked.program_dir.as_ref()),
    ];
    for (flag, path) in folders {
        let Some(path) = path else { continue };
        let text = path.display().to_string();
        if let Some(why) = word(&text).err().or_else(|| unit::hides(path)) {
            return Err(InstallError::Other(format!("{flag} {text}: {why}")));
        }
    }
    Ok(())
}

/// Makes the folders that have to exist when the unit starts. In place of the default ones
/// systemd makes them, and what is below /run.
fn make_folders(places: &Places, journal: &mut Journal<'_>) {
    let (own, default) = (&places.folders, Folders::default());
    let is_default = [
        (own.run_dir == default.run_dir, &places.run_dir),
        (
            own.cni_conf_dir == default.cni_conf_dir,
            &places.cni_conf_dir,
        ),
    ];
    for (is_default, path) in is_default {
        if !is_default && !path.exists() {
            journal.act(Action::MAKE, path.display(), || {
                fs::create_dir_all(path).map_err(InstallError::file("create the folder", path))
            });
        }
    }
}

/// Writes the agent's flags. A file that a person has edited has to say already what the
/// flags do.
fn write_environment(places: &Places, environment: &Environment, journal: &mut Journal<'_>) {
    let found = places.environment.as_deref();
    let Some(found) = found.filter(|text| is_edited(text)) else {
        let folder = places.on_host(CONFIG_DIR);
        return write(&folder, ENVIRONMENT_NAME, &environment.render(), journal);
    };
    let path = places.on_host(ENVIRONMENT);
    let lacking = environment.lacking_in(&Environment::of(found));
    if lacking.is_empty() {
        journal.kept(path.display(), "it was edited, and says what the flags do");
    } else {
        journal.failed(format_args!(
            "{} was edited, and so is not replaced, but does not say what the flags do: change \
             it by hand ({lacking}), or leave the flags out",
            path.display()
        ));
    }
}

/// Whether a person has changed the file of the agent's flags.
fn is_edited(text: &str) -> bool {
    Environment::of(text).render() != text
}

/// What a person has to do next. The same starts a service that is new and one that was
/// stopped, and restarts one that runs.
fn next(places: &Places, nodes: &str) -> String {
    let command = "systemctl daemon-reload && systemctl enable tweed-agent && systemctl restart \
                   tweed-agent";
    let listed = regular_file::read_text(&places.on_host(nodes), limits::NODES);
    if listed.is_ok_and(|text| text != NODES_TEXT) {
        return format!("next: {command}");
    }
    format!(
        "next: write all nodes into {nodes}, the same on each of them, and then run\n  {command}"
    )
}

/// The link that `systemctl enable` makes.
fn wanted(places: &Places) -> PathBuf {
    let units = places.on_host(UNIT_DIR);
    units.join("multi-user.target.wants").join(UNIT)
}

/// The unit that is installed.
fn found_unit(places: &Places) -> Result<Option<String>, InstallError> {
    let path = places.on_host(UNIT_DIR).join(UNIT);
    let unit = regular_file::read_text(&path, limits::HOST_CONFIG);
    InstallError::if_exists("read", &path, unit)
}

fn own_folder() -> Result<PathBuf, InstallError> {
    let own = Path::new("/proc/self/exe");
    let path = std::env::current_exe().map_err(InstallError::file("find", own))?;
    Ok(path.parent().unwrap_or(Path::new("/")).to_owned())
}

/// Writes a text file. An existing file that differs is replaced.
fn write(target: &Path, name: &str, text: &str, journal: &mut Journal<'_>) {
    put::install(
        target,
        &[(name, text)],
        READABLE,
        "mount it writable",
        journal,
    );
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
    // An earlier installation may have had the default folder.
    let mut folders = vec![PathBuf::from(PROGRAM_DIR)];
    folders.extend(of_unit.filter(|of_unit| *of_unit != Path::new(PROGRAM_DIR)));
    let programs: Vec<PathBuf> = folders.iter().map(|path| places.on_host(path)).collect();
    // By `systemctl enable`; a symbolic link to the unit.
    let mut files = vec![wanted(places), units.join(UNIT)];
    let in_folder = |folder: &PathBuf| PROGRAMS.map(|name| folder.join(name));
    files.extend(programs.iter().flat_map(in_folder));
    files.retain(|path| fs::symlink_metadata(path).is_ok());
    let config = config_dir(places);
    for folder in programs.iter().chain([&units, &config]) {
        files.extend(drafts(folder)?);
    }
    let unedited = |path| Installed {
        path,
        edited: false,
    };
    let mut installed: Vec<Installed> = files.into_iter().map(unedited).collect();
    for name in [ENVIRONMENT_NAME, NODES] {
        let path = config.join(name);
        let text = regular_file::read_text(&path, limits::NODES);
        let text = InstallError::if_exists("read", &path, text)?;
        let edited = text.map(|text| match name {
            NODES => text != NODES_TEXT,
            _ => is_edited(&text),
        });
        installed.extend(edited.map(|edited| Installed { path, edited }));
    }
    Ok(installed)
}

/// The folder of the config, which contains nothing but tweed's files.
pub fn config_dir(places: &Places) -> PathBuf {
    places.on_host(CONFIG_DIR)
}
