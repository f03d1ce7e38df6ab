//! `loadmaster-worker`: the daemon on a node with devices.
//!
//! It dials the planner, offers its devices, leases runs and starts one `loadmaster-rank` process
//! per device of a run. It never links libtorch, so nothing that a rank does can take it down.
//!
//! * [`cli`]: the command line; [`fatal`]: why the daemon ends, and its exit codes.
//! * [`inventory`] and [`probe`]: what the node offers, checked before the planner hears of it.
//! * [`state`]: what the daemon holds and decides. Pure: events in, actions out.
//! * [`link`]: the stream to the planner. [`supervise`]: the processes of a run.
//! * [`daemon`]: the one loop that feeds events to the state and carries out its actions.

mod claim;
mod cli;
mod daemon;
mod fatal;
mod host;
mod inventory;
mod link;
mod logging;
mod probe;
mod state;
mod supervise;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = cli::Args::parse();
    logging::start(args.log_format);
    match daemon::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fatal) => {
            logging::fatal(&fatal);
            ExitCode::from(fatal.exit_code())
        }
    }
}
