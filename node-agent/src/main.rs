//! The program `tweed-agent`.

use std::process::ExitCode;

use clap::Parser as _;
use tweed_agent::{config::Flags, program};

#[expect(clippy::print_stderr, reason = "the final error of the program")]
fn main() -> ExitCode {
    match program::run(Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tweed-agent: {}", program::on_one_line(&error));
            ExitCode::FAILURE
        }
    }
}
