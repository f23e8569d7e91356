//! The program `tweed-agent`.

use std::process::ExitCode;

use clap::Parser as _;
use tweed_agent::cli::{Cli, Command, Policy, Question, Service, ServiceQuestion};
use tweed_agent::{program, service_where, why};

#[expect(clippy::print_stderr, reason = "the final error of the program")]
fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        None => program::run(cli.flags),
        Some(Command::Policy(Policy {
            question: Question::Why(asked),
        })) => why::run(&asked),
        Some(Command::Service(Service {
            question: ServiceQuestion::Where(asked),
        })) => service_where::run(&asked),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tweed-agent: {}", program::on_one_line(&error));
            ExitCode::FAILURE
        }
    }
}
