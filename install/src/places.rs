//! The folders of a node.

use std::path::{Path, PathBuf};

use clap::Args;
use tweed_core::paths::{
    DEFAULT_BOOT_ID_FILE, DEFAULT_CNI_BIN_DIR, DEFAULT_CNI_CONF_DIR, DEFAULT_RUN_DIR,
    DEFAULT_SYSCTL_DIR,
};

/// The folders, as typed. Names, variables and defaults are the agent's.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Folders")]
pub struct PlaceArgs {
    /// Folder of the runtime's network configs
    #[arg(long, env = "TWEED_CNI_CONF_DIR", value_name = "DIR", value_parser = folder,
          default_value = DEFAULT_CNI_CONF_DIR)]
    cni_conf_dir: PathBuf,

    /// Folder of the runtime's CNI plugins
    #[arg(long, env = "TWEED_CNI_BIN_DIR", value_name = "DIR", value_parser = folder,
          default_value = DEFAULT_CNI_BIN_DIR)]
    cni_bin_dir: PathBuf,

    /// Folder of the state of agent and plugin
    #[arg(long, env = "TWEED_RUN_DIR", value_name = "DIR", value_parser = folder,
          default_value = DEFAULT_RUN_DIR)]
    run_dir: PathBuf,

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

/// The folders, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Network configs.
    pub cni_conf_dir: PathBuf,
    /// Plugins.
    pub cni_bin_dir: PathBuf,
    /// State of agent and plugin.
    pub run_dir: PathBuf,
    /// Sysctls of the network.
    pub sysctl_dir: PathBuf,
    /// The boot ID.
    pub boot_id_file: PathBuf,
    root: PathBuf,
}

impl PlaceArgs {
    /// The folders below the root.
    #[must_use]
    pub fn resolve(&self) -> Places {
        Places {
            cni_conf_dir: below(&self.root, &self.cni_conf_dir),
            cni_bin_dir: below(&self.root, &self.cni_bin_dir),
            run_dir: below(&self.root, &self.run_dir),
            sysctl_dir: self.sysctl_dir.clone(),
            boot_id_file: self.boot_id_file.clone(),
            root: self.root.clone(),
        }
    }
}

impl Places {
    /// `path` of the machine, below the root.
    #[must_use]
    pub fn on_host(&self, path: &str) -> PathBuf {
        below(&self.root, Path::new(path))
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

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        places: PlaceArgs,
    }

    #[test]
    fn all_but_sysctls_and_boot_id_are_below_the_root() {
        let line = ["x", "--root", "/host", "--run-dir", "/run/other"];
        let places = Line::try_parse_from(line).unwrap().places.resolve();
        assert_eq!(places.cni_conf_dir, Path::new("/host/etc/cni/net.d"));
        assert_eq!(places.run_dir, Path::new("/host/run/other"));
        assert_eq!(places.sysctl_dir, Path::new("/proc/sys/net"));
        assert_eq!(places.boot_id_file, Path::new(DEFAULT_BOOT_ID_FILE));
        assert_eq!(places.on_host("/etc/x"), Path::new("/host/etc/x"));
    }

    #[test]
    fn a_relative_folder_is_refused() {
        assert!(Line::try_parse_from(["x", "--root", "host"]).is_err());
    }
}
