//! The folders of a node. A folder that no flag names is that which the agent of this machine
//! has by its environment file, or else the default: so agent, check and uninstall agree.

use std::path::{Path, PathBuf};

use clap::Args;
use tweed_core::paths::{
    DEFAULT_BOOT_ID_FILE, DEFAULT_BPF_DIR, DEFAULT_CNI_BIN_DIR, DEFAULT_CNI_CONF_DIR,
    DEFAULT_RUN_DIR, DEFAULT_SYSCTL_DIR,
};

use tweed_core::{limits, regular_file};

use crate::{environment_file, error::InstallError};

/// The agent's flags on a machine without Kubernetes.
pub(crate) const ENVIRONMENT: &str = "/etc/tweed/agent.env";
/// The variables of the folders that the agent has too.
pub(crate) const CNI_CONF_DIR: &str = "TWEED_CNI_CONF_DIR";
pub(crate) const CNI_BIN_DIR: &str = "TWEED_CNI_BIN_DIR";
pub(crate) const RUN_DIR: &str = "TWEED_RUN_DIR";
pub(crate) const BPF_DIR: &str = "TWEED_BPF_DIR";

/// The folders, as typed. Names, variables and defaults are the agent's.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Folders")]
pub struct PlaceArgs {
    /// Folder of the runtime's network configs; if not given, that of
    /// /etc/tweed/agent.env, or /etc/cni/net.d
    #[arg(long, env = CNI_CONF_DIR, value_name = "DIR", value_parser = folder)]
    cni_conf_dir: Option<PathBuf>,

    /// Folder of the runtime's CNI plugins; if not given, that of
    /// /etc/tweed/agent.env, or /opt/cni/bin
    #[arg(long, env = CNI_BIN_DIR, value_name = "DIR", value_parser = folder)]
    cni_bin_dir: Option<PathBuf>,

    /// Folder of the state of agent and plugin; if not given, that of
    /// /etc/tweed/agent.env, or /run/tweed
    #[arg(long, env = RUN_DIR, value_name = "DIR", value_parser = folder)]
    run_dir: Option<PathBuf>,

    /// Folder of the fast path's programs, in bpffs; if not given, that of
    /// /etc/tweed/agent.env, or /sys/fs/bpf/tweed
    #[arg(long, env = BPF_DIR, value_name = "DIR", value_parser = folder)]
    bpf_dir: Option<PathBuf>,

    /// Folder of the network's sysctls; not below --root
    #[arg(long, env = "TWEED_SYSCTL_DIR", value_name = "DIR", value_parser = folder,
          default_value = DEFAULT_SYSCTL_DIR)]
    sysctl_dir: PathBuf,

    /// File with the node's boot ID; not below --root
    #[arg(long, env = "TWEED_BOOT_ID_FILE", value_name = "FILE", value_parser = folder,
          default_value = DEFAULT_BOOT_ID_FILE)]
    boot_id_file: PathBuf,

    /// Root of the machine's files: all of these except the sysctls and the boot ID are
    /// below it
    #[arg(long, env = "TWEED_ROOT", value_name = "DIR", value_parser = folder,
          default_value = "/")]
    root: PathBuf,
}

/// The folders that the agent has too, as it sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folders {
    /// Network configs.
    pub cni_conf_dir: PathBuf,
    /// Plugins.
    pub cni_bin_dir: PathBuf,
    /// State of agent and plugin.
    pub run_dir: PathBuf,
    /// The fast path's programs.
    pub bpf_dir: PathBuf,
}

impl Default for Folders {
    fn default() -> Self {
        Self {
            cni_conf_dir: DEFAULT_CNI_CONF_DIR.into(),
            cni_bin_dir: DEFAULT_CNI_BIN_DIR.into(),
            run_dir: DEFAULT_RUN_DIR.into(),
            bpf_dir: DEFAULT_BPF_DIR.into(),
        }
    }
}

/// The folders, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Network configs.
    pub cni_conf_dir: PathBuf,
    /// Plugins.
    pub cni_bin_dir: PathBuf,
    /// State of agent and plugin.
    pub run_dir: PathBuf,
    /// The fast path's programs.
    pub bpf_dir: PathBuf,
    /// Sysctls of the network.
    pub sysctl_dir: PathBuf,
    /// The boot ID.
    pub boot_id_file: PathBuf,
    /// The first four as the agent sees them.
    pub folders: Folders,
    /// The text of the agent's environment file, if there is one.
    pub(crate) environment: Option<String>,
    root: PathBuf,
}

impl PlaceArgs {
    /// The folders below the root.
    ///
    /// # Errors
    /// The agent's environment file is there and cannot be read.
    pub fn resolve(&self) -> Result<Places, InstallError> {
        let path = below(&self.root, Path::new(ENVIRONMENT));
        let environment = regular_file::read_text(&path, limits::HOST_CONFIG);
        let environment = InstallError::if_exists("read", &path, environment)?;
        let text = environment.as_deref().unwrap_or_default();
        let pick = |given: &Option<PathBuf>, variable, default: PathBuf| {
            let of_agent = || folder(environment_file::value(text, variable)?).ok();
            given.clone().or_else(of_agent).unwrap_or(default)
        };
        let default = Folders::default();
        let folders = Folders {
            cni_conf_dir: pick(&self.cni_conf_dir, CNI_CONF_DIR, default.cni_conf_dir),
            cni_bin_dir: pick(&self.cni_bin_dir, CNI_BIN_DIR, default.cni_bin_dir),
            run_dir: pick(&self.run_dir, RUN_DIR, default.run_dir),
            bpf_dir: pick(&self.bpf_dir, BPF_DIR, default.bpf_dir),
        };
        Ok(Places {
            cni_conf_dir: below(&self.root, &folders.cni_conf_dir),
            cni_bin_dir: below(&self.root, &folders.cni_bin_dir),
            run_dir: below(&self.root, &folders.run_dir),
            bpf_dir: below(&self.root, &folders.bpf_dir),
            sysctl_dir: self.sysctl_dir.clone(),
            boot_id_file: self.boot_id_file.clone(),
            folders,
            environment,
            root: self.root.clone(),
        })
    }
}

impl Places {
    /// The default folders below a root.
    #[cfg(test)]
    pub(crate) fn below(root: &Path) -> Self {
        let args = PlaceArgs {
            cni_conf_dir: None,
            cni_bin_dir: None,
            run_dir: None,
            bpf_dir: None,
            sysctl_dir: DEFAULT_SYSCTL_DIR.into(),
            boot_id_file: DEFAULT_BOOT_ID_FILE.into(),
            root: root.to_owned(),
        };
        args.resolve().unwrap()
    }

    /// `path` of the machine, below the root.
    pub fn on_host(&self, path: impl AsRef<Path>) -> PathBuf {
        below(&self.root, path.as_ref())
    }
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// An absolute path: what is installed on a node must not depend on the working
/// directory.
pub(crate) fn folder(text: &str) -> Result<PathBuf, &'static str> {
    let path = PathBuf::from(text);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err("not an absolute path")
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use std::fs;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        places: PlaceArgs,
    }

    #[test]
    fn all_but_sysctls_and_boot_id_are_below_the_root() {
        let line = ["x", "--root", "/host", "--run-dir", "/run/other"];
        let asked = Line::try_parse_from(line).unwrap().places;
        let places = asked.resolve().unwrap();
        assert_eq!(places.cni_conf_dir, Path::new("/host/etc/cni/net.d"));
        assert_eq!(places.run_dir, Path::new("/host/run/other"));
        assert_eq!(places.bpf_dir, Path::new("/host/sys/fs/bpf/tweed"));
        assert_eq!(places.sysctl_dir, Path::new("/proc/sys/net"));
        assert_eq!(places.boot_id_file, Path::new(DEFAULT_BOOT_ID_FILE));
        assert_eq!(places.on_host("/etc/x"), Path::new("/host/etc/x"));
    }

    #[test]
    fn a_folder_is_that_of_a_flag_or_of_the_agent_or_the_default() {
        let root = tempfile::tempdir().unwrap();
        let path = below(root.path(), Path::new(ENVIRONMENT));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text = "TWEED_RUN_DIR=/srv/run\nTWEED_CNI_BIN_DIR=/srv/bin\n";
        fs::write(&path, text).unwrap();
        let words = ["x", "--cni-bin-dir", "/flag/bin", "--root"];
        let line = words.map(Path::new).into_iter().chain([root.path()]);
        let places = Line::try_parse_from(line).unwrap().places.resolve();
        let expected = Folders {
            cni_bin_dir: "/flag/bin".into(),
            run_dir: "/srv/run".into(),
            ..Folders::default()
        };
        assert_eq!(places.unwrap().folders, expected);
    }

    #[test]
    fn a_relative_folder_is_refused() {
        assert!(Line::try_parse_from(["x", "--root", "host"]).is_err());
    }
}
