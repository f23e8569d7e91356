//! The ends of log files, read on the machine: they can be read when the programs of
//! a node have ended.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Maximum number of bytes read of each file: about 400 lines.
const MAX_TAIL_BYTES: u64 = 64 << 10;

/// Prefix of the agents' folders of logs, which are named `<namespace>_<pod>_<uid>`.
const AGENT_POD_PREFIX: &str = "kube-system_tweed-";

/// The ends of all `*.log` in a folder, sorted by path.
pub(super) fn in_folder(folder: &Path) -> Vec<(String, String)> {
    entries(folder)
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "log"))
        .map(|path| {
            let end = tail(&path).unwrap_or_else(|error| error.to_string());
            (path.display().to_string(), end)
        })
        .collect()
}

/// The ends of the logs of tweed's containers, `<pod>/<container>/<restarts>.log` in a
/// node's folder of pod logs. kubelet also keeps the log of the previous container.
pub(super) fn of_agents(pods: &Path) -> Vec<(String, String)> {
    let is_agents = |pod: &PathBuf| {
        pod.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(AGENT_POD_PREFIX))
    };
    entries(pods)
        .into_iter()
        .filter(is_agents)
        .flat_map(|pod| entries(&pod))
        .flat_map(|container| in_folder(&container))
        .collect()
}

/// The sorted entries of a folder; none if it cannot be read.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = read.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(MAX_TAIL_BYTES)))?;
    let mut end = Vec::new();
    // `take`, because the file may grow meanwhile.
    file.take(MAX_TAIL_BYTES).read_to_end(&mut end)?;
    Ok(String::from_utf8_lossy(&end).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(purpose: &str) -> PathBuf {
        let name = format!("tweed-logs-{}-{purpose}", std::process::id());
        std::env::temp_dir().join(name)
    }

    #[test]
    fn logs_of_agents_and_of_their_previous_containers_are_found() {
        let pods = folder("agents");
        for file in [
            "kube-system_tweed-x2x4_1/agent/0.log",
            "kube-system_tweed-x2x4_1/agent/1.log",
            "kube-system_coredns-abc_2/coredns/0.log",
        ] {
            let path = pods.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        let found = of_agents(&pods);
        fs::remove_dir_all(&pods).unwrap();
        let texts: Vec<_> = found.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "kube-system_tweed-x2x4_1/agent/0.log",
                "kube-system_tweed-x2x4_1/agent/1.log"
            ]
        );
    }

    #[test]
    fn the_end_of_a_long_log_is_kept() {
        let logs = folder("long");
        fs::create_dir_all(&logs).unwrap();
        let most = usize::try_from(MAX_TAIL_BYTES).unwrap();
        fs::write(logs.join("a.log"), "x".repeat(most) + "the end").unwrap();
        fs::write(logs.join("a.process"), "1 2").unwrap();
        let found = in_folder(&logs);
        fs::remove_dir_all(&logs).unwrap();
        let [(_, text)] = found.as_slice() else {
            panic!("{} files", found.len());
        };
        assert_eq!(text.len(), most);
        assert!(text.ends_with("xthe end"), "{text}");
    }
}
