//! What the kernel's table has of policy, for a time in which it is not known what it
//! should have.

use std::cell::OnceCell;

use tweed_netlink::nf::Socket;

use super::super::TABLE;
use super::sets;
use crate::element::Contents;
use crate::observe;
use crate::provided::{Element, Provider};

/// Provides what the sets of the kernel's table hold. They are read when that is first
/// asked for: only a table that has to be replaced needs it.
#[derive(Default)]
pub(in super::super) struct Kept(OnceCell<Contents>);

impl Kept {
    /// Everything, or nothing if something cannot be read: a set that is missing could
    /// let packets pass, while without all of them every local address is isolated.
    fn contents(&self) -> &Contents {
        self.0.get_or_init(|| read().unwrap_or_default())
    }
}

fn read() -> Option<Contents> {
    let mut socket = Socket::open().ok()?;
    let mut contents = Contents::new();
    for set in sets::all().map(sets::PolicySet::declaration) {
        let elements = observe::elements(&mut socket, TABLE, &set).ok()??;
        contents.insert(set.name, elements);
    }
    Some(contents)
}

impl Provider for Kept {
    fn elements<'a>(&'a self, set: &str) -> Box<dyn Iterator<Item = Element> + 'a> {
        let elements = self.contents().get(set).into_iter().flatten();
        Box::new(elements.map(|(key, data)| (key.clone(), data.clone())))
    }
}
