//! The old iptables (`iptables-legacy`): whether its filter table drops what
//! pods send or get, or the VXLAN packets of the overlay, or its nat table translates flows
//! between pods ([`drops`]), and which chains its tables have ([`chains`]). It is no part of nf_tables, and a packet has to pass
//! both.
//!
//! It only reads: a table is asked for
//! only if it is loaded, since asking would load it. It works without the
//! program, which is in no image of tweed; it needs `CAP_NET_ADMIN`. The kernel
//! sends no notification of changes, so it has to be asked periodically.

mod rules;

use std::convert::Infallible;
use std::os::fd::{AsRawFd, OwnedFd};
use std::{fs, io};

use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::probe::{self, Hook, Packets, Probe};
use rules::{BaseChain, Layout, Table};
use tweed_core::{family, problem::Problem};

/// The tables with chains that are looked at.
const TABLES: [&str; 2] = ["filter", "nat"];
/// `IPT_SO_GET_INFO` and `IPT_SO_GET_ENTRIES`, for IPv6 the same.
const GET_INFO: libc::c_int = 64;
const GET_ENTRIES: libc::c_int = 65;
/// `struct ipt_getinfo`: the table's name, then numbers.
const INFO: usize = 84;
const NAME: usize = 32;
/// `struct ipt_get_entries` without the entries.
const HEAD: usize = 40;
/// Where [`INFO`] has, for each hook, its first rule and its policy; and the size of
/// all rules.
const FIRST: usize = NAME + 4;
const POLICY: usize = FIRST + 5 * 4;
const SIZE: usize = NAME + 4 + 5 * 4 + 5 * 4 + 4;
/// How often the rules are asked for, if they change in between.
const TRIES: usize = 3;

/// Why the old tables could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The list of loaded tables.
    #[error("cannot read {0}: {1}")]
    Names(&'static str, #[source] io::Error),
    /// The kernel does not give a table's rules.
    #[error("cannot read the rules of {0}-legacy: {1}")]
    Refused(&'static str, #[source] io::Error),
}

/// One of the two programs, and how its tables are asked for.
struct Family {
    program: &'static str,
    /// That of the packets.
    family: family::Family,
    /// The tables of the calling thread's namespace that are loaded, one a line.
    loaded: &'static str,
    domain: AddressFamily,
    level: libc::c_int,
    layout: Layout,
}

const FAMILIES: [Family; 2] = [
    Family {
        program: "iptables",
        family: family::Family::V4,
        loaded: "/proc/thread-self/net/ip_tables_names",
        domain: AddressFamily::Inet,
        level: libc::IPPROTO_IP,
        layout: rules::IPV4,
    },
    Family {
        program: "ip6tables",
        family: family::Family::V6,
        loaded: "/proc/thread-self/net/ip6_tables_names",
        domain: AddressFamily::Inet6,
        level: libc::IPPROTO_IPV6,
        layout: rules::IPV6,
    },
];

/// What the tables of the calling thread's network namespace drop of such packets, or
/// translate: a problem for each chain.
///
/// # Errors
/// The kernel cannot be asked.
pub fn drops(packets: &Packets) -> Result<Vec<Problem>, Error> {
    let mut problems = Vec::new();
    for family in &FAMILIES {
        for table in TABLES {
            if !family.hooks(table, packets).is_empty()
                && let Some((info, entries)) = family.read(table)?
            {
                problems.extend(drops_of(family.family, table, &info, entries, packets));
            }
        }
    }
    Ok(problems)
}

/// The names of the chains in a table that are not iptables' own, by the program that
/// shows them. Nothing of a table that is not loaded.
///
/// # Errors
/// The kernel cannot be asked.
pub fn chains(table: &str) -> Result<Vec<(String, Vec<String>)>, Error> {
    let mut all = Vec::new();
    for family in &FAMILIES {
        if let Some((_, entries)) = family.read(table)? {
            let layout = family.layout;
            let names = Table { layout, entries }.chains();
            all.push((format!("{}-legacy", family.program), names));
        }
    }
    Ok(all)
}

/// What the table `name` drops or translates, as the kernel gives it: `info` is the answer to
/// `IPT_SO_GET_INFO`, `entries` the rules of the one to `IPT_SO_GET_ENTRIES`.
pub fn drops_of(
    version: family::Family,
    name: &str,
    info: &[u8],
    entries: Vec<u8>,
    packets: &Packets,
) -> Vec<Problem> {
    let family = match version {
        family::Family::V4 => &FAMILIES[0],
        family::Family::V6 => &FAMILIES[1],
    };
    let layout = family.layout;
    let table = Table { layout, entries };
    let judge = |(hook, probes): (_, Vec<_>)| family.judge(&table, info, hook, &probes);
    let hooks = family.hooks(name, packets).into_iter();
    hooks.filter_map(judge).collect()
}

/// Where each chain of a table begins (`IPT_SO_GET_INFO`), and its rules
/// (`IPT_SO_GET_ENTRIES`).
type Answers = (Vec<u8>, Vec<u8>);

impl Family {
    /// The hooks of a table that packets have to pass, with these packets.
    fn hooks(&self, table: &str, packets: &Packets) -> Vec<(Hook, Vec<Probe>)> {
        let hooks = Hook::ALL.into_iter().filter(|hook| hook.table() == table);
        let probed = hooks.map(|hook| (hook, hook.probes(packets, Some(self.family))));
        probed.filter(|(_, probes)| !probes.is_empty()).collect()
    }

    /// Where each chain of a table begins, and its rules; none if it is not loaded.
    fn read(&self, table: &str) -> Result<Option<Answers>, Error> {
        if !self.is_loaded(table)? {
            return Ok(None);
        }
        let refused = |source| Error::Refused(self.program, source);
        self.read_loaded(table).map(Some).map_err(refused)
    }

    fn is_loaded(&self, table: &str) -> Result<bool, Error> {
        match fs::read_to_string(self.loaded) {
            Ok(names) => Ok(names.lines().any(|name| name == table)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(Error::Names(self.loaded, source)),
        }
    }

    fn read_loaded(&self, table: &str) -> io::Result<Answers> {
        let kind = SockType::Datagram;
        let socket = socket(self.domain, kind, SockFlag::SOCK_CLOEXEC, None)?;
        let mut tries = 1..=TRIES;
        loop {
            let info = ask(&socket, self.level, GET_INFO, table, INFO, None)?;
            let size = rules::number(&info, SIZE).ok_or(io::ErrorKind::InvalidData)?;
            let length = HEAD + usize::try_from(size).map_err(io::Error::other)?;
            match ask(&socket, self.level, GET_ENTRIES, table, length, Some(size)) {
                Ok(answer) => {
                    let entries = answer.get(HEAD..).unwrap_or_default();
                    return Ok((info, entries.to_vec()));
                }
                // The rules have another size by now.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tries.next().ok_or(error)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn judge(&self, table: &Table, info: &[u8], hook: Hook, probes: &[Probe]) -> Option<Problem> {
        let offset = |of: usize| {
            let place = of + usize::try_from(hook.number()).ok()? * 4;
            usize::try_from(rules::number(info, place)?).ok()
        };
        let base = BaseChain {
            first: offset(FIRST)?,
            policy: offset(POLICY)?,
        };
        let is_dropped = |probe: &Probe| Ok::<_, Infallible>(table.drops(base, probe));
        let Ok(dropped) = probe::dropped(probes, is_dropped);
        let dropped = dropped?;
        let program = format!("{}-legacy", self.program);
        let name = hook.chain();
        let is_docker_s = hook == Hook::Forward && table.has_chain("DOCKER-USER");
        let chain = if is_docker_s { "DOCKER-USER" } else { name };
        let object = format!("{program} {name}");
        let what = format!("{name} of the old iptables");
        let how = "neither its policy nor a rule accepts them";
        let problem = hook.problem(object, &what, &dropped, how);
        Some(problem.with_cure(probe::iptables_cure(&program, chain, probes)))
    }
}

/// Asks with a buffer that begins with a table's name and, where there is one,
/// a size.
fn ask(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    table: &str,
    length: usize,
    size: Option<u32>,
) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; length];
    buffer[..table.len()].copy_from_slice(table.as_bytes());
    let bytes = size.map(u32::to_ne_bytes).unwrap_or_default();
    buffer[NAME..NAME + bytes.len()].copy_from_slice(&bytes);
    let mut length = libc::socklen_t::try_from(length).map_err(io::Error::other)?;
    #[expect(unsafe_code, reason = "nix has no call for options of netfilter")]
    // SAFETY: the buffer is valid for writes of `length` bytes, and the kernel
    // writes no more; `length` outlives the call.
    let answer = unsafe {
        let place = buffer.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), level, option, place, &mut length)
    };
    match answer {
        0 => Ok(buffer),
        _ => Err(io::Error::last_os_error()),
    }
}
