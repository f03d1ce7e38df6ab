//! `loadmaster-worker`: the daemon on a node with devices.
//!
//! It dials the planner, offers its devices, leases runs and starts one `loadmaster-rank` process
//! per device of a run. It never links libtorch, so nothing that a rank does can take it down.
//!
//! * [`cli`]: the command line; [`config`]: the file, training commands included; [`settings`]: both together.
//! * [`fatal`]: why the daemon ends, and its exit codes.
//! * [`inventory`] and [`probe`]: what the node offers, checked before the planner hears of it.
//! * [`state`]: what the daemon holds and decides. Pure: events in, actions out.
//! * [`link`]: the stream to the planner.
//! * [`ranks`]: the ranks of a run. [`command`]: a training command of another framework in their place. [`process`]: what both
//!   start. [`health`]: who else uses a GPU, and its state.
//! * [`run`]: what all of them know of a run.
//! * [`daemon`]: the one loop that feeds events to the state and carries out its actions, and a run from lease to end.

mod cli;
mod command;
mod config;
mod daemon;
mod fatal;
mod health;
mod host;
mod inventory;
mod link;
mod logging;
mod probe;
mod process;
mod ranks;
mod run;
mod settings;
mod state;
#[cfg(test)]
mod testing;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use logging::LogFormat;
use settings::Settings;

fn main() -> ExitCode {
    let args = cli::Args::parse();
    if args.man {
        let page = clap_mangen::Man::new(cli::Args::command());
        return match page.render(&mut std::io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let settings = Settings::of(args);
    logging::start(settings.as_ref().map_or(LogFormat::Text, |settings| settings.log_format));
    match settings.map_err(Into::into).and_then(daemon::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fatal) => {
            fatal.tell();
            ExitCode::from(fatal.exit_code())
        }
    }
}
