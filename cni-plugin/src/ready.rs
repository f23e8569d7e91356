//! Whether the agent says that the node's network is up.

use std::fs;
use std::path::Path;

use tweed_core::{agent_state::Ready, paths::DEFAULT_BOOT_ID_FILE, uptime::is_older_than_boot};
use tweed_core::{limits, regular_file};

/// Whether the file at `path` is there, and not left by an earlier boot: in a folder that
/// outlives a reboot it is there before the agent has started. A file that is not the
/// agent's counts whenever it is there.
pub fn is_ready(path: &Path) -> bool {
    if !path.exists() {
        return false;
    }
    let text = regular_file::read(path, limits::STATE).ok();
    let ready: Option<Ready> = text.and_then(|text| serde_json::from_slice(&text).ok());
    let (Some(ready), Ok(boot_id)) = (ready, fs::read_to_string(DEFAULT_BOOT_ID_FILE)) else {
        return true;
    };
    // Another boot ID alone proves nothing: a container may have one of its own, while the
    // agent beside it reads the kernel's.
    ready.boot_id == boot_id.trim() || !is_older_than_boot(path)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_file_that_an_earlier_boot_left_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ready");
        assert!(!is_ready(&path));
        let this_boot = fs::read_to_string(DEFAULT_BOOT_ID_FILE).unwrap();
        let another_boot = "11111111-1111-4111-8111-111111111111";
        let (now, long_ago) = (SystemTime::now(), SystemTime::UNIX_EPOCH);
        let by_agent = |boot_id| serde_json::to_string(&Ready::new("node", boot_id)).unwrap();
        for (content, written, counts) in [
            (by_agent(this_boot.trim()), now, true),
            (by_agent(this_boot.trim()), long_ago, true),
            (by_agent(another_boot), now, true),
            (by_agent(another_boot), long_ago, false),
            (String::new(), long_ago, true),
        ] {
            fs::write(&path, &content).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(written).unwrap();
            assert_eq!(is_ready(&path), counts, "{content} of {written:?}");
        }
        // What others put there in its place is not waited for.
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(is_ready(&fifo));
    }
}
