//! The two builds of tweed: this one and the previous version.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tweed_lab::Programs;
use tweed_lab_kubernetes::{Cluster, Kubectl, Machine, ProxyMode};

use crate::fixture::AGENTS;

/// Maximum time of a rollout on all nodes, one after the other.
const LIMIT: Duration = Duration::from_secs(300);

/// A build of tweed: image and manifest.
#[derive(Debug)]
pub struct Version {
    /// The image's name: `localhost/tweed:0.1.0`.
    pub image: String,
    archive: PathBuf,
    source: PathBuf,
}

impl Version {
    /// This build, as `make image` writes it.
    pub fn current(programs: &Programs) -> Result<Self> {
        let archive = programs.target().join("tweed-image.tar");
        Self::of(&programs.source(), &archive, "make image")
    }

    /// The previous version, as `conformance/setup.sh previous` writes it.
    pub fn previous(target: &Path) -> Result<Self> {
        let source = target.join("previous");
        let archive = source.join("target/tweed-image.tar");
        Self::of(&source, &archive, "conformance/setup.sh previous")
    }

    fn of(source: &Path, archive: &Path, cure: &str) -> Result<Self> {
        let manifest = source.join("install/tweed.yaml");
        let text = fs::read_to_string(&manifest)
            .with_context(|| format!("read {}: run {cure}", manifest.display()))?;
        ensure!(
            archive.is_file(),
            "{} is missing: run {cure}",
            archive.display()
        );
        let image = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("image: "))
            .with_context(|| format!("{} names no image", manifest.display()))?;
        Ok(Self {
            image: image.to_owned(),
            archive: archive.to_owned(),
            source: source.to_owned(),
        })
    }

    /// Its name: the image's tag.
    pub fn name(&self) -> &str {
        self.image.rsplit(':').next().unwrap_or(&self.image)
    }

    /// Imports its image on a node.
    pub fn import_on(&self, node: &Machine) -> Result<()> {
        Ok(node.import_image(&self.archive)?)
    }

    /// Installs it, with Services, in the whole cluster as a user does; returns the time that
    /// it took.
    pub fn roll_out(&self, cluster: &Cluster) -> Result<Duration> {
        let start = Instant::now();
        cluster.apply_tweed(ProxyMode::Tweed, &self.source)?;
        cluster.kubectl().wait_rolled_out(AGENTS, LIMIT)?;
        Ok(start.elapsed())
    }
}

/// Changes the version of one node only.
pub fn set_version_of(kubectl: &Kubectl, node: &str, version: &Version) -> Result<()> {
    let strategy = r#"{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}"#;
    let daemon_set = ["daemonset/tweed", "--namespace", "kube-system"];
    kubectl.run(
        ["patch"]
            .iter()
            .chain(&daemon_set)
            .chain(&["--patch", strategy]),
    )?;
    let image = format!("*={}", version.image);
    kubectl.run(
        ["set", "image"]
            .iter()
            .chain(&daemon_set)
            .chain(&[image.as_str()]),
    )?;
    let pods = format!(
        "pods --namespace kube-system --selector app.kubernetes.io/component=agent \
         --field-selector spec.nodeName={node}"
    );
    kubectl.sh(&format!("delete {pods}"))?;
    kubectl.wait_all_ready(pods.trim_start_matches("pods "), 1, LIMIT)?;
    Ok(())
}

/// The checksums of the plugins of these nodes: only one if all nodes have the same
/// version.
pub fn plugins<'a>(nodes: impl IntoIterator<Item = &'a Machine>) -> Result<BTreeSet<String>> {
    nodes
        .into_iter()
        .map(|node| Ok(node.sh("sha256sum </opt/cni/bin/tweed")?))
        .collect()
}
