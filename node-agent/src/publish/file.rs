//! Replaces a JSON file whole: a reader sees the old content or the new, never
//! half.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// What a replacement came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    /// The file said the same already and was left alone.
    Unchanged,
    /// The file is new.
    Written,
}

/// A file could not be replaced.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub(super) struct WriteError {
    /// The file.
    pub(super) path: PathBuf,
    source: io::Error,
}

/// Makes `path` hold `content`, readable by everybody; makes its folder first
/// where there is none.
pub(super) fn replace(
    path: &Path,
    content: &(impl Serialize + ?Sized),
) -> Result<Write, WriteError> {
    let replaced = || {
        let mut text = serde_json::to_vec_pretty(content)?;
        text.push(b'\n');
        if fs::read(path).is_ok_and(|old| old == text) {
            return Ok(Write::Unchanged);
        }
        write(path, &text)?;
        Ok(Write::Written)
    };
    replaced().map_err(|source| WriteError {
        path: path.to_owned(),
        source,
    })
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    // A runtime lists *.conflist, *.conf and *.json: the suffix hides it.
    let mut temporary = tempfile::Builder::new()
        .prefix(".tweed-")
        .suffix(".new")
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(folder)?;
    temporary.write_all(content)?;
    // After a power cut a rename may outlive the content it names.
    temporary.as_file().sync_all()?;
    temporary.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_file_is_written_once_and_left_alone_while_it_says_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/file");
        assert_eq!(replace(&path, "one").unwrap(), Write::Written);
        let inode = fs::metadata(&path).unwrap().ino();
        assert_eq!(replace(&path, "one").unwrap(), Write::Unchanged);
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
        assert_eq!(replace(&path, "two").unwrap(), Write::Written);
        assert_eq!(fs::read_to_string(&path).unwrap(), "\"two\"\n");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn an_error_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("taken"), "").unwrap();
        let path = dir.path().join("taken/file");
        let error = replace(&path, "x").unwrap_err();
        assert!(error.to_string().contains("taken/file"), "{error}");
    }
}
