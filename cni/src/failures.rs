//! The errors of a verb that does not stop at the first one, as DEL and GC.

use crate::error::CniError;

/// Errors of a verb that goes on after a failure.
#[derive(Debug, Default)]
pub struct Failures(Vec<CniError>);

impl Failures {
    /// Records an error; returns the value of a success.
    pub fn keep<T>(&mut self, outcome: Result<T, impl Into<CniError>>) -> Option<T> {
        outcome.map_err(|error| self.0.push(error.into())).ok()
    }

    /// Records an error.
    pub fn push(&mut self, error: CniError) {
        self.0.push(error);
    }

    /// One error that names all of them, with the code of the first.
    ///
    /// # Errors
    /// That error, if there was any.
    pub fn into_result(self) -> Result<(), CniError> {
        let mut errors = self.0.into_iter();
        let Some(mut first) = errors.next() else {
            return Ok(());
        };
        for error in errors {
            if !first.details.is_empty() {
                first.details.push_str("; ");
            }
            first.details.push_str(&format!("also: {error}"));
        }
        Err(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn all_failures_are_named_with_the_first_ones_code() {
        let mut failures = Failures::default();
        assert_eq!(failures.keep(Ok::<_, CniError>(7)), Some(7));
        failures.push(CniError::new(Code::Io, "one"));
        failures.push(CniError::new(Code::KernelRefused, "two"));
        let error = failures.into_result().unwrap_err();
        assert_eq!((error.code, error.msg.as_str()), (5, "one"));
        assert!(error.details.contains("two"));
        assert_eq!(Failures::default().into_result(), Ok(()));
    }
}
