//! `loadmaster-rank`: trains one stage of a model and reports what it needed.

use std::io::{StdinLock, Write};

use clap::{Parser, Subcommand};
use loadmaster_proto::measure::rank::RankEvent;
use loadmaster_rank::error::RankError;
use loadmaster_rank::{ffi, library, links, progress, spec, train};

/// Trains one stage of a model for a few iterations and reports the memory and time that it needed.
///
/// loadmaster-worker starts this program, one per device, and supervises it; people rarely need to. It
/// is the only part of Loadmaster that needs libtorch.
#[derive(Debug, Parser)]
#[command(name = "loadmaster-rank", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train the stage that the JSON on standard input describes.
    ///
    /// Writes one JSON object per line to standard output: progress, and at the end a measurement, an
    /// out-of-memory report or an error. Text for people goes to standard error.
    #[command(after_long_help = EXIT_CODES)]
    Train,
    /// Measure how fast the devices of a run exchange bytes, as one of its ranks, from the JSON on standard
    /// input.
    #[command(after_long_help = EXIT_CODES)]
    Links,
    /// Print as JSON which libtorch this program finds, and how many CUDA devices.
    Probe,
}

const EXIT_CODES: &str = "\
Exit codes:
   0  success.
   1  another failure, which the error event describes.
  64  the specification is wrong. The error event names the field.
  76  a neighbouring rank ended, or the connection to it broke. The cause is in the output of the neighbour.
  77  out of memory. The out-of-memory event states where, and how many bytes were requested.
  78  the libtorch that was found is not the version that this program is built for.";

fn main() {
    match Cli::parse().command {
        Command::Train => work(
            |input| spec::read(input).and_then(|spec| train::train(&spec)),
            |measurement| RankEvent::Measured { measurement: Box::new(measurement) },
        ),
        Command::Links => work(
            |input| spec::read_links(input).and_then(|spec| links::measure(&spec)),
            |links| RankEvent::LinksMeasured { links: Box::new(links) },
        ),
        Command::Probe => probe(),
    }
}

/// Does what the specification on standard input asks for, and says what came of it.
fn work<T>(
    measure: impl FnOnce(StdinLock<'_>) -> Result<T, RankError>,
    measured: impl FnOnce(T) -> RankEvent,
) -> ! {
    let (event, code) = match measure(std::io::stdin().lock()) {
        Ok(result) => (measured(result), 0),
        Err(error) => {
            eprintln!("loadmaster-rank: {error}");
            let code = error.exit_code();
            let event = match error {
                RankError::OutOfMemory(out_of_memory) => RankEvent::OutOfMemory { out_of_memory },
                other => RankEvent::Error { message: other.to_string() },
            };
            (event, code)
        }
    };
    let code = match progress::write(&event) {
        Ok(()) => code,
        Err(error) => {
            eprintln!("loadmaster-rank: cannot write the result: {error}");
            1
        }
    };
    ffi::end(code)
}

fn probe() -> ! {
    let written = serde_json::to_string(&library::probe())
        .map_err(std::io::Error::other)
        .and_then(|json| writeln!(std::io::stdout(), "{json}").and_then(|()| std::io::stdout().flush()));
    match written {
        Ok(()) => ffi::end(0),
        Err(error) => {
            eprintln!("loadmaster-rank: {error}");
            ffi::end(1)
        }
    }
}
