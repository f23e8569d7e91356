//! The program `tweed-install`.

use std::{io, process::ExitCode};

use clap::Parser as _;
use tweed_core::for_root;
use tweed_install::cli::Cli;
use tweed_install::until_closed::UntilClosed;

#[expect(clippy::print_stderr, reason = "the final error of the program")]
fn main() -> ExitCode {
    match tweed_install::run(&Cli::parse(), &mut UntilClosed(io::stdout())) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("tweed-install: {}", for_root(error.to_string()));
            ExitCode::FAILURE
        }
    }
}
