//! Where programs are attached: tcx links, pinned by name, the last at their hook.
//!
//! A pinned link keeps its program attached while no agent runs. Each has a file
//! `links/<program>-<index of the link>`; who opens it, removes the file and closes it has
//! detached the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use aya::Ebpf;
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::tc::{SchedClassifierLink, TcAttachOptions, TcError};
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType};
use nix::libc;
use nix::net::if_::if_indextoname;

use crate::error::Error;
use crate::sys;

/// A program, and so the hook at which it is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// What a pod sends.
    PodIn,
    /// What a pod gets.
    PodOut,
    /// What leaves by the VXLAN device, before the outer header.
    VxlanOut,
    /// What comes from other nodes.
    NicIn,
    /// What leaves to other nodes by plain routes.
    NicOut,
}

impl Hook {
    /// All of them.
    pub(crate) const ALL: [Self; 5] = [
        Self::PodIn,
        Self::PodOut,
        Self::VxlanOut,
        Self::NicIn,
        Self::NicOut,
    ];

    /// The name of the program in the object.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::PodIn => "pod_in",
            Self::PodOut => "pod_out",
            Self::VxlanOut => "vxlan_out",
            Self::NicIn => "nic_in",
            Self::NicOut => "nic_out",
        }
    }

    fn is_ingress(self) -> bool {
        match self {
            Self::PodIn | Self::NicIn => true,
            Self::PodOut | Self::VxlanOut | Self::NicOut => false,
        }
    }
}

/// A hook of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The hook.
    pub hook: Hook,
    /// The index of the link.
    pub link: u32,
}

impl Place {
    /// The name of its pin. Names in bpffs have no dot.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}-{}", self.hook.program(), self.link)
    }

    fn of_name(name: &str) -> Option<Self> {
        let (program, link) = name.rsplit_once('-')?;
        let hook = Hook::ALL
            .into_iter()
            .find(|hook| hook.program() == program)?;
        Some(Self {
            hook,
            link: link.parse().ok()?,
        })
    }
}

/// The folder of pinned links.
fn links_dir(dir: &Path) -> PathBuf {
    dir.join("links")
}

/// The folder of pinned maps.
pub(crate) fn maps_dir(dir: &Path) -> PathBuf {
    dir.join("maps")
}

/// Detaches all programs whose links are pinned in `dir`, and removes it. Says how many
/// files there were.
///
/// # Errors
/// A file cannot be removed.
pub fn remove(dir: &Path) -> Result<usize, Error> {
    let mut removed = 0;
    for folder in [links_dir(dir), maps_dir(dir)] {
        for name in names(&folder)? {
            unpin(&folder.join(name))?;
            removed += 1;
        }
        unless_gone(fs::remove_dir(&folder), &folder)?;
    }
    unless_gone(fs::remove_dir(dir), dir)?;
    Ok(removed)
}

/// The names in a folder; none if there is no such folder.
pub(crate) fn names(folder: &Path) -> Result<Vec<String>, Error> {
    let failed = |source| Error::File {
        path: folder.to_owned(),
        source,
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect::<io::Result<_>>().map_err(failed)
}

/// That a removal has failed, unless there was nothing at `path`.
fn unless_gone(removed: io::Result<()>, path: &Path) -> Result<(), Error> {
    match removed {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::File {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

/// Removes a pin. If it is that of a link, its program is detached when this returns: the
/// last who has the link closes it after its file has gone.
fn unpin(path: &Path) -> Result<(), Error> {
    let open = PinnedLink::from_pin(path);
    let removed = fs::remove_file(path);
    drop(open);
    unless_gone(removed, path)
}

/// The pinned links in `dir`.
pub(crate) fn pinned(dir: &Path) -> Result<BTreeSet<Place>, Error> {
    let mut places = BTreeSet::new();
    let folder = links_dir(dir);
    for name in names(&folder)? {
        match Place::of_name(&name) {
            Some(place) => {
                places.insert(place);
            }
            None => unpin(&folder.join(name))?,
        }
    }
    Ok(places)
}

/// Detaches the program at `place`.
pub(crate) fn detach(dir: &Path, place: Place) -> Result<(), Error> {
    unpin(&links_dir(dir).join(place.name()))
}

/// The program of a hook, which is loaded.
pub(crate) fn program(loaded: &mut Ebpf, hook: Hook) -> Result<&mut SchedClassifier, Error> {
    let found = loaded.program_mut(hook.program());
    let classifier = found.and_then(|program| program.try_into().ok());
    classifier.ok_or_else(|| Error::Refused {
        what: format!("the program {}", hook.program()),
        why: "it is not in the object".to_owned(),
    })
}

/// Has the kernel verify all programs. Gives the ID of each.
pub(crate) fn load(loaded: &mut Ebpf) -> Result<BTreeMap<Hook, u32>, Error> {
    let mut ids = BTreeMap::new();
    for hook in Hook::ALL {
        let what = format!("the program {}", hook.program());
        let failed = |error| Error::of(&what, &error);
        let program = program(loaded, hook)?;
        program.load().map_err(failed)?;
        ids.insert(hook, program.info().map_err(failed)?.id());
    }
    Ok(ids)
}

/// Puts the loaded program in the place of the one that an earlier run has attached. Where
/// the link's device is gone, the pin is removed.
pub(crate) fn replace(loaded: &mut Ebpf, dir: &Path, place: Place) -> Result<(), Error> {
    let program = program(loaded, place.hook)?;
    let path = links_dir(dir).join(place.name());
    let replaced = PinnedLink::from_pin(&path).ok().and_then(|pinned| {
        let link: SchedClassifierLink = FdLink::from(pinned).try_into().ok()?;
        let id = program.attach_to_link(link).ok()?;
        // It stays by its pin.
        program.take_link(id).ok()
    });
    match replaced {
        Some(_) => Ok(()),
        None => unpin(&path),
    }
}

/// Whether the program with this ID is attached at `place`, once, and behind all others.
pub(crate) fn is_attached(place: Place, id: u32) -> bool {
    let programs = sys::tcx_programs(place.link, place.hook.is_ingress());
    programs.is_ok_and(|ids| {
        ids.last() == Some(&id) && ids.iter().filter(|one| **one == id).count() == 1
    })
}

/// Whether there was no link with the index or the name.
fn is_of_no_link(error: &ProgramError) -> bool {
    let error = match error {
        ProgramError::TcError(TcError::IoError(error)) => error,
        ProgramError::SyscallError(error) => &error.io_error,
        _ => return false,
    };
    error.raw_os_error() == Some(libc::ENODEV)
}

/// Attaches the program of a place, and pins it. Says whether it is there: its link may be
/// gone.
pub(crate) fn attach(loaded: &mut Ebpf, dir: &Path, place: Place) -> Result<bool, Error> {
    let what = format!(
        "{} at the link with index {}",
        place.hook.program(),
        place.link
    );
    let program = program(loaded, place.hook)?;
    let name = if_indextoname(place.link).ok();
    let Some(name) = name.and_then(|name| name.into_string().ok()) else {
        return Ok(false);
    };
    let direction = if place.hook.is_ingress() {
        TcAttachType::Ingress
    } else {
        TcAttachType::Egress
    };
    let last = TcAttachOptions::TcxOrder(LinkOrder::last());
    let failed = |error: ProgramError| Error::of(&what, &error);
    let id = match program.attach_with_options(&name, direction, last) {
        Ok(id) => id,
        // The link has gone since, or has another name.
        Err(error) if is_of_no_link(&error) => return Ok(false),
        Err(error) => return Err(failed(error)),
    };
    let tcx = program.take_link(id).map_err(failed)?;
    let link: FdLink = tcx.try_into().map_err(|error| Error::of(&what, &error))?;
    // Somebody may have removed the folder with all pins in it.
    make_dirs(dir)?;
    let path = links_dir(dir).join(place.name());
    let pinned = link.pin(path);
    pinned.map_err(|error| Error::of(&what, &error))?;
    Ok(true)
}

/// Makes the folders of pins.
pub(crate) fn make_dirs(dir: &Path) -> Result<(), Error> {
    for path in [links_dir(dir), maps_dir(dir)] {
        fs::create_dir_all(&path).map_err(|source| Error::File { path, source })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_known_by_its_name() {
        for hook in Hook::ALL {
            let place = Place { hook, link: 17 };
            assert_eq!(Place::of_name(&place.name()), Some(place));
            assert!(!place.name().contains('.'));
        }
        for other in ["pod_in", "pod_in-x", "other-3"] {
            assert_eq!(Place::of_name(other), None, "{other}");
        }
    }
}
