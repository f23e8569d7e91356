//! Installation of the CNI plugins in the runtime's folder, while the runtime may
//! be running them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, builder::BoolishValueParser};

use tweed_core::{limits, regular_file};

use crate::journal::Journal;
use crate::places::{PlaceArgs, folder};
use crate::put::{self, PROGRAM};
use crate::{displaced, error::InstallError};

/// The plugins, by their file names.
pub const PLUGINS: [&str; 2] = ["tweed", "tweed-ipam"];

/// Cure where a file system is read-only.
const ELSEWHERE: &str = "mount it writable (in a pod: without readOnly), or give another folder \
                         with --cni-bin-dir";
/// A list of checksums beside the programs, as `sha256sum` writes it.
const CHECKSUMS: &str = "SHA256SUMS";

/// Flags of `plugins`.
#[derive(Debug, Clone, Args)]
pub struct PluginsArgs {
    /// Folder of the plugins to install; if it has a file SHA256SUMS, they must
    /// match it
    #[arg(long, env = "TWEED_SOURCE", value_name = "DIR", value_parser = folder,
          default_value = "/opt/tweed/bin")]
    source: PathBuf,

    #[command(flatten)]
    displace: DisplaceArgs,

    #[command(flatten)]
    places: PlaceArgs,
}

/// Whether other networks' configs are renamed.
#[derive(Debug, Clone, Args)]
pub struct DisplaceArgs {
    /// Rename CNI configs that the runtime would use instead of tweed's to
    /// <name>.tweed-displaced; uninstall --restore-cni restores them
    #[arg(long, env = "TWEED_DISPLACE_CNI", value_parser = BoolishValueParser::new())]
    pub(crate) displace_cni: bool,
}

/// Installs the plugins.
///
/// # Errors
/// The plugins are missing or damaged, or the folder does not exist whose configs are to be
/// displaced. Failures on the node are in the journal.
pub fn run(asked: &PluginsArgs, journal: &mut Journal<'_>) -> Result<(), InstallError> {
    let places = asked.places.resolve()?;
    let conf_dir = &places.cni_conf_dir;
    if asked.displace.displace_cni && !conf_dir.is_dir() {
        return Err(InstallError::Other(format!(
            "{} does not exist, and so --displace-cni finds no config there. In a pod, mount the \
             node's folder there, as the kustomize component displace-cni and the chart's value \
             displaceCni do; on a machine, name its folder with --cni-conf-dir",
            conf_dir.display()
        )));
    }
    let cure = "the image of tweed has it; give its folder with --source";
    let plugins = read(&asked.source, PLUGINS, cure)?;
    put::install(&places.cni_bin_dir, &plugins, PROGRAM, ELSEWHERE, journal);
    // If a plugin is missing, the other network is better than none.
    if asked.displace.displace_cni && journal.failures() == 0 {
        displaced::displace(conf_dir, journal);
    }
    Ok(())
}

/// Reads the programs `names` in `source`. `cure` says where to get a missing one.
///
/// # Errors
/// One is missing, or does not match the list of checksums.
pub fn read<const N: usize>(
    source: &Path,
    names: [&'static str; N],
    cure: &'static str,
) -> Result<Vec<(&'static str, Vec<u8>)>, InstallError> {
    let list = source.join(CHECKSUMS);
    let listed = read_checksums(&list)?;
    let read = |name| {
        let path = source.join(name);
        let program = regular_file::read(&path, u64::MAX);
        let Some(program) = InstallError::if_exists("read", &path, program)? else {
            return Err(InstallError::Other(format!(
                "{} does not exist: {cure}",
                path.display()
            )));
        };
        if let Some(listed) = &listed {
            let expected = listed.get(name).ok_or_else(|| InstallError::Content {
                path: list.clone(),
                why: format!("it does not name {name}"),
            })?;
            let found = put::sha256(&program);
            if found != *expected {
                return Err(InstallError::Other(format!(
                    "{} is damaged: its SHA-256 is {found}, but {expected} in {}: download the \
                     image or the release again",
                    path.display(),
                    list.display()
                )));
            }
        }
        Ok((name, program))
    };
    names.into_iter().map(read).collect()
}

/// The checksums by file name; none where there is no list.
fn read_checksums(list: &Path) -> Result<Option<BTreeMap<String, String>>, InstallError> {
    let text = InstallError::if_exists(
        "read",
        list,
        regular_file::read_text(list, limits::HOST_CONFIG),
    )?;
    let Some(text) = text else { return Ok(None) };
    let read = |line: &str| {
        let (digest, rest) = line.split_once(' ')?;
        let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        // A star stands for a file that was read as binary.
        let name = rest.trim_start_matches([' ', '*']);
        is_digest.then(|| (name.to_owned(), digest.to_ascii_lowercase()))
    };
    let lines = text.lines().filter(|line| !line.is_empty());
    let digests = lines.map(|line| {
        read(line).ok_or_else(|| InstallError::Content {
            path: list.to_owned(),
            why: format!("not a line of sha256sum: {line:?}"),
        })
    });
    digests.collect::<Result<_, _>>().map(Some)
}
