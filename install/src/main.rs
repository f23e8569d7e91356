//! The program `tweed-install`.

use std::{io, process::ExitCode};

use clap::Parser as _;
use tweed_install::cli::Cli;

#[expect(clippy::print_stderr, reason = "the final error of the program")]
fn main() -> ExitCode {
    match tweed_install::run(&Cli::parse(), &mut io::stdout()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("tweed-install: {error}");
            ExitCode::FAILURE
        }
    }
}
