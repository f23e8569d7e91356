//! What host-local left in the folder, for pods that were added before this store took
//! it over. Its format: a file named like the address, with container ID and interface
//! name on a line each; its early versions wrote no interface name.

use std::{io, net::IpAddr, time::Duration};

use tweed_core::attachment::Attachment;

use super::disk::Kind;
use super::{LOCK, Store, StoreError, lock};

impl Store {
    /// Removes the files by which host-local gave addresses to `attachment`, under the
    /// lock that host-local takes too, and returns these addresses. Nobody else would
    /// free them: host-local is not called any more.
    ///
    /// # Errors
    /// [`StoreError::LockTimeout`], [`StoreError::Io`].
    pub fn free_host_local(
        &self,
        attachment: &Attachment,
        wait: Duration,
    ) -> Result<Vec<IpAddr>, StoreError> {
        if self.host_locals(attachment)?.is_empty() {
            return Ok(Vec::new());
        }
        let _lock = lock::take(&self.path(LOCK), wait, lock::Purpose::Free)?;
        let addresses = self.host_locals(attachment)?;
        for address in &addresses {
            let path = self.claim_path(*address);
            match self.host.disk.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(StoreError::io("remove", path)(error));
                }
                _ => {}
            }
        }
        Ok(addresses)
    }

    /// The addresses that host-local has given to `attachment`.
    fn host_locals(&self, attachment: &Attachment) -> Result<Vec<IpAddr>, StoreError> {
        let container_id = attachment.container_id.as_str();
        let with_ifname = format!("{container_id}\r\n{}", attachment.ifname);
        let (mut given, mut given_early) = (Vec::new(), Vec::new());
        for (address, kind) in self.taken()? {
            if kind != Kind::File {
                continue;
            }
            // A file that cannot be read names nobody.
            let content = self.host.disk.read(&self.claim_path(address));
            let content = content.unwrap_or_default();
            match std::str::from_utf8(&content).map(str::trim) {
                Ok(text) if text == with_ifname => given.push(address),
                Ok(text) if text == container_id => given_early.push(address),
                _ => {}
            }
        }
        Ok(if given.is_empty() { given_early } else { given })
    }
}
