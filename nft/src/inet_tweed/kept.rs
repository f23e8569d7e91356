//! What the kernel's table has in the sets of a component, for a time in which it is not
//! known what it should have.

use std::cell::OnceCell;

use tweed_netlink::nf::Socket;
use tweed_netlink::nf::object::SET_NAME;

use super::TABLE;
use crate::element::{Contents, Element};
use crate::observe;
use crate::provided::Provider;
use crate::table::Set;

/// Provides what these sets of the kernel's table hold. They are read when that is first
/// asked for: only a table that has to be replaced needs it.
pub(super) struct Kept {
    sets: Vec<Set>,
    contents: OnceCell<Contents>,
}

impl Kept {
    /// Of these sets.
    pub(super) fn new(sets: impl Iterator<Item = Set>) -> Self {
        Self {
            sets: sets.collect(),
            contents: OnceCell::new(),
        }
    }

    /// Everything, or nothing if something cannot be read: one set that is missing could
    /// let packets pass, while without all of them policy isolates every local address.
    fn contents(&self) -> &Contents {
        self.contents
            .get_or_init(|| self.read().unwrap_or_default())
    }

    fn read(&self) -> Option<Contents> {
        let mut socket = Socket::open().ok()?;
        let mut contents = Contents::new();
        let present = TABLE.sets(&mut socket).ok()?;
        for set in &self.sets {
            // The kernel has no elements of a set that is not there either.
            if !present
                .iter()
                .any(|one| one.text(SET_NAME) == Some(&set.name))
            {
                return None;
            }
            let elements = observe::elements(&mut socket, TABLE, set).ok()??;
            contents.insert(set.name.clone(), elements);
        }
        Some(contents)
    }
}

impl Provider for Kept {
    fn elements<'a>(&'a self, set: &str) -> Box<dyn Iterator<Item = Element> + 'a> {
        let elements = self.contents().get(set).into_iter().flatten();
        Box::new(elements.map(|(key, data)| (key.clone(), data.clone())))
    }
}
