//! Kubernetes' programs and the images of a new cluster, and where they are found.

use std::fs;
use std::path::{Path, PathBuf};

use tweed_lab::LabError;
use tweed_lab::Programs;

/// Programs that every cluster needs.
const NEEDED: &[&str] = &[
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "runc",
];

/// The archive of the image that every pod needs; other images are beside it.
const PAUSE: &str = "pause.tar";

/// The command that builds them.
const CURE: &str = "run `conformance/setup.sh e2e`";

/// The programs and images that `conformance/setup.sh e2e` has built.
#[derive(Debug, Clone)]
pub(crate) struct KubernetesPrograms {
    folder: PathBuf,
}

impl KubernetesPrograms {
    /// Finds them in `target/tools/kubernetes`.
    pub(crate) fn find(programs: &Programs) -> Result<Self, LabError> {
        let found = Self {
            folder: programs.target().join("tools/kubernetes"),
        };
        for name in NEEDED {
            found.program(name)?;
        }
        found.images()?;
        Ok(found)
    }

    /// The folder of the programs.
    pub(crate) fn bin(&self) -> PathBuf {
        self.folder.join("bin")
    }

    /// Path of a program.
    pub(crate) fn program(&self, name: &str) -> Result<PathBuf, LabError> {
        locate(&self.bin(), name)
    }

    /// The archives of the images, sorted by name.
    pub(crate) fn images(&self) -> Result<Vec<PathBuf>, LabError> {
        let folder = self.folder.join("images");
        locate(&folder, PAUSE)?;
        let failed = |error| LabError::file("read", &folder, error);
        let mut archives = fs::read_dir(&folder)
            .map_err(failed)?
            .map(|entry| entry.map(|entry| entry.path()).map_err(failed))
            .collect::<Result<Vec<_>, _>>()?;
        archives.retain(|path| path.extension().is_some_and(|ending| ending == "tar"));
        archives.sort();
        Ok(archives)
    }
}

fn locate(folder: &Path, name: &str) -> Result<PathBuf, LabError> {
    let path = folder.join(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(LabError::MissingProgram {
        program: name.to_owned(),
        folder: folder.to_owned(),
        cure: CURE,
    })
}
