//! The plugins in the runtime's folder.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_diagnosis::cni_plugins;

use super::{Outcome, ok};
use crate::plugins::PLUGINS;

const ANY_EXECUTE: u32 = 0o111;

/// Reference plugins that are used with tweed, and what does not work without.
const REFERENCE: [(&str, &str); 2] = [
    ("portmap", "hostPort does nothing"),
    ("loopback", cni_plugins::WITHOUT_LOOPBACK),
];

pub(super) fn find(bin_dir: &Path) -> Vec<Outcome> {
    let own = PLUGINS.map(|name| {
        judge(bin_dir, name, "no pod can be added", || {
            let message = format!("{name} is not in {}", bin_dir.display());
            Problem::new(ProblemKind::PluginMissing, name, message).with_cure(
                "`tweed-install host` or tweed's pod installs it; if it did, the runtime uses \
                 another folder: name it with --cni-bin-dir",
            )
        })
    });
    let reference = REFERENCE.map(|(name, without)| {
        judge(bin_dir, name, without, || {
            let message = format!("{name} is not in {}: {without}", bin_dir.display());
            Problem::new(ProblemKind::PortmapMissing, name, message).with_cure(
                "install the reference plugins (Debian: containernetworking-plugins, and copy them \
                 from /usr/lib/cni: what a link leads to is not seen from tweed's pod)",
            )
        })
    });
    own.into_iter().chain(reference).collect()
}

fn judge(bin_dir: &Path, name: &str, without: &str, missing: impl FnOnce() -> Problem) -> Outcome {
    let path = bin_dir.join(name);
    match fs::metadata(&path) {
        Ok(file) if file.is_file() && cni_plugins::is_no_exec(&path) => {
            Err(cni_plugins::no_exec(&path, without).with_effect(Effect::NewPods))
        }
        Ok(file) if file.is_file() && file.permissions().mode() & ANY_EXECUTE != 0 => {
            ok(format!("{} is there", path.display()))
        }
        Ok(_) => {
            let path = path.display();
            let kind = ProblemKind::PluginUnusable;
            Err(Problem::new(kind, name, format!("{path} cannot be run"))
                .with_effect(Effect::NewPods)
                .with_cure(format!("run `chmod 755 {path}`, or install it again")))
        }
        Err(_) => Err(match cni_plugins::missing_target(&path) {
            Some(target) => cni_plugins::link_leads_nowhere(&path, &target, without),
            None => missing(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn a_plugin_must_be_there_and_be_a_program() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, mode: u32| {
            let path = dir.path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        write("tweed", 0o755);
        write("tweed-ipam", 0o644);
        let elsewhere = dir.path().join("elsewhere/portmap");
        std::os::unix::fs::symlink(&elsewhere, dir.path().join("portmap")).unwrap();
        let findings = find(dir.path());
        let portmap = findings[2].as_ref().unwrap_err();
        let link = format!("is a link to {}, which", elsewhere.display());
        assert!(portmap.message.contains(&link), "{portmap}");
        assert!(portmap.cure.starts_with("copy the program"), "{portmap}");
        let levels: Vec<Level> = findings.iter().map(Level::of).collect();
        let expected = [Level::Ok, Level::Error, Level::Warning, Level::Warning];
        assert_eq!(levels, expected);
    }
}
