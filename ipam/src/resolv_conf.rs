//! Name resolution from a file like resolv.conf(5), for the `resolvConf` key.

use std::path::Path;

use crate::ranges::IpamConfig;
use crate::store::disk::{Disk, LocalDisk};
use tweed_cni::{CniError, Code, Dns};

/// Reads the file that the config names, following a symbolic link, as
/// `/etc/resolv.conf` often is one. Without a file, no field is set.
///
/// # Errors
/// Code 5 when the file cannot be read, or is not UTF-8.
pub fn read(config: &IpamConfig) -> Result<Dns, CniError> {
    config
        .resolv_conf
        .as_deref()
        .map_or(Ok(Dns::default()), read_file)
}

fn read_file(path: &Path) -> Result<Dns, CniError> {
    let failed = |error: &dyn std::fmt::Display| {
        CniError::new(
            Code::Io,
            format!("ipam.resolvConf: cannot read {}: {error}", path.display()),
        )
    };
    let content = path
        .canonicalize()
        .and_then(|path| LocalDisk.read(&path))
        .map_err(|error| failed(&error))?;
    let content = String::from_utf8(content).map_err(|error| failed(&error))?;
    Ok(parse(&content))
}

/// Parses the lines. Unlike a resolver, which uses the last `search` and `options`
/// line, this joins all of them, as host-local does.
fn parse(content: &str) -> Dns {
    let mut dns = Dns::default();
    for line in content.lines() {
        let mut words = line.split_whitespace().map(str::to_owned);
        let (Some(key), Some(first)) = (words.next(), words.next()) else {
            continue;
        };
        match key.as_str() {
            "nameserver" => dns.nameservers.push(first),
            "domain" => dns.domain = Some(first),
            "search" => dns.search.extend(std::iter::once(first).chain(words)),
            "options" => dns.options.extend(std::iter::once(first).chain(words)),
            // A comment, or a keyword that has no key in CNI's `dns`.
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_host_local_reads_it() {
        let dns = parse(
            "# nameserver 192.0.2.1\n; search no\n\nnameserver 192.0.2.2\n nameserver\t2001:db8::1 \n\
             domain example.com\nsearch a.example b.example\nsearch c.example\n\
             options ndots:5 edns0\nsortlist 192.0.2.0\nnameserver\n",
        );
        assert_eq!(dns.nameservers, ["192.0.2.2", "2001:db8::1"]);
        assert_eq!(dns.domain.as_deref(), Some("example.com"));
        assert_eq!(dns.search, ["a.example", "b.example", "c.example"]);
        assert_eq!(dns.options, ["ndots:5", "edns0"]);
    }

    #[test]
    fn a_missing_file_is_an_error_that_names_it() {
        let error = read_file(Path::new("/does/not/exist")).unwrap_err();
        assert_eq!(error.code, Code::Io.number());
        assert!(error.msg.contains("/does/not/exist"), "{error}");
    }
}
