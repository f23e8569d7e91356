//! The program `tweed`: see the library.

use std::io;
use std::process::ExitCode;

use tweed_cni::Tweed;
use tweed_cni::delegate::Processes;
use tweed_cni::kernel::{LinuxKernel, finish_if_asked};
use tweed_ipam::protocol::{Edges, run};

fn main() -> ExitCode {
    if let Some(exit) = finish_if_asked() {
        return exit;
    }
    let edges = Edges {
        env: &|name: &str| std::env::var_os(name),
        stdin: &mut io::stdin().lock(),
        stdout: &mut io::stdout().lock(),
        stderr: &mut io::stderr(),
    };
    let mut plugin = Tweed::new(LinuxKernel::finishing_behind(), Processes);
    ExitCode::from(run(edges, &mut plugin))
}
