//! `tweed-ipam`, a CNI IPAM plugin: see [`tweed_ipam::plugin`].

use std::{io, process::ExitCode};

use tweed_cni::{Invocation, input_limit, run};
use tweed_core::stdin::Stdin;
use tweed_ipam::plugin::TweedIpam;

fn main() -> ExitCode {
    let env = |name: &str| std::env::var_os(name);
    let invocation = Invocation {
        env: &env,
        stdin: &mut Stdin::new(io::stdin().lock(), input_limit(&env)),
        stdout: &mut io::stdout().lock(),
        stderr: &mut io::stderr(),
    };
    ExitCode::from(run(invocation, &mut TweedIpam))
}
