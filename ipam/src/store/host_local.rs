//! What host-local left, for pods that were added before this store took over: in the
//! store's own folder if `dataDir` names it, or in host-local's default folder. Its
//! format: a file named like the address, with container ID and interface name on a line
//! each; its early versions wrote no interface name. What always holds: files are
//! removed under the lock that host-local takes too.

use std::path::{Path, PathBuf};
use std::{ffi::OsString, io, net::IpAddr, time::Duration};

use tweed_core::attachment::{Attachment, ContainerId, IfName};

use super::reading::claimed_address;
use super::{LOCK, Store, StoreError, disk::Kind, lock};

/// A file of host-local that names a container.
#[derive(Debug)]
struct Given {
    address: IpAddr,
    path: PathBuf,
    container_id: ContainerId,
    ifname: Option<IfName>,
}

impl Given {
    fn parse(address: IpAddr, path: PathBuf, content: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(content).ok()?.trim();
        let (container_id, ifname) = match text.split_once("\r\n") {
            Some((container_id, ifname)) => (container_id, Some(IfName::new(ifname).ok()?)),
            None => (text, None),
        };
        Some(Self {
            address,
            path,
            container_id: ContainerId::new(container_id).ok()?,
            ifname,
        })
    }

    fn is_of(&self, attachment: &Attachment) -> bool {
        self.container_id == attachment.container_id
            && self
                .ifname
                .as_ref()
                .is_none_or(|ifname| *ifname == attachment.ifname)
    }
}

impl Store {
    /// The same store where a config of host-local without `dataDir` may have been in
    /// use: files in `data_dir`, host-local's default, count as those in the own folder.
    #[must_use]
    pub fn after_host_local(self, data_dir: &Path) -> Self {
        Self {
            host_local: Some(data_dir.join(self.network.as_str())),
            ..self
        }
    }

    /// Removes the files by which host-local gave addresses to `attachment`, and returns
    /// these addresses. Nobody else would free them: host-local is not called any more.
    ///
    /// # Errors
    /// [`StoreError::LockTimeout`], [`StoreError::Io`].
    pub fn free_host_local(
        &self,
        attachment: &Attachment,
        wait: Duration,
    ) -> Result<Vec<IpAddr>, StoreError> {
        let removed = self.remove_host_locals(wait, |files| {
            files.retain(|file| file.is_of(attachment));
            // A file without an interface name may be of another interface.
            if files.iter().any(|file| file.ifname.is_some()) {
                files.retain(|file| file.ifname.is_some());
            }
            Ok(())
        })?;
        Ok(removed.into_iter().map(|file| file.address).collect())
    }

    /// Removes the files of host-local whose attachment is not in `valid`, and returns
    /// their paths. Those of an attachment with a record are left to that: its ADD may
    /// be in progress, by host-local.
    ///
    /// # Errors
    /// As [`Store::free_host_local`].
    pub(crate) fn free_unlisted_host_local(
        &self,
        valid: &[Attachment],
        wait: Duration,
    ) -> Result<Vec<PathBuf>, StoreError> {
        let removed = self.remove_host_locals(wait, |files| {
            files.retain(|file| !valid.iter().any(|valid| file.is_of(valid)));
            if !files.is_empty() {
                // Read after the files, as the record of such an ADD is written first.
                let records = self.entries()?.into_iter().filter_map(|entry| entry.record);
                let recorded: Vec<Attachment> = records.map(|it| it.attachment()).collect();
                files.retain(|file| !recorded.iter().any(|recorded| file.is_of(recorded)));
            }
            Ok(())
        })?;
        Ok(removed.into_iter().map(|file| file.path).collect())
    }

    /// Removes in each folder the files that `choose` keeps. The lock is taken only
    /// where there are some.
    fn remove_host_locals(
        &self,
        wait: Duration,
        choose: impl Fn(&mut Vec<Given>) -> Result<(), StoreError>,
    ) -> Result<Vec<Given>, StoreError> {
        let chosen = |folder| {
            let mut files = self.given_by_host_local(folder)?;
            choose(&mut files)?;
            Ok(files)
        };
        let mut removed = Vec::new();
        for folder in self.host_local_folders() {
            if chosen(folder)?.is_empty() {
                continue;
            }
            let _lock = lock::take(&folder.join(LOCK), wait, lock::Purpose::Free)?;
            for file in chosen(folder)? {
                match self.host.disk.remove(&file.path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(StoreError::io("remove", file.path)(error));
                    }
                    _ => removed.push(file),
                }
            }
        }
        Ok(removed)
    }

    fn given_by_host_local(&self, folder: &Path) -> Result<Vec<Given>, StoreError> {
        let mut files = Vec::new();
        for (address, path) in self.host_local_files(folder)? {
            // A file that cannot be read names nobody.
            let content = self.host.disk.read(&path).unwrap_or_default();
            files.extend(Given::parse(address, path, &content));
        }
        Ok(files)
    }

    /// The addresses for which a folder has a file of host-local, with its path.
    pub(super) fn host_local_files(
        &self,
        folder: &Path,
    ) -> Result<Vec<(IpAddr, PathBuf)>, StoreError> {
        let entries = self.list_or_empty(folder.to_owned())?.into_iter();
        let files = entries.filter(|(_, kind)| *kind == Kind::File);
        let address = |(name, _): (OsString, _)| {
            let address = claimed_address(name.to_str()?)?;
            Some((address, folder.join(name)))
        };
        Ok(files.filter_map(address).collect())
    }

    /// The folders in which host-local may have left files of this network.
    pub(super) fn host_local_folders(&self) -> impl Iterator<Item = &Path> {
        [Some(self.folder.as_path()), self.host_local.as_deref()]
            .into_iter()
            .flatten()
    }
}
