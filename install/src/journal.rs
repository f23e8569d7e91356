//! The report of what was done: a line for each object, as it happens.

use std::fmt::Display;
use std::io::{self, Write};

use crate::error::InstallError;

/// Writes the lines and counts the failures.
pub struct Journal<'a> {
    out: &'a mut dyn Write,
    failed: usize,
    rehearsal: bool,
    /// Whether there was any line.
    has_lines: bool,
    /// The first error of `out`; returned at the end.
    output_error: Option<io::Error>,
}

impl<'a> Journal<'a> {
    /// Writes to `out`.
    pub fn new(out: &'a mut dyn Write) -> Self {
        Self {
            out,
            failed: 0,
            rehearsal: false,
            has_lines: false,
            output_error: None,
        }
    }

    /// From now on nothing is done, and the lines say what would be done.
    pub fn rehearse(&mut self) {
        self.rehearsal = true;
    }

    /// Whether nothing is to be done.
    pub fn is_rehearsal(&self) -> bool {
        self.rehearsal
    }

    /// Whether there was no line so far: nothing was done, kept or refused.
    pub fn is_empty(&self) -> bool {
        !self.has_lines
    }

    /// How many things have failed so far.
    pub fn failures(&self) -> usize {
        self.failed
    }

    /// Does one thing to one object and writes the outcome: `removed x`,
    /// `failed: cannot remove x`, or, in a rehearsal, `would remove x`. Returns
    /// whether it was done.
    pub fn act(
        &mut self,
        Action(to_do, done): Action,
        object: impl Display,
        run: impl FnOnce() -> Result<(), InstallError>,
    ) -> bool {
        if self.rehearsal {
            self.line(format_args!("would {to_do} {object}"));
            return false;
        }
        let outcome = self.checked(run());
        if outcome.is_some() {
            self.line(format_args!("{done} {object}"));
        }
        outcome.is_some()
    }

    /// Stops with `error`; a rehearsal reports it and continues.
    ///
    /// # Errors
    /// `error`.
    pub fn refuse(&mut self, error: InstallError) -> Result<(), InstallError> {
        if !self.rehearsal {
            return Err(error);
        }
        self.line(format_args!("would refuse: {error}"));
        Ok(())
    }

    /// Reports that an object was left as it is, and why.
    pub fn kept(&mut self, object: impl Display, why: impl Display) {
        self.line(format_args!("kept {object}: {why}"));
    }

    /// Reports a failure; the caller continues.
    pub fn failed(&mut self, error: impl Display) {
        self.failed += 1;
        self.line(format_args!("failed: {error}"));
    }

    /// A result that is needed to continue; a failure is reported.
    pub fn checked<T>(&mut self, result: Result<T, InstallError>) -> Option<T> {
        result.map_err(|error| self.failed(&error)).ok()
    }

    /// Writes any other line.
    pub fn line(&mut self, line: impl Display) {
        self.has_lines = true;
        if let Err(error) = writeln!(self.out, "{line}") {
            self.output_error.get_or_insert(error);
        }
    }

    /// The overall outcome.
    ///
    /// # Errors
    /// [`InstallError::Failed`], [`InstallError::Output`].
    pub fn end(self) -> Result<(), InstallError> {
        match (self.failed, self.output_error) {
            (0, None) => Ok(()),
            (0, Some(error)) => Err(error.into()),
            (count, _) => Err(InstallError::Failed { count }),
        }
    }
}

/// An action, as an infinitive and as a participle.
#[derive(Debug, Clone, Copy)]
pub struct Action(&'static str, &'static str);

impl Action {
    /// An object is removed.
    pub const REMOVE: Self = Self("remove", "removed");
    /// A file is created or replaced.
    pub const INSTALL: Self = Self("install", "installed");
    /// A folder is made.
    pub const MAKE: Self = Self("make", "made");
    /// Something gets its former value back.
    pub const RESTORE: Self = Self("restore", "restored");
    /// Something is moved aside.
    pub const DISPLACE: Self = Self("displace", "displaced");
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
            assert!(!journal.act(Action::REMOVE, "a", full));
            assert!(journal.act(Action::REMOVE, "b", || Ok(())));
        });
        assert!(lines.starts_with("failed: "), "{lines}");
        assert!(lines.ends_with("\nremoved b\n"), "{lines}");
        assert!(matches!(end, Err(InstallError::Failed { count: 1 })));
    }

    #[test]
    fn a_rehearsal_does_nothing() {
        let (lines, end) = told(|journal| {
            journal.rehearse();
            journal.act(Action::REMOVE, "a", || panic!("it was done"));
        });
        assert_eq!(lines, "would remove a\n");
        assert!(end.is_ok());
    }
}
