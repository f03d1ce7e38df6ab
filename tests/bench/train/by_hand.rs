//! What fits whoever chooses: every layer is computed again by itself, and all that may leave is on the host.
//!
//! It is slow. But a planner that finds no room where this fits has missed something.

use anyhow::Result;
use loadmaster_tests::whole;
use serde_json::Value;

use crate::train::cuts::partitionings;
use crate::train::scene::{Scene, Slots};

const LASTING: [&str; 4] = ["inputs", "weights", "gradients", "optimizer"];

/// The plan of so many blocks, if it fits the slots and the host.
///
/// # Errors
/// After an interruption.
pub(crate) fn plan(scene: &Scene<'_>, blocks: u32, slots: Slots) -> Result<Option<Value>> {
    for cut in partitionings(blocks, slots.count) {
        let actions = actions(&cut);
        let mut more = vec!["--partition", &cut, "--copy-rates", scene.setting.rates];
        more.extend(actions.iter().flat_map(|action| ["--action", action]));
        let answer = scene.plan(blocks, slots, &more)?;
        let fits = |plan: &Value| {
            let stages = plan["stages"].as_array().into_iter().flatten();
            stages.map(|stage| whole(&stage["offload"]["hostPeakBytes"])).sum::<u64>()
                <= scene.setting.host_bytes
        };
        if let Some(plan) = answer.ok().filter(fits) {
            return Ok(Some(plan));
        }
    }
    Ok(None)
}

fn actions(cut: &str) -> Vec<String> {
    let mut actions = Vec::new();
    let mut first = 0;
    for (stage, layers) in cut.split('-').filter_map(|layers| layers.parse::<u32>().ok()).enumerate() {
        let last = first + layers - 1;
        actions.extend((first..=last).map(|layer| format!("{stage}/{layer}=recompute")));
        actions.extend(LASTING.map(|block| format!("{stage}/{first}..{last}={block}:host:0,0")));
        first = last + 1;
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Layers are those of the model, block by block and stage by stage.
    #[test]
    fn every_layer_of_every_stage_is_named() {
        let actions = actions("2-3");
        assert_eq!(actions[..3], ["0/0=recompute", "0/1=recompute", "0/0..1=inputs:host:0,0"]);
        assert!(actions.contains(&"1/4=recompute".to_owned()));
        assert!(actions.contains(&"1/2..4=optimizer:host:0,0".to_owned()));
        assert_eq!(actions.len(), 5 + 2 * LASTING.len());
    }
}
