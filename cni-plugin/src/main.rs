//! The program `tweed`: see the library.

use std::io;
use std::process::ExitCode;

use tweed_cni::Tweed;
use tweed_cni::delegate::Processes;
use tweed_cni::kernel::LinuxKernel;
use tweed_ipam::protocol::{Edges, run};

fn main() -> ExitCode {
    let edges = Edges {
        env: &|name: &str| std::env::var_os(name),
        stdin: &mut io::stdin().lock(),
        stdout: &mut io::stdout().lock(),
        stderr: &mut io::stderr(),
    };
    let mut plugin = Tweed::new(LinuxKernel::default(), Processes);
    ExitCode::from(run(edges, &mut plugin))
}
