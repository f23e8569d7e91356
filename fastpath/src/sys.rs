//! Requests of bpf(2) that aya does not have, or for which it needs CAP_SYS_ADMIN.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use nix::libc;

/// The commands and attach types of `linux/bpf.h`.
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_PROG_QUERY: libc::c_int = 16;
const BPF_TCX_INGRESS: u32 = 46;
const BPF_TCX_EGRESS: u32 = 47;
/// Maximum number of programs at one hook: `BPF_MPROG_MAX`.
const MAX_PROGRAMS: usize = 64;

/// The part of `union bpf_attr` for `BPF_PROG_QUERY`.
#[repr(C)]
#[derive(Default)]
struct Query {
    target_ifindex: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    count: u32,
    padding: u32,
    prog_attach_flags: u64,
    link_ids: u64,
    link_attach_flags: u64,
    revision: u64,
}

/// Makes a request of bpf(2).
///
/// # Safety
/// `attributes` are those of `command`, and the addresses in them are of memory that lives until
/// this returns and has the sizes that they say.
#[expect(unsafe_code, reason = "nix has no such call")]
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<()> {
    // SAFETY: the kernel is told the size of `attributes`; for the rest the caller answers.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attributes),
            size_of::<T>(),
        )
    };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The IDs of the tcx programs at a link, in the order in which they run.
///
/// # Errors
/// `EINVAL` if the kernel has no tcx; `ENODEV` if there is no such link.
pub(crate) fn tcx_programs(link: u32, ingress: bool) -> io::Result<Vec<u32>> {
    let mut ids = [0_u32; MAX_PROGRAMS];
    let mut query = Query {
        target_ifindex: link,
        attach_type: if ingress {
            BPF_TCX_INGRESS
        } else {
            BPF_TCX_EGRESS
        },
        prog_ids: ids.as_mut_ptr() as u64,
        count: MAX_PROGRAMS as u32,
        ..Query::default()
    };
    #[expect(unsafe_code, reason = "the kernel writes where an address says")]
    // SAFETY: it writes at most `count` numbers to `ids`, which lives until it returns.
    let asked = unsafe { bpf(BPF_PROG_QUERY, &mut query) };
    match asked {
        // Nothing is attached.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(Vec::new()),
        asked => asked?,
    }
    let count = (query.count as usize).min(MAX_PROGRAMS);
    Ok(ids.iter().take(count).copied().collect())
}

/// The part of `union bpf_attr` for `BPF_PROG_TEST_RUN`.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
}

/// Maximum length of a packet that a program gives back, in bytes.
const MAX_PACKET: usize = 4096;

/// Runs a program on a packet that comes by the loopback link. Gives its verdict, and what
/// has become of the packet.
///
/// # Errors
/// The kernel does not run it.
pub(crate) fn run_program(program: BorrowedFd<'_>, packet: &[u8]) -> io::Result<(u32, Vec<u8>)> {
    let mut after = vec![0_u8; MAX_PACKET];
    let mut run = TestRun {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        data_size_in: u32::try_from(packet.len()).map_err(io::Error::other)?,
        data_size_out: MAX_PACKET as u32,
        data_in: packet.as_ptr() as u64,
        data_out: after.as_mut_ptr() as u64,
        repeat: 1,
        ..TestRun::default()
    };
    #[expect(
        unsafe_code,
        reason = "the kernel reads and writes where addresses say"
    )]
    // SAFETY: it reads `packet` and writes at most `data_size_out` bytes to `after`; both live
    // until it returns.
    unsafe { bpf(BPF_PROG_TEST_RUN, &mut run) }?;
    after.truncate(run.data_size_out as usize);
    Ok((run.retval, after))
}
