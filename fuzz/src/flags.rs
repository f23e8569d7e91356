//! The agent's flags, an argument a line. Its environment is read by the same parsers.

use clap::Parser as _;
use tweed_agent::config::{Config, Flags};

/// The host name of a machine whose Node is not named.
const HOST_NAME: &str = "Alpha.example.org";

/// What is refused is refused with a text. What is accepted is accepted again, and can be
/// used: folders do not depend on where the agent was started, and there is at most one
/// range for each family.
pub fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let parse = || -> Result<Config, String> {
        let arguments = std::iter::once("tweed-agent").chain(text.lines());
        let flags = Flags::try_parse_from(arguments).map_err(|error| error.to_string())?;
        let host_name = || Ok(HOST_NAME.to_owned());
        flags.resolve(host_name).map_err(|error| error.to_string())
    };
    let first = parse();
    assert_eq!(parse(), first);
    match first {
        Ok(config) => assert_usable(&config),
        Err(error) => assert!(!error.trim().is_empty()),
    }
}

fn assert_usable(config: &Config) {
    for folder in [
        &config.cni_conf_dir,
        &config.cni_bin_dir,
        &config.run_dir,
        &config.sysctl_dir,
        &config.boot_id_file,
    ] {
        assert!(folder.is_absolute(), "{}", folder.display());
    }
    let overlay = &config.overlay;
    let name = &overlay.node_name;
    assert!(!name.is_empty() && name.len() <= 253, "{name:?}");
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    assert!(name.chars().all(is_allowed), "{name:?}");
    assert!((1..1 << 24).contains(&overlay.vni), "{}", overlay.vni);
    assert_ne!(overlay.vxlan_port, 0);
    let ranges = &overlay.cluster_cidrs;
    let of_ipv4 = ranges.iter().filter(|range| range.is_ipv4()).count();
    assert!(of_ipv4 <= 1 && ranges.len() - of_ipv4 <= 1, "{ranges:?}");
    for range in ranges {
        assert_eq!(range.ip(), range.network(), "{range}");
    }
}
