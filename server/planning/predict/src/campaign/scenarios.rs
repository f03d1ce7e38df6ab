//! Which scenarios a campaign measures, and at which micro-batch sizes.

use loadmaster_proto::measure::run::Campaign;
use loadmaster_proto::model::Model;
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::stage::Parallelism;

use super::error::{CampaignError, check_counts};
use super::paper::{PaperCampaign, paper};

/// Degrees that CAPTURE profiles.
pub const DEFAULT_DEGREES: [u32; 2] = [2, 4];

/// The scenarios of a request that names these kinds of parallelism and degrees. Nothing named means all
/// that the devices allow under `paper`, whose point they are, and single devices alone otherwise.
pub fn scenarios(
    campaign: Campaign,
    parallelisms: &[Parallelism],
    degrees: &[u32],
    (model, training, devices): (&Model, &TrainingSpec, Option<u32>),
) -> Vec<Scenario> {
    let degrees = if degrees.is_empty() { &DEFAULT_DEGREES[..] } else { degrees };
    let kinds = |parallelisms: &[Parallelism]| {
        let mut scenarios: Vec<Scenario> = parallelisms
            .iter()
            .filter(|&&parallelism| parallelism != Parallelism::None)
            .flat_map(|&parallelism| degrees.iter().map(move |&degree| Scenario { parallelism, degree }))
            .collect();
        scenarios.push(Scenario::SINGLE);
        scenarios.sort_unstable();
        scenarios.dedup();
        scenarios
    };
    if campaign != Campaign::Paper || !parallelisms.is_empty() {
        return kinds(parallelisms);
    }
    let mut all = kinds(&[Parallelism::Data, Parallelism::Tensor]);
    // What holds for single devices is an error and not a matter of choice.
    all.retain(|&of| {
        let laid_out = || sub_meshes(model, training, devices.unwrap_or(0), of).is_ok();
        of == Scenario::SINGLE || check_split(model, of).is_ok() && laid_out()
    });
    all
}

/// Whether every layer can be split as often as a scenario does.
///
/// # Errors
/// The first layer that cannot, and why.
pub fn check_split(model: &Model, scenario: Scenario) -> Result<(), CampaignError> {
    if scenario.parallelism != Parallelism::Tensor {
        return Ok(());
    }
    for (index, layer) in model.layers().iter().enumerate() {
        if let Err(invalid) = layer.kind.check_tensor_degree(scenario.degree) {
            let why = invalid.to_string();
            return Err(CampaignError::NotSplit { scenario, layer: index, name: layer.name.clone(), why });
        }
    }
    Ok(())
}

/// Description 1 over the sub-meshes that the devices form in a scenario.
///
/// # Errors
/// As [`paper`]; for a scenario of several devices it is named.
pub fn sub_meshes(
    model: &Model,
    training: &TrainingSpec,
    devices: u32,
    scenario: Scenario,
) -> Result<PaperCampaign, CampaignError> {
    let layers = model.layers().len();
    if scenario == Scenario::SINGLE {
        check_counts(layers, devices as usize)?;
        return paper(layers, devices as usize, training);
    }
    if !devices.is_multiple_of(scenario.degree) {
        return Err(CampaignError::NotDivisible { devices: devices as usize, scenario });
    }
    paper(layers, (devices / scenario.degree) as usize, training)
        .map(|campaign| campaign.shared(scenario))
        .map_err(|reason| CampaignError::Scenario { scenario, reason: Box::new(reason) })
}

/// The micro-batch sizes that a scenario is measured at, ascending.
///
/// Replicas take equal parts of a micro-batch, so sizes are rounded down to multiples of the degree, and
/// up where nothing would be left; where two become one, the next multiple is the second.
pub fn sizes(settings: &ProfileSettings, scenario: Scenario) -> Vec<u32> {
    let all = &settings.micro_batch_sizes;
    let few = settings.scale_by_pipeline && scenario != Scenario::SINGLE;
    let chosen = if few { &all[all.len().saturating_sub(1)..] } else { &all[..] };
    let step = scenario.micro_batch_step();
    let mut sizes: Vec<u32> = Vec::with_capacity(chosen.len());
    for &size in chosen {
        let rounded = (size - size % step).max(step);
        let next = sizes.last().map_or(rounded, |&last| rounded.max(last.saturating_add(step)));
        sizes.push(next);
    }
    sizes
}
