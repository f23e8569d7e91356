//! The program `tweedctl`, also as `kubectl-tweed`.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};
use tweed_ctl::args::Cli;
use tweed_ctl::exit::Exit;
use tweed_ctl::output::{Page, clean};

fn main() -> ExitCode {
    let mut command = Cli::command();
    let called = std::env::args_os().next().unwrap_or_default();
    if Path::new(&called)
        .file_name()
        .is_some_and(|name| name == "kubectl-tweed")
    {
        // kubectl finds it by this name, and it is typed as a verb of kubectl's.
        command = command.bin_name("kubectl tweed");
    }
    let matches = command.get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let stdout = io::stdout();
    let is_plain = cli.common.no_color || std::env::var_os("NO_COLOR").is_some();
    let has_colours = stdout.is_terminal() && !is_plain;
    let mut out = stdout.lock();
    let mut page = Page::new(&mut out, cli.common.output);
    page.has_colours = has_colours;
    let exit = tweed_ctl::run(&cli, &mut page).unwrap_or_else(|error| {
        let error = match error.downcast::<clap::Error>() {
            Ok(wrong_usage) => wrong_usage.exit(),
            Err(error) => error,
        };
        let is_reader_gone = error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
        if !is_reader_gone {
            // Where it cannot be written, the exit code has to do.
            let _ = writeln!(io::stderr(), "tweedctl: {}", clean(&format!("{error:#}")));
        }
        Exit::Undetermined
    });
    exit.into()
}
