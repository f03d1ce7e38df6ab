//! `make bench-chunks`: models larger than their device, trained.
//!
//! On a CPU slot with a paced link, or on a part of a GPU, each rule (all of it on the device, ZeRO-Offload's static partition,
//! PatrickStar, ours) trains the largest GPT-2 that it can; then those that can train one common model are compared, predicted and
//! measured, and ours on several slots that share its chunks. Layers are recorded alone by real ranks first, and nothing else is
//! known of the models.

mod machine;
mod profile;
mod report;
mod rule;

use anyhow::{Context, Result};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::Backend;
use loadmaster_proto::measure::offload::CopyPace;
use machine::{Machine, Setting};
use profile::Profile;
use rule::{Rule, Trainer};

use crate::output::Output;
use crate::report::Report;

/// Trains models in chunks under fixed caps and compares what others do.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Train on the first GPU, of which plans may allocate --device (its allocator keeps more). Nothing is paced: --pace is how
    /// fast plans take its copies to be.
    #[arg(long, conflicts_with_all = ["quick", "shared"], requires = "pace")]
    gpu: bool,

    /// Bytes of the CPU slot.
    #[arg(long, value_name = "BYTES", default_value = "128MiB")]
    device: Bytes,

    /// Bytes of the host that chunks may take.
    #[arg(long, value_name = "BYTES", default_value = "1.5GiB")]
    host: Bytes,

    /// How fast copies between them are.
    #[arg(long, value_name = "LINKS", default_value = "host=250MB/s")]
    pace: CopyPace,

    /// Hidden size of the models.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(i64).range(16..=8192))]
    hidden_size: i64,

    /// Tokens of a sample.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(i64).range(16..=8192))]
    sequence_length: i64,

    /// Only ours on several slots, of a model of so many blocks.
    #[arg(long, value_name = "BLOCKS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    shared: Option<u32>,

    /// The small setting: a few seconds, where caps are a tenth.
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: Output,
}

/// A slower pace, at which static and ours are compared once more: what a link cannot hide behind passes shows.
const SLOWER: f64 = 125e6;

/// Measures all of it.
pub(crate) async fn run(options: &Options) -> Result<bool> {
    let mut report = Report::new("chunks", &options.output, options.quick)?;
    let pace = options.pace.host.context("--pace must name the host, for example host=250MB/s")?;
    let wanted = Setting {
        backend: if options.gpu { Backend::Cuda } else { Backend::Cpu },
        sequence_length: options.sequence_length,
        device: options.device,
        host: options.host,
        hidden_size: options.hidden_size,
        iterations: 3,
        micro_batches: 4,
        pace,
    };
    // The first iteration's last update ends in the second.
    let small =
        Setting { device: Bytes(6 << 20), host: Bytes(48 << 20), hidden_size: 96, iterations: 2, ..wanted };
    let setting = if options.quick { small } else { wanted };
    // What several slots exchange is measured for seconds each.
    let counts = if options.quick { &rule::COUNTS[..2] } else { &rule::COUNTS };
    report.print(setting);
    let machine = Machine { setting };
    let profile = Profile::record(&machine).await?;
    report.print(format!(
        "{} distinct layers recorded; the host updates {:.2} billion parameters a second\n",
        profile.layers(),
        profile.update / 1e9
    ));
    if let Some(blocks) = options.shared {
        report.print(shared(&machine, &profile, blocks, counts).await?);
        return report.finish();
    }

    let trainer = |rule| Trainer { rule, machine: &machine, profile: &profile };
    let mut largest = Vec::new();
    for rule in Rule::ALL {
        let found = trainer(rule).largest().await?;
        report.print(report::largest(&found, &machine)?);
        largest.push(found);
    }
    report.judge(report::goals_of_largest(&largest, &setting));

    // One that all but the first can train.
    let most = largest.iter().filter(|row| row.rule != Rule::Plain).map(|row| row.blocks).min().unwrap_or(0);
    let rules: Vec<Trainer<'_>> = Rule::ALL[1..].iter().map(|&rule| trainer(rule)).collect();
    let blocks = if most > 0 { rule::common(&rules, most)? } else { 0 };
    if blocks > 0 {
        let mut attempts = Vec::new();
        for rule in rules {
            attempts.push(rule.attempt(blocks, setting.micro_batches).await?);
        }
        report.print(report::compared(&attempts, &setting));
        report.judge(report::goals_of_seconds(&attempts, &setting));
        // Several ranks of one GPU would share its copies.
        if !options.gpu {
            let slower = Machine { setting: Setting { pace: SLOWER, ..setting } };
            let mut attempts = Vec::new();
            for rule in [Rule::Static, Rule::Ours] {
                let trainer = Trainer { machine: &slower, ..trainer(rule) };
                attempts.push(trainer.attempt(blocks, setting.micro_batches).await?);
            }
            report.print(report::compared(&attempts, &slower.setting));
            report.judge(report::goals_of_seconds(&attempts, &slower.setting));
            report.print(shared(&machine, &profile, blocks, counts).await?);
        }
    }
    report.finish()
}

/// One model by our rule on one slot and on several.
async fn shared(machine: &Machine, profile: &Profile, blocks: u32, counts: &[u32]) -> Result<String> {
    let mut shared = Vec::new();
    for &count in counts {
        shared.push(rule::share(machine, profile, blocks, count).await?);
    }
    Ok(report::shared(&shared))
}
