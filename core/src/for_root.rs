//! What a person can do who is not root.

use nix::unistd::Uid;

/// A final error, which says that the program has to run as root if it was refused what root
/// may do.
#[must_use]
pub fn for_root(error: String) -> String {
    advised(error, Uid::effective().is_root())
}

fn advised(error: String, is_root: bool) -> String {
    // Errors come through many libraries, and all have these words of the kernel's.
    let words = [
        "Permission denied",
        "Operation not permitted",
        "EPERM:",
        "EACCES:",
    ];
    let is_refused = words.iter().any(|word| error.contains(word));
    if is_root || !is_refused || error.contains("as root") {
        return error;
    }
    error + ": run it as root"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_not_root_and_was_refused_is_advised() {
        let refused = || "cannot make /run/tweed: Permission denied (os error 13)".to_owned();
        assert_eq!(advised(refused(), false), refused() + ": run it as root");
        assert_eq!(advised(refused(), true), refused());
        for other in [
            "cannot make /x: No space left",
            "run it as root: Permission denied",
        ] {
            assert_eq!(advised(other.to_owned(), false), other);
        }
    }
}
