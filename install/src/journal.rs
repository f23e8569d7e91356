//! What was done, a line for each object, as it happens.

use std::fmt::Display;
use std::io::{self, Write};

use crate::error::InstallError;

/// The lines, and how many of them tell of a failure.
pub struct Journal<'a> {
    out: &'a mut dyn Write,
    failed: usize,
    rehearsal: bool,
    /// Whether anything was told.
    told: bool,
    /// What could not be told; said at the end.
    mute: Option<io::Error>,
}

impl<'a> Journal<'a> {
    /// Writes to `out`.
    pub fn new(out: &'a mut dyn Write) -> Self {
        Self {
            out,
            failed: 0,
            rehearsal: false,
            told: false,
            mute: None,
        }
    }

    /// From now on nothing is done, and it is told what would be.
    pub fn rehearse(&mut self) {
        self.rehearsal = true;
    }

    /// Whether nothing is to be done.
    #[must_use]
    pub fn is_rehearsal(&self) -> bool {
        self.rehearsal
    }

    /// Whether nothing was told so far: nothing was done, kept or refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.told
    }

    /// How many things have failed so far.
    #[must_use]
    pub fn failures(&self) -> usize {
        self.failed
    }

    /// Does one thing to one object and tells how that went: `removed x`,
    /// `failed: cannot remove x`, or, in a rehearsal, `would remove x`. Says
    /// whether it is done.
    pub fn act(
        &mut self,
        deed: Deed,
        object: impl Display,
        action: impl FnOnce() -> Result<(), InstallError>,
    ) -> bool {
        if self.rehearsal {
            self.line(format_args!("would {} {object}", deed.to_do));
            return false;
        }
        match action() {
            Ok(()) => self.line(format_args!("{} {object}", deed.done)),
            Err(error) => {
                self.failed(&error);
                return false;
            }
        }
        true
    }

    /// Tells that an object was left as it is, and why.
    pub fn kept(&mut self, object: impl Display, why: impl Display) {
        self.line(format_args!("kept {object}: {why}"));
    }

    /// Tells of a failure; the rest goes on.
    pub fn failed(&mut self, error: &InstallError) {
        self.failed += 1;
        self.line(format_args!("failed: {error}"));
    }

    /// Tells anything else.
    pub fn line(&mut self, line: impl Display) {
        self.told = true;
        if let Err(error) = writeln!(self.out, "{line}") {
            self.mute.get_or_insert(error);
        }
    }

    /// How it went in all.
    ///
    /// # Errors
    /// [`InstallError::Failed`], [`InstallError::Output`].
    pub fn end(self) -> Result<(), InstallError> {
        match (self.failed, self.mute) {
            (0, None) => Ok(()),
            (0, Some(error)) => Err(error.into()),
            (count, _) => Err(InstallError::Failed { count }),
        }
    }
}

/// A verb, for what is to be done and for what is done.
#[derive(Debug, Clone, Copy)]
pub struct Deed {
    to_do: &'static str,
    done: &'static str,
}

impl Deed {
    /// An object goes.
    pub const REMOVE: Self = Self::new("remove", "removed");
    /// A file comes, or another one in its place.
    pub const INSTALL: Self = Self::new("install", "installed");
    /// Something gets the value back that it had.
    pub const RESTORE: Self = Self::new("restore", "restored");
    /// Something is moved out of the way.
    pub const DISPLACE: Self = Self::new("displace", "displaced");

    const fn new(to_do: &'static str, done: &'static str) -> Self {
        Self { to_do, done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(tell: impl FnOnce(&mut Journal<'_>)) -> (String, Result<(), InstallError>) {
        let mut out = Vec::new();
        let mut journal = Journal::new(&mut out);
        tell(&mut journal);
        let end = journal.end();
        (String::from_utf8(out).unwrap(), end)
    }

    #[test]
    fn a_failure_is_told_and_counted_and_the_rest_goes_on() {
        let (lines, end) = told(|journal| {
            let full = || Err(InstallError::Output(io::ErrorKind::StorageFull.into()));
            assert!(!journal.act(Deed::REMOVE, "a", full));
            assert!(journal.act(Deed::REMOVE, "b", || Ok(())));
        });
        assert!(lines.starts_with("failed: "), "{lines}");
        assert!(lines.ends_with("\nremoved b\n"), "{lines}");
        assert!(matches!(end, Err(InstallError::Failed { count: 1 })));
    }

    #[test]
    fn a_rehearsal_does_nothing() {
        let (lines, end) = told(|journal| {
            journal.rehearse();
            journal.act(Deed::REMOVE, "a", || panic!("it was done"));
        });
        assert_eq!(lines, "would remove a\n");
        assert!(end.is_ok());
    }
}
