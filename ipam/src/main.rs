//! `tweed-ipam`, a CNI IPAM plugin: see [`tweed_ipam::plugin`].

use std::io;
use std::process::ExitCode;

use tweed_cni::{Edges, run};
use tweed_ipam::plugin::TweedIpam;

fn main() -> ExitCode {
    let edges = Edges {
        env: &|name: &str| std::env::var_os(name),
        stdin: &mut io::stdin().lock(),
        stdout: &mut io::stdout().lock(),
        stderr: &mut io::stderr(),
    };
    ExitCode::from(run(edges, &mut TweedIpam))
}
