//! Taking the table away, for whoever uninstalls tweed.

use crate::error::Error;
use crate::observe::{self, NAME, TABLE_NAME};
use crate::skeleton::TABLE;
use crate::socket::{Requests, Write};
use crate::wire::Attributes;

const DELETE_TABLE: u8 = 2;

/// Deletes the table, in the calling thread's network namespace; says whether
/// there was one. With `only_look` it stays.
///
/// # Errors
/// [`Error::NoNfTables`], [`Error::NotAllowed`], or the kernel's refusal.
pub fn remove(only_look: bool) -> Result<bool, Error> {
    let mut requests = Requests::open()?;
    let there = observe::table(&mut requests)?.is_some();
    if there && !only_look {
        let delete = Write {
            message: DELETE_TABLE,
            flags: 0,
            attributes: Attributes::new().text(TABLE_NAME, NAME),
        };
        requests.transact(&[delete], TABLE)?;
    }
    Ok(there)
}
