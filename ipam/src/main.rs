//! `tweed-ipam`, a CNI IPAM plugin: see [`tweed_ipam::plugin`].

use std::io::{self, Write as _};
use std::process::ExitCode;

use tweed_cni::{Invocation, input_limit, run};
use tweed_core::stdin::Stdin;
use tweed_ipam::plugin::TweedIpam;

/// The version, with its commit.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("TWEED_COMMIT"), ")");

fn main() -> ExitCode {
    // No runtime passes arguments.
    if std::env::args_os().skip(1).eq(["--version"]) {
        let written = writeln!(io::stdout(), "tweed-ipam {VERSION}");
        return ExitCode::from(u8::from(written.is_err()));
    }
    let env = |name: &str| std::env::var_os(name);
    let invocation = Invocation {
        env: &env,
        stdin: &mut Stdin::new(io::stdin().lock(), input_limit(&env)),
        stdout: &mut io::stdout().lock(),
        stderr: &mut io::stderr(),
    };
    ExitCode::from(run(invocation, &mut TweedIpam))
}
