//! Writes what [`plan()`] decided about the VXLAN device.

use std::mem;

use nix::errno::Errno;
use tweed_netlink::{Cause, Error, link};

use super::conflict::refused;
use super::plan::{DevicePlan, gives_up, in_place, options_of, plan};
use crate::reconcile::kernel::Kernel;
use crate::reconcile::kernel::change::Change;
use crate::reconcile::kernel::mirror::MirrorPart;
use tweed_core::problem::Problem;
use tweed_planner::overlay::desired::VxlanDevice;

/// The VXLAN device after [`Kernel::ensure_device`].
#[derive(Debug, Default)]
pub struct Device {
    /// Its index, if it is there and up.
    pub index: Option<u32>,
    /// Why it is not, where it should be.
    pub problem: Option<Problem>,
    /// Devices of earlier VNIs, to be removed when nothing uses them any more.
    pub stale: Vec<u32>,
    /// Number of writes.
    pub written: u64,
}

/// Why [`Kernel::ensure_device`] stopped.
enum Stopped {
    /// The kernel refused a write.
    Refused(Error),
    /// The socket failed.
    Failed(Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Kernel {
    /// Makes the VXLAN device like `want`, or, with none, says which devices are
    /// to be removed.
    ///
    /// # Errors
    /// When the socket fails. What the kernel refuses is in [`Device::problem`].
    pub fn ensure_device(&mut self, want: Option<&VxlanDevice>) -> Result<Device, Error> {
        let link = want.and_then(|want| self.mirror.link(&want.name));
        if gives_up(&self.mirror) && link.is_some_and(|link| !link.proto_down) {
            // Whoever took its carrier away has given it back.
            self.mirror.carrier_given = 0;
        }
        let mut plan = plan(&self.mirror, want);
        let mut device = Device {
            problem: plan.problem.take(),
            stale: mem::take(&mut plan.stale),
            ..Device::default()
        };
        let Some(want) = want.filter(|_| device.problem.is_none()) else {
            return Ok(device);
        };
        let sent = self.changes_sent();
        match self.carry_out(plan, want) {
            Ok(index) => device.index = index,
            Err(Stopped::Refused(error)) => {
                // The conflicting device may be new.
                self.invalidate([MirrorPart::Links]);
                self.refresh()?;
                device.problem = Some(refused(&self.mirror.links, want, &error));
            }
            Err(Stopped::Failed(error)) => {
                self.invalidate(MirrorPart::COMPARED);
                return Err(error);
            }
        }
        device.written = self.changes_sent().saturating_sub(sent);
        Ok(device)
    }

    fn carry_out(&mut self, plan: DevicePlan, want: &VxlanDevice) -> Result<Option<u32>, Stopped> {
        if let Some((index, why)) = plan.remove {
            self.delete_device(want, index, &why)?;
        }
        match (plan.index, plan.renamed) {
            (Some(index), Some(was)) if !self.rename_device(want, index, &was)? => {
                self.delete_device(want, index, "this kernel renames no device that is up")?;
                self.create_device(want)
            }
            (Some(index), _) => {
                self.change_device(plan.changes)?;
                Ok(Some(index))
            }
            (None, _) => self.create_device(want),
        }
    }

    fn create_device(&mut self, want: &VxlanDevice) -> Result<Option<u32>, Stopped> {
        let options = options_of(want);
        let create = link::create_vxlan(&want.name, want.mac, want.mtu, &options);
        self.socket
            .execute(&create)
            .map_err(|error| match error.cause {
                Cause::Kernel { .. } => Stopped::Refused(error),
                _ => Stopped::Failed(error),
            })?;
        tracing::info!(device = want.name, vni = want.vni, local = %want.local, "VXLAN device created");
        self.invalidate([MirrorPart::Links]);
        self.refresh()?;
        let Some(created) = self.mirror.link(&want.name) else {
            return Ok(None);
        };
        let (index, changes) = (created.index, in_place(&self.mirror, created, want));
        self.change_device(changes)?;
        Ok(Some(index))
    }

    fn delete_device(&mut self, want: &VxlanDevice, index: u32, why: &str) -> Result<(), Stopped> {
        tracing::info!(
            device = want.name,
            why,
            "the VXLAN device is deleted and created again"
        );
        self.change_device(vec![Change::RemoveLink { index }])
    }

    /// Gives the device its name back; false if the kernel renames only devices
    /// that are down.
    fn rename_device(
        &mut self,
        want: &VxlanDevice,
        index: u32,
        was: &str,
    ) -> Result<bool, Stopped> {
        let name = want.name.clone();
        match self.change_device(vec![Change::RenameLink { index, name }]) {
            Ok(()) => {
                tracing::info!(
                    device = want.name,
                    was,
                    "the VXLAN device was renamed: it has its name again"
                );
                Ok(true)
            }
            Err(Stopped::Refused(error)) if error.errno() == Some(Errno::EBUSY) => Ok(false),
            Err(stopped) => Err(stopped),
        }
    }

    fn change_device(&mut self, changes: Vec<Change>) -> Result<(), Stopped> {
        match self.write(changes)?.refused.pop() {
            None => Ok(()),
            Some(refused) => Err(Stopped::Refused(refused.error)),
        }
    }
}
