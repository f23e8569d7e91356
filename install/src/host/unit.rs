//! The systemd unit: the shipped one, with other folders filled in, and what it hides from
//! the agent.

use std::path::{Component, Path, PathBuf};

use tweed_core::paths::{DEFAULT_CNI_CONF_DIR, DEFAULT_RUN_DIR};

use crate::places::Folders;

/// The program that the unit runs.
pub(super) const AGENT: &str = "tweed-agent";
const EXAMPLE: &str = include_str!("../../systemd/tweed-agent.service");
const EXEC: &str = "ExecStart=";
/// What is shipped, with the default folders.
const PROGRAM: &str = "ExecStart=/usr/local/bin/tweed-agent\n";
const RUN: &str = "RuntimeDirectory=tweed\n";
const CONF: &str = "ConfigurationDirectory=cni/net.d\nReadWritePaths=/etc/cni/net.d\n";

/// The unit of an agent with these folders.
pub(super) fn render(program_dir: &Path, folders: &Folders) -> String {
    let program = format!("{EXEC}{}/{AGENT}\n", program_dir.display());
    let mut text = EXAMPLE.replace(PROGRAM, &program);
    if folders.run_dir != Path::new(DEFAULT_RUN_DIR) {
        text = text.replace(RUN, &run_dir(&folders.run_dir));
    }
    if folders.cni_conf_dir != Path::new(DEFAULT_CNI_CONF_DIR) {
        text = text.replace(CONF, &conf_dir(&folders.cni_conf_dir));
    }
    text
}

/// What is below /run does not outlive a boot: systemd has to make it. The unit does not start
/// while any other folder in it does not exist.
fn run_dir(path: &Path) -> String {
    let below = ["/run", "/var/run"].iter().find_map(|run| below(path, run));
    match below {
        Some(name) => format!("RuntimeDirectory={}\n", name.display()),
        None => format!("ReadWritePaths={}\n", path.display()),
    }
}

fn conf_dir(path: &Path) -> String {
    let writable = format!("ReadWritePaths={}\n", path.display());
    match below(path, "/etc") {
        Some(name) => format!("ConfigurationDirectory={}\n{writable}", name.display()),
        None => writable,
    }
}

fn below<'a>(path: &'a Path, folder: &str) -> Option<&'a Path> {
    let rest = path.strip_prefix(folder).ok()?;
    (!rest.as_os_str().is_empty()).then_some(rest)
}

/// The folder of the program that a unit runs.
pub(super) fn program_dir(text: &str) -> Option<PathBuf> {
    let program = text.lines().find_map(|line| line.strip_prefix(EXEC))?;
    let program = Path::new(program.trim());
    let is_agent = program.is_absolute() && program.ends_with(AGENT);
    program.parent().filter(|_| is_agent).map(Path::to_owned)
}

/// Why the agent cannot use this path: the unit hides it.
pub(super) fn hides(path: &Path) -> Option<String> {
    const HIDDEN: [(&str, &str); 5] = [
        ("/home", "ProtectHome"),
        ("/root", "ProtectHome"),
        ("/run/user", "ProtectHome"),
        ("/tmp", "PrivateTmp"),
        ("/var/tmp", "PrivateTmp"),
    ];
    if path.components().any(|part| part == Component::ParentDir) {
        return Some("write it without ..".to_owned());
    }
    let (folder, setting) = HIDDEN.iter().find(|(folder, _)| path.starts_with(folder))?;
    Some(format!(
        "the unit hides {folder} from the agent ({setting}=yes); name a place elsewhere, such as \
         below /etc, /srv or /var/lib"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(run: &str, conf: &str) -> Folders {
        Folders {
            cni_conf_dir: conf.into(),
            run_dir: run.into(),
            ..Folders::default()
        }
    }

    fn rendered(run: &str, conf: &str) -> String {
        render(Path::new("/usr/local/bin"), &folders(run, conf))
    }

    #[test]
    fn the_shipped_unit_has_the_lines_that_are_replaced() {
        for lines in [PROGRAM, RUN, CONF] {
            assert_eq!(EXAMPLE.matches(lines).count(), 1, "{lines}");
        }
        let default = render(Path::new("/usr/local/bin"), &Folders::default());
        assert_eq!(default, EXAMPLE);
        assert_eq!(program_dir(EXAMPLE), Some("/usr/local/bin".into()));
    }

    #[test]
    fn the_agent_may_write_into_other_folders() {
        let conf = DEFAULT_CNI_CONF_DIR;
        assert!(rendered("/run/net/tweed", conf).contains("\nRuntimeDirectory=net/tweed\n"));
        let text = rendered("/srv/tweed", conf);
        assert!(text.contains("\nReadWritePaths=/srv/tweed\n"), "{text}");
        assert!(!text.contains("\nRuntimeDirectory="), "{text}");
        let text = rendered(DEFAULT_RUN_DIR, "/etc/containers/cni");
        let lines = "\nConfigurationDirectory=containers/cni\nReadWritePaths=/etc/containers/cni\n";
        assert!(text.contains(lines), "{text}");
        let text = rendered(DEFAULT_RUN_DIR, "/srv/cni");
        assert!(text.contains("\nReadWritePaths=/srv/cni\n"), "{text}");
        assert!(!text.contains("\nConfigurationDirectory="), "{text}");
    }

    #[test]
    fn the_programs_of_a_unit_are_found_again() {
        let text = render(Path::new("/opt/bin"), &Folders::default());
        assert_eq!(program_dir(&text), Some("/opt/bin".into()));
        for other in ["", "ExecStart=tweed-agent\n", "ExecStart=/bin/sh\n"] {
            assert_eq!(program_dir(other), None, "{other}");
        }
    }

    #[test]
    fn what_the_unit_hides_is_named() {
        for (path, hidden) in [
            ("/root/nodes.yaml", Some("ProtectHome")),
            ("/run/user/0/nodes.yaml", Some("ProtectHome")),
            ("/var/tmp/nodes.yaml", Some("PrivateTmp")),
            ("/rooted/nodes.yaml", None),
            ("/srv/tmp/nodes.yaml", None),
        ] {
            let why = hides(Path::new(path));
            let names = |setting: &str| why.as_ref().is_some_and(|why| why.contains(setting));
            assert_eq!(hidden.is_some(), why.is_some(), "{path}");
            assert!(hidden.is_none_or(names), "{why:?}");
        }
        assert!(hides(Path::new("/srv/../root/nodes.yaml")).is_some());
        for setting in ["ProtectHome=yes", "PrivateTmp=yes"] {
            assert!(EXAMPLE.contains(setting));
        }
    }
}
