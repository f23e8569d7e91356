//! `tweed-ipam`, a CNI IPAM plugin: see [`tweed_ipam::plugin`].

use std::{io, process::ExitCode};

use tweed_cni::{Invocation, run};
use tweed_ipam::plugin::TweedIpam;

fn main() -> ExitCode {
    let invocation = Invocation {
        env: &|name: &str| std::env::var_os(name),
        stdin: &mut io::stdin().lock(),
        stdout: &mut io::stdout().lock(),
        stderr: &mut io::stderr(),
    };
    ExitCode::from(run(invocation, &mut TweedIpam))
}
