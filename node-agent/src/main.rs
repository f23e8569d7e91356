//! The program `tweed-agent`.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use tweed_agent::config::Flags;
use tweed_agent::program;
use tweed_core::for_root;

fn main() -> ExitCode {
    match program::run(Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where it cannot be written, the exit code has to do.
            let line = for_root(program::on_one_line(&error));
            let _ = writeln!(std::io::stderr(), "tweed-agent: {line}");
            ExitCode::FAILURE
        }
    }
}
