//! Installation of the CNI plugins in the runtime's folder, while the runtime may
//! be running them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, builder::BoolishValueParser};

use tweed_core::{limits, regular_file};

use crate::digest::Digest;
use crate::displaced;
use crate::error::{InstallError, Mismatch};
use crate::journal::{Action, Journal};
use crate::places::{PlaceArgs, folder};
use crate::put::{Content, Folder, digest_of};

/// The plugins, by their file names.
pub const PLUGINS: [&str; 2] = ["tweed", "tweed-ipam"];
/// Mode of programs.
pub const PROGRAM: u32 = 0o755;

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
        return Err(InstallError::NoConfigs {
            path: conf_dir.clone(),
        });
    }
    let cure = "the image of tweed has it; give its folder with --source";
    let programs = Programs::read(&asked.source, &PLUGINS, cure)?;
    programs.install(&PLUGINS, &places.cni_bin_dir, ELSEWHERE, journal);
    // If a plugin is missing, the other network is better than none.
    if asked.displace.displace_cni && journal.failures() == 0 {
        displaced::displace(conf_dir, journal);
    }
    Ok(())
}

/// Programs to install, each with its expected checksum.
#[derive(Debug)]
pub struct Programs {
    source: PathBuf,
    digests: BTreeMap<&'static str, Digest>,
}

impl Programs {
    /// Reads `names` in `source`. `cure` says where to get a missing one.
    ///
    /// # Errors
    /// One is missing, or does not match the list of checksums.
    pub fn read(
        source: &Path,
        names: &[&'static str],
        cure: &'static str,
    ) -> Result<Self, InstallError> {
        let list = source.join(CHECKSUMS);
        let listed = read_checksums(&list)?;
        let mut digests = BTreeMap::new();
        for name in names {
            let path = source.join(name);
            if !path.is_file() {
                return Err(InstallError::Missing { path, cure });
            }
            let found = digest_of(&path)?;
            if let Some(listed) = &listed {
                let expected = *listed.get(*name).ok_or_else(|| InstallError::Content {
                    path: list.clone(),
                    why: format!("it does not name {name}"),
                })?;
                if expected != found {
                    let mismatch = Box::new(Mismatch {
                        found,
                        expected,
                        list,
                        cure: "download the image or the release again",
                    });
                    return Err(InstallError::Checksum { path, mismatch });
                }
            }
            digests.insert(*name, found);
        }
        Ok(Self {
            source: source.to_owned(),
            digests,
        })
    }

    /// Installs `names` of these in a folder. `elsewhere` is the cure if that is on a
    /// read-only file system.
    pub fn install(
        &self,
        names: &[&str],
        target: &Path,
        elsewhere: &'static str,
        journal: &mut Journal<'_>,
    ) {
        let folder = Folder::open(target).map_err(|error| error.or_elsewhere(elsewhere));
        let Some(folder) = journal.checked(folder) else {
            return;
        };
        let wanted = self.digests.iter().filter(|(name, _)| names.contains(name));
        for (name, digest) in wanted {
            let path = folder.join(name);
            match folder.holds(name, *digest, PROGRAM) {
                Ok(true) => journal.kept(path.display(), "it is this version already"),
                // One that cannot be read is replaced, too.
                Ok(false) | Err(_) => {
                    let object = format!("{} (SHA-256 {digest})", path.display());
                    let source = self.source.join(name);
                    journal.act(Action::INSTALL, object, || {
                        let put = folder.put(name, Content::Of(&source), *digest, PROGRAM);
                        put.map_err(|error| error.or_elsewhere(elsewhere))
                    });
                }
            }
        }
    }
}

/// The checksums by file name; none where there is no list.
fn read_checksums(list: &Path) -> Result<Option<BTreeMap<String, Digest>>, InstallError> {
    let text = InstallError::if_exists(
        "read",
        list,
        regular_file::read_text(list, limits::HOST_CONFIG),
    )?;
    let Some(text) = text else { return Ok(None) };
    let read = |line: &str| {
        let (digest, name) = line.split_once(' ')?;
        // A star stands for a file that was read as binary.
        let name = name.trim_start_matches([' ', '*']);
        Some((name.to_owned(), Digest::parse(digest)?))
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
