//! A link whose other end is this program: it writes packets that arrive at the kernel, and
//! reads those that leave by the link.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::libc;

/// The request that makes a file the other end of a link, of `linux/if_tun.h`.
const TUNSETIFF: libc::c_ulong = 0x4004_54CA;
/// A link of IP packets, without a header before each.
const FLAGS: u16 = 0x0001 | 0x1000;

/// `struct ifreq` as the request reads it.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// The end of a link that this program has.
pub struct Tun(File);

impl Tun {
    /// Makes a link of this name in the namespace that the thread is in.
    pub fn new(name: &str) -> Self {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK);
        let file = options.open("/dev/net/tun").unwrap();
        let mut request = Request {
            name: [0; 16],
            flags: FLAGS,
            rest: [0; 22],
        };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        #[expect(unsafe_code, reason = "nix has no such call")]
        // SAFETY: the kernel reads and writes one `ifreq` behind the pointer, which is 40
        // bytes as `Request` is, and only during the call.
        let answer = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF as _, &raw mut request) };
        Errno::result(answer).unwrap();
        Self(file)
    }

    /// Has a packet arrive.
    pub fn send(&self, packet: &[u8]) {
        (&self.0).write_all(packet).unwrap();
    }

    /// The next packet that has left, if there is one.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        match (&self.0).read(buffer) {
            Ok(length) => Some(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }
}
