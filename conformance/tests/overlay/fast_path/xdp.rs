//! XDP programs, by bpf(2) itself: aya loads them from objects only.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use nix::libc;
use nix::net::if_::if_nametoindex;

// Of include/uapi/linux/bpf.h.
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
/// `r0 = XDP_PASS; exit`
const PASS: [u64; 2] = [0x0000_0002_0000_00b7, 0x95];

/// Where frames meet the program.
#[derive(Debug, Clone, Copy)]
pub enum XdpMode {
    /// When they have become packets of the kernel: `XDP_FLAGS_SKB_MODE`.
    Generic = 1 << 1,
    /// In the driver: `XDP_FLAGS_DRV_MODE`.
    Driver = 1 << 2,
}

/// The beginning of `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
struct Load {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
}

/// The same for `BPF_LINK_CREATE`.
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

#[expect(unsafe_code, reason = "nix has no such call")]
fn bpf<T>(command: libc::c_int, attributes: &T) -> OwnedFd {
    // SAFETY: the kernel is told the size of `attributes`, which it only reads. The addresses in
    // it are of constants. A number that it returns is a file descriptor that nobody else owns.
    unsafe {
        let size = size_of::<T>();
        let fd = libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size);
        assert!(fd >= 0, "bpf({command}): {}", io::Error::last_os_error());
        OwnedFd::from_raw_fd(i32::try_from(fd).unwrap())
    }
}

/// A program that lets all frames pass.
pub fn pass_all_frames() -> OwnedFd {
    bpf(
        BPF_PROG_LOAD,
        &Load {
            prog_type: BPF_PROG_TYPE_XDP,
            insn_cnt: 2,
            insns: PASS.as_ptr() as u64,
            license: c"MIT".as_ptr() as u64,
        },
    )
}

/// Attaches it to the wire of the node in whose network namespace this runs. It is detached
/// when the result is dropped.
pub fn attach_xdp(program: &OwnedFd, mode: XdpMode) -> OwnedFd {
    bpf(
        BPF_LINK_CREATE,
        &LinkCreate {
            prog_fd: program.as_raw_fd().cast_unsigned(),
            target_ifindex: if_nametoindex("eth0").unwrap(),
            attach_type: BPF_XDP,
            flags: mode as u32,
        },
    )
}
