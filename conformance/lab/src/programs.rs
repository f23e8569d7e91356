//! The programs that the lab runs, and where they are found.

use std::path::{Path, PathBuf};

use crate::error::LabError;

/// The reference plugins, and flannel's, that `conformance/setup.sh` builds.
const REFERENCE: &[&str] = &[
    "bandwidth",
    "bridge",
    "firewall",
    "flannel",
    "host-local",
    "loopback",
    "macvlan",
    "portmap",
    "ptp",
    "sbr",
    "static",
    "tuning",
];

/// Folders of programs: tweed's own, as cargo builds them, and the tools.
#[derive(Debug, Clone)]
pub struct Programs {
    own: PathBuf,
    tools: PathBuf,
    target: PathBuf,
}

impl Programs {
    /// Finds them relative to the running program: tweed's programs in
    /// `target/debug` or `target/release`, the tools in `target/tools/bin`.
    /// `TWEED_BIN_DIR` and `TWEED_TOOLS_DIR` name other folders.
    ///
    /// # Errors
    /// [`LabError::MissingProgram`] with the command that installs the tools.
    pub fn find() -> Result<Self, LabError> {
        let exe = std::env::current_exe()
            .map_err(|e| LabError::file("find", Path::new("/proc/self/exe"), e))?;
        let mut beside = exe.parent().unwrap_or(Path::new("/"));
        // The program of a test is in target/<profile>/deps.
        if beside.ends_with("deps") {
            beside = beside.parent().unwrap_or(beside);
        }
        let target = beside.parent().unwrap_or(beside);
        let folder = |variable: &str, default: PathBuf| {
            std::env::var_os(variable).map_or(default, PathBuf::from)
        };
        let programs = Self {
            own: folder("TWEED_BIN_DIR", beside.to_owned()),
            tools: folder("TWEED_TOOLS_DIR", target.join("tools/bin")),
            target: target.to_owned(),
        };
        programs.tool("cnitool")?;
        Ok(programs)
    }

    /// cargo's `target` folder, which holds the running program.
    #[must_use]
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// The project's source folder: the one that contains cargo's `target` folder, or, where
    /// `target` is elsewhere, the one that this program was compiled from.
    #[must_use]
    pub fn source(&self) -> PathBuf {
        let around = self.target.parent().unwrap_or(&self.target);
        if around.join("install").is_dir() {
            return around.to_owned();
        }
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// Path of one of tweed's own programs: `tweed`, `tweed-ipam`,
    /// `tweed-agent`.
    ///
    /// # Errors
    /// [`LabError::MissingProgram`].
    pub fn own(&self, name: &str) -> Result<PathBuf, LabError> {
        locate(&self.own, name, "run `cargo build --workspace`")
    }

    /// Path of a tool: `cnitool` or a reference plugin.
    ///
    /// # Errors
    /// [`LabError::MissingProgram`].
    pub fn tool(&self, name: &str) -> Result<PathBuf, LabError> {
        locate(&self.tools, name, "run `conformance/setup.sh`")
    }

    /// Fills `folder` like a node's `/opt/cni/bin`, with links. Programs of tweed
    /// that are not built are left out; running one is an error then.
    pub(crate) fn link_into(&self, folder: &Path) -> Result<(), LabError> {
        let own = ["tweed", "tweed-ipam"].map(|name| self.own.join(name));
        let reference = REFERENCE.iter().map(|name| self.tools.join(name));
        for program in own.into_iter().chain(reference).filter(|p| p.exists()) {
            let Some(name) = program.file_name() else {
                continue;
            };
            let link = folder.join(name);
            std::os::unix::fs::symlink(&program, &link)
                .map_err(|e| LabError::file("create", &link, e))?;
        }
        Ok(())
    }
}

/// The file of this name in a folder; `cure` says what to do if there is none.
///
/// # Errors
/// There is none.
pub fn locate(folder: &Path, name: &str, cure: &'static str) -> Result<PathBuf, LabError> {
    let path = folder.join(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(LabError::MissingProgram {
        program: name.to_owned(),
        folder: folder.to_owned(),
        cure,
    })
}
