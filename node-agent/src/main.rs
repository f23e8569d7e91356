//! The program `tweed-agent`.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use tweed_agent::cli::{Cli, Command, PolicyQuestion, ServiceQuestion};
use tweed_agent::{program, service_where, why};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        None => program::run(cli.flags),
        Some(Command::Policy(PolicyQuestion::Why(asked))) => why::run(&asked),
        Some(Command::Service(ServiceQuestion::Where(asked))) => service_where::run(&asked),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where it cannot be written, the exit code has to do.
            let line = program::on_one_line(&error);
            let _ = writeln!(std::io::stderr(), "tweed-agent: {line}");
            ExitCode::FAILURE
        }
    }
}
