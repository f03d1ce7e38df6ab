//! Whether and how a verb draws pictures, on the command line.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::output::{Format, write_stdout};
use crate::session::context::Context;
use loadmaster_show::picture::sheet::{Sheet, Which};
use loadmaster_show::picture::terminal;
use loadmaster_show::text::terminal_abilities::Look;

/// Cells of a line where there is no terminal to ask.
const WIDTH: usize = 120;

/// Options of verbs that draw pictures.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Pictures")]
pub(super) struct Drawing {
    /// Pictures to draw, separated by commas; without a value all of them [default: all, if standard output is a
    /// terminal or --output names a file].
    #[arg(long, value_enum, value_name = "WHICH", value_delimiter = ',', num_args = 0..=1,
          require_equals = true, default_missing_value = "all")]
    picture: Vec<Picture>,

    /// Replace the file of --output if it exists.
    #[arg(long)]
    overwrite: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Picture {
    /// All of them.
    All,
    /// No picture.
    None,
    /// The stages on the devices.
    Devices,
    /// The memory of the devices.
    Memory,
    /// One iteration.
    Schedule,
    /// For chunked training: where each chunk is, and the device's memory, step by step.
    Chunks,
    /// The Pareto front of memory and time, of plans that have one.
    Front,
}

impl Drawing {
    /// Refuses what cannot be done, before anything is asked for. `is_asked`: another option asks for a picture.
    pub(super) fn check(&self, context: &Context, is_asked: bool) -> Result<(), Failure> {
        if let Some(file) = &context.picture {
            return file.check(self.overwrite);
        }
        let refuse = |why: &str| Failure::usage(why);
        if self.overwrite {
            return refuse(
                "--overwrite: this command writes no file. Name a file with --output, for example --output plan.svg.",
            );
        }
        if (is_asked || !self.picture.is_empty()) && context.output.format != Format::Table {
            return refuse(
                "--output: this format cannot contain pictures. Leave --output out, or name a picture file, for \
                 example --output plan.svg.",
            );
        }
        Ok(())
    }

    /// Whether pictures were asked for, rather than drawn because there is a terminal.
    pub(super) fn is_asked(&self, context: &Context) -> bool {
        context.picture.is_some() || !self.picture.is_empty()
    }

    /// Which pictures are drawn.
    pub(super) fn which(&self, context: &Context) -> Which {
        let terminal = context.output.format == Format::Table && std::io::stdout().is_terminal();
        if self.picture.is_empty() {
            return if terminal || context.picture.is_some() { Which::ALL } else { Which::NONE };
        }
        let mut which = Which::NONE;
        for picture in &self.picture {
            match picture {
                Picture::All => which = Which::ALL,
                Picture::None => which = Which::NONE,
                Picture::Devices => which.devices = true,
                Picture::Memory => which.memory = true,
                Picture::Schedule => which.schedule = true,
                Picture::Chunks => which.chunks = true,
                Picture::Front => which.front = true,
            }
        }
        which
    }

    /// Draws into the file that was named, or on standard output.
    ///
    /// # Errors
    /// One of the pictures that are named is not there, or the file cannot be written.
    pub(super) fn draw(&self, context: &Context, sheet: impl Fn(Look) -> Sheet) -> Result<(), Failure> {
        if !self.picture.is_empty() && !self.picture.contains(&Picture::All) {
            let lacking = sheet(Look::FILE).lacks(self.which(context));
            if !lacking.is_empty() {
                let told = lacking.join(", ");
                let why = format!("--picture: the plan has no {told} to draw. Choose other pictures.");
                return Failure::usage(why);
            }
        }
        let Some(file) = &context.picture else {
            let look = context.output.look;
            return write_stdout(terminal::render(&sheet(look), width(look), look).as_bytes());
        };
        let sheet = sheet(Look::FILE);
        if sheet.is_empty() {
            let why = "the plan has none of the requested pictures. Choose others with --picture.";
            return Failure::usage(format!("--output {}: {why}", file.path().display()));
        }
        file.write(&sheet, self.overwrite)?;
        context.remark(&format!("written to {}", file.path().display()));
        Ok(())
    }
}

/// Cells of a line: the terminal's, else what `COLUMNS` says.
fn width(look: Look) -> usize {
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
    look.width.or_else(columns).unwrap_or(WIDTH)
}
