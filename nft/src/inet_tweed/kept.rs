//! What the kernel's table has in the sets of a component, for a time in which it is not
//! known what it should have.

use std::cell::OnceCell;

use tweed_netlink::nf::Socket;
use tweed_netlink::nf::object::SET_NAME;

use super::TABLE;
use crate::element::{Contents, Element};
use crate::error::Error;
use crate::observe;
use crate::provided::Provider;
use crate::table::Set;

/// Provides what these sets of the kernel's table hold. They are read before the table is
/// replaced, which alone needs it.
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

    /// Everything, or nothing if a set is missing or has what tweed never writes: without
    /// one set packets could pass, while without all of them policy isolates every local
    /// address.
    fn read(&self) -> Result<Contents, Error> {
        let mut socket = Socket::open()?;
        let mut contents = Contents::new();
        let present = TABLE.sets(&mut socket)?;
        for set in &self.sets {
            // The kernel has no elements of a set that is not there either.
            if !present
                .iter()
                .any(|one| one.text(SET_NAME) == Some(&set.name))
            {
                return Ok(Contents::new());
            }
            match observe::elements(&mut socket, TABLE, set)? {
                Some(elements) => contents.insert(set.name.clone(), elements),
                None => return Ok(Contents::new()),
            };
        }
        Ok(contents)
    }
}

impl Provider for Kept {
    /// Reads the sets: what cannot be read would be lost.
    fn prepare(&self) -> Result<(), Error> {
        if self.contents.get().is_none() {
            let contents = self.read()?;
            self.contents.get_or_init(|| contents);
        }
        Ok(())
    }

    fn elements<'a>(&'a self, set: &str) -> Box<dyn Iterator<Item = Element> + 'a> {
        let contents = self.contents.get();
        let elements = contents.and_then(|all| all.get(set)).into_iter().flatten();
        Box::new(elements.map(|(key, data)| (key.clone(), data.clone())))
    }
}
