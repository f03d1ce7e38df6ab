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

use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::Backend;
use loadmaster_proto::measure::offload::CopyPace;
use machine::{Machine, Setting};
use profile::Profile;
use rule::{Attempt, Rule, Trainer};

/// Trains models in chunks under fixed caps and compares what others do.
#[derive(Debug, Parser)]
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

    /// A slower pace, at which static and ours are compared once more: what a link cannot hide behind passes shows.
    #[arg(long, value_name = "LINKS", default_value = "host=125MB/s")]
    slower: CopyPace,

    /// Hidden size of the models.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(i64).range(16..=8192))]
    hidden_size: i64,

    /// Tokens of a sample.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(i64).range(16..=8192))]
    sequence_length: i64,

    /// Micro-batches of an iteration where models are compared.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    micro_batches: u32,

    /// Measured iterations.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    iterations: u32,

    /// Only ours on several slots, of a model of so many blocks.
    #[arg(long, value_name = "BLOCKS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    shared: Option<u32>,

    /// The small setting: a few seconds, where caps are a tenth.
    #[arg(long)]
    quick: bool,
}

/// Measures all of it. Its goals are printed and never missed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let begin = Instant::now();
    let pace = options.pace.host.context("--pace must name the host, for example host=250MB/s")?;
    let wanted = Setting {
        backend: if options.gpu { Backend::Cuda } else { Backend::Cpu },
        sequence_length: options.sequence_length,
        device: options.device,
        host: options.host,
        hidden_size: options.hidden_size,
        iterations: options.iterations,
        micro_batches: options.micro_batches,
        pace,
    };
    // The first iteration's last update ends in the second.
    let small =
        Setting { device: Bytes(6 << 20), host: Bytes(48 << 20), hidden_size: 96, iterations: 2, ..wanted };
    let setting = if options.quick { small } else { wanted };
    // What several slots exchange is measured for seconds each.
    let counts = if options.quick { &rule::COUNTS[..2] } else { &rule::COUNTS };
    print!("{}", report::setting(&setting));
    let machine = Machine::new(setting);
    let profile = Profile::record(&machine)?;
    print!("{}", report::profile(&profile));
    if let Some(blocks) = options.shared {
        print!("{}", shared(&machine, &profile, blocks, counts)?);
        return Ok(true);
    }

    let trainer = |rule| Trainer { rule, machine: &machine, profile: &profile };
    let mut largest = Vec::new();
    for rule in Rule::ALL {
        let found = trainer(rule).largest()?;
        println!("{}", report::largest(&found, &machine)?);
        largest.push(found);
    }
    print!("{}", report::ratios(&largest));

    // One that all but the first can train.
    let most = largest.iter().filter(|of| of.rule != Rule::Plain).filter_map(|of| of.blocks).min();
    let rules: Vec<Trainer<'_>> = Rule::ALL[1..].iter().map(|&rule| trainer(rule)).collect();
    let blocks = most.map(|most| rule::common(&rules, most)).transpose()?.flatten();
    if let Some(blocks) = blocks {
        let attempt = |of: Trainer<'_>| of.attempt(blocks, setting.micro_batches);
        let attempts: Vec<Attempt> = rules.into_iter().map(attempt).collect::<Result<_>>()?;
        print!("{}", report::compared(&attempts, &setting));
        if let Some(pace) = options.slower.host.filter(|_| !options.gpu) {
            let slower = Machine::new(Setting { pace, ..setting });
            let slowly = |rule| Trainer { machine: &slower, ..trainer(rule) };
            let rules = [Rule::Static, Rule::Ours].into_iter().map(slowly);
            let attempts: Vec<Attempt> = rules.map(attempt).collect::<Result<_>>()?;
            print!("{}", report::compared(&attempts, &slower.setting));
        }
        // Several ranks of one GPU would share its copies.
        if !options.gpu {
            print!("{}", shared(&machine, &profile, blocks, counts)?);
        }
    }
    println!("{:.0} s", begin.elapsed().as_secs_f64());
    Ok(true)
}

/// One model by our rule on one slot and on several.
fn shared(machine: &Machine, profile: &Profile, blocks: u32, counts: &[u32]) -> Result<String> {
    let shared = counts.iter().map(|&count| rule::share(machine, profile, blocks, count));
    Ok(report::shared(&shared.collect::<Result<Vec<_>>>()?))
}
