//! The pods that would lose their network or their address.

use tweed_core::ownership::ALIAS_PREFIX;
use tweed_ipam::record::{Owner, Record};
use tweed_ipam::store::{Host, Store};
use tweed_netlink::link::{self, Link};
use tweed_netlink::{Error, Socket, owned};

use crate::{error::InstallError, places::Places};

/// The pods that are left on this node: pods with a link of tweed's, and pods of
/// other main plugins with an address of `tweed-ipam`, which would be allocated
/// again.
pub(super) fn left(places: &Places) -> Result<Vec<String>, InstallError> {
    let mut pods: Vec<String> = links()?
        .iter()
        .filter(|link| owned::is_pod_link(link))
        .map(name_by_link)
        .collect();
    let data_dir = places.run_dir.join("ipam");
    let host = Host::with_boot_id(&places.boot_id_file);
    for network in Store::networks(&data_dir)? {
        let (records, _) = Store::open_on(host.clone(), &data_dir, &network).records()?;
        let others = records.iter().filter(|record| record.owner == Owner::Other);
        pods.extend(others.map(name_by_record));
    }
    pods.sort();
    Ok(pods)
}

fn links() -> Result<Vec<Link>, Error> {
    link::list(&mut Socket::open()?)
}

/// `<namespace>/<pod>`, or `<network>/<container ID>/<ifname>` if the runtime has
/// named no pod.
fn name_by_link(link: &Link) -> String {
    let alias = link.alias.as_deref().unwrap_or(&link.name);
    let name = alias.strip_prefix(ALIAS_PREFIX).unwrap_or(alias);
    match name.split_once(' ') {
        Some((_, pod)) => pod.to_owned(),
        None => name.to_owned(),
    }
}

fn name_by_record(record: &Record) -> String {
    match &record.pod {
        Some(pod) => format!("{}/{}", pod.namespace, pod.name),
        None => record.attachment().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_named_as_kubernetes_does_or_else_by_its_container() {
        let named = |alias: &str| {
            name_by_link(&Link {
                alias: Some(alias.to_owned()),
                ..Link::default()
            })
        };
        assert_eq!(named("tweed:tweed/c1/eth0 shop/cart-0"), "shop/cart-0");
        assert_eq!(named("tweed:tweed/c1/eth0"), "tweed/c1/eth0");
    }
}
