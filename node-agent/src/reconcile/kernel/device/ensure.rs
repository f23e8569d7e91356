//! From the plan for the VXLAN device to the device.

use std::mem;

use nix::errno::Errno;
use tweed_netlink::{Cause, Error, link};

use super::plan::{self as device, DevicePlan};
use crate::reconcile::kernel::change::Change;
use crate::reconcile::kernel::notification::Part;
use crate::reconcile::kernel::{Kernel, Refusal};
use tweed_core::problem::Problem;
use tweed_planner::overlay::desired::VxlanDevice;

/// How the VXLAN device is.
#[derive(Debug, Default)]
pub(in crate::reconcile::kernel) struct Device {
    /// Its index, if it is there and up.
    pub(in crate::reconcile::kernel) index: Option<u32>,
    /// Why it is not, where it should be.
    pub(in crate::reconcile::kernel) problem: Option<Problem>,
    /// Devices of earlier VNIs, to be removed when nothing leads to them.
    pub(in crate::reconcile::kernel) stale: Vec<u32>,
    /// How many writes it took.
    pub(in crate::reconcile::kernel) written: u64,
}

/// Why the device could not be brought about.
enum Halt {
    /// The kernel refused a write.
    Refused(Error),
    /// The kernel cannot be asked.
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Kernel {
    /// Sees to it that the VXLAN device is as `want` says, or, with none, says
    /// which ones are to go.
    ///
    /// # Errors
    /// When the socket fails. What the kernel refuses is in [`Device::problem`].
    pub(in crate::reconcile::kernel) fn keep_device(
        &mut self,
        want: Option<&VxlanDevice>,
    ) -> Result<Device, Error> {
        let mut plan = device::plan(&self.mirror, want);
        let mut device = Device {
            problem: plan.problem.take(),
            stale: mem::take(&mut plan.stale),
            ..Device::default()
        };
        let Some(want) = want.filter(|_| device.problem.is_none()) else {
            return Ok(device);
        };
        let sent = self.changes_sent();
        match self.bring_about(plan, want) {
            Ok(index) => device.index = index,
            Err(Halt::Refused(error)) => {
                // Who is in the way may be new.
                self.doubt([Part::Links]);
                self.refresh()?;
                device.problem = Some(device::refused(&self.mirror.links, want, &error));
            }
            Err(Halt::Failed(error)) => {
                self.doubt(Part::ALL);
                return Err(error);
            }
        }
        device.written = self.changes_sent().saturating_sub(sent);
        Ok(device)
    }

    fn bring_about(&mut self, plan: DevicePlan, want: &VxlanDevice) -> Result<Option<u32>, Halt> {
        if let Some((index, why)) = plan.remove {
            self.remove_device(want, index, &why)?;
        }
        match (plan.index, plan.renamed) {
            (Some(index), Some(was)) if !self.rename_device(want, index, &was)? => {
                self.remove_device(want, index, "the kernel renames none that is up")?;
                self.make_device(want)
            }
            (Some(index), _) => {
                self.change_device(plan.changes)?;
                Ok(Some(index))
            }
            (None, _) => self.make_device(want),
        }
    }

    fn make_device(&mut self, want: &VxlanDevice) -> Result<Option<u32>, Halt> {
        let options = device::options_of(want);
        let create = link::create_vxlan(&want.name, want.mac.0, want.mtu, &options);
        self.socket
            .execute(&create)
            .map_err(|error| match error.cause {
                Cause::Kernel { .. } => Halt::Refused(error),
                _ => Halt::Failed(error),
            })?;
        tracing::info!(device = want.name, vni = want.vni, local = %want.local, "VXLAN device made");
        self.doubt([Part::Links]);
        self.refresh()?;
        let Some(made) = self.mirror.link(&want.name) else {
            return Ok(None);
        };
        let (index, changes) = (made.index, device::in_place(made, want));
        self.change_device(changes)?;
        Ok(Some(index))
    }

    fn remove_device(&mut self, want: &VxlanDevice, index: u32, why: &str) -> Result<(), Halt> {
        tracing::info!(device = want.name, why, "the VXLAN device is made again");
        self.change_device(vec![Change::RemoveLink { index }])
    }

    /// Gives the device its name back; false if the kernel does so only to one
    /// that is down.
    fn rename_device(&mut self, want: &VxlanDevice, index: u32, was: &str) -> Result<bool, Halt> {
        let name = want.name.clone();
        match self.change_device(vec![Change::RenameLink { index, name }]) {
            Ok(()) => {
                tracing::info!(
                    device = want.name,
                    was,
                    "the VXLAN device has its name again"
                );
                Ok(true)
            }
            Err(Halt::Refused(error)) if error.errno() == Some(Errno::EBUSY) => Ok(false),
            Err(halt) => Err(halt),
        }
    }

    fn change_device(&mut self, changes: Vec<Change>) -> Result<(), Halt> {
        match self.write(changes)?.pop() {
            None => Ok(()),
            Some(Refusal { error, .. }) => Err(Halt::Refused(error)),
        }
    }
}
