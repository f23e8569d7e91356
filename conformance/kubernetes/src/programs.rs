//! Kubernetes' programs and the images of a new cluster, and where they are found.

use std::fs;
use std::path::PathBuf;

use tweed_lab::{LabError, Programs, locate};

/// Programs that every cluster needs, whatever its version of Kubernetes.
const OF_EVERY_VERSION: &[&str] = &[
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "etcd",
    "runc",
];

/// Programs that are built for each version of Kubernetes.
const OF_VERSION: &[&str] = &[
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
];

/// The archive of the image that every pod needs; other images are beside it.
const PAUSE: &str = "pause.tar";

/// The command that builds them.
const CURE: &str = "run `conformance/setup.sh e2e`";
/// The command that builds those of another version.
const CURE_OF_VERSION: &str = "run `conformance/setup.sh kubernetes-versions`, which builds the \
     versions in conformance/kubernetes/other-versions";

/// The programs and images that `conformance/setup.sh` has built.
#[derive(Debug, Clone)]
pub(crate) struct KubernetesPrograms {
    folder: PathBuf,
    /// The folder of the components, if they are of another version than the usual one.
    of_version: Option<PathBuf>,
}

impl KubernetesPrograms {
    /// Finds them in `target/tools/kubernetes`: the components of `version`, or else of
    /// the version that `conformance/kubernetes/kubernetes/go.mod` pins.
    pub(crate) fn find(programs: &Programs, version: Option<&str>) -> Result<Self, LabError> {
        let folder = programs.target().join("tools/kubernetes");
        let of_version = version.map(|version| folder.join("versions").join(version).join("bin"));
        let found = Self { folder, of_version };
        for name in OF_EVERY_VERSION.iter().chain(OF_VERSION) {
            found.program(name)?;
        }
        found.images()?;
        Ok(found)
    }

    /// The folders of the programs, the first of which counts where both have one.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let usual = self.folder.join("bin");
        self.of_version.iter().cloned().chain([usual]).collect()
    }

    /// Path of a program.
    pub(crate) fn program(&self, name: &str) -> Result<PathBuf, LabError> {
        match &self.of_version {
            Some(folder) if OF_VERSION.contains(&name) => locate(folder, name, CURE_OF_VERSION),
            _ => locate(&self.folder.join("bin"), name, CURE),
        }
    }

    /// The archives of the images, sorted by name.
    pub(crate) fn images(&self) -> Result<Vec<PathBuf>, LabError> {
        let folder = self.folder.join("images");
        locate(&folder, PAUSE, CURE)?;
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
