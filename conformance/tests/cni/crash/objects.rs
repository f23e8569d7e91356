//! What a verb may leave: objects in the kernel, files in the run folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tweed_lab::{Pod, Snapshot, wait_until};

use crate::fixture::{DELETION_LIMIT, Fixture};

/// Everything that an attachment consists of, a line for each object. A link on its way
/// out is none: its deletion takes the kernel a moment.
#[derive(Debug)]
pub struct Objects(BTreeSet<String>);

impl Objects {
    /// Of the node, its run folder and these pods.
    pub fn of(fixture: &Fixture, pods: &[&Pod]) -> Self {
        let node = Snapshot::of(fixture.node.netns()).unwrap();
        let mut found: BTreeSet<String> = node.to_string().lines().map(Into::into).collect();
        for netns in pods.iter().map(|pod| pod.netns()) {
            // What else a pod has hangs on its links.
            let links = netns.json("ip -j addr show").unwrap();
            let lines = links.as_array().unwrap().iter();
            found.extend(lines.map(|link| format!("{} {link}", netns.name())));
        }
        found.retain(|line| !line.contains("\"twx") && !line.contains("/twx"));
        files_below(&fixture.node.run_dir(), &mut found);
        Self(found)
    }

    /// Fails with the objects that were added and removed. Links on their way out may
    /// vanish while it looks, so it looks again for a while.
    #[track_caller]
    pub fn assert_same(&self, later: impl Fn() -> Self, when: &str) {
        let same = wait_until(when, DELETION_LIMIT, || {
            let later = later();
            let added: Vec<_> = later.0.difference(&self.0).collect();
            let removed: Vec<_> = self.0.difference(&later.0).collect();
            match (added.as_slice(), removed.as_slice()) {
                ([], []) => Ok(()),
                _ => Err(format!("added {added:#?}, removed {removed:#?}")),
            }
        });
        same.map_err(|error| error.chain()).unwrap();
    }
}

/// The names of all files, drafts among them.
fn files_below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        found.insert(format!("file {}", path.display()));
        if path.is_dir() {
            files_below(&path, found);
        }
    }
}
