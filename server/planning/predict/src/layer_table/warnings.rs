//! What to know before trusting the figures of a table, for people.

use loadmaster_proto::profile::document::LayerRows;

use super::{MARGIN, TablePredictor, degrees};
use crate::{Share, StageSetting};

/// Nobody knows what a device holds besides tensors.
pub(super) const NO_CONSTANT: &str = "what a device holds besides tensors (context, kernels, communicators; often gigabytes) is not in these \
     figures: the profile is in the device ledger and its layer_table has no overhead_bytes. Add \
     layer_table.overhead_bytes, the bytes that the device shows before anything is trained; without it nothing \
     is said to fit";

/// Shards on several nodes, where the table's seconds contain what they sum.
pub(super) const SHARDS_APART: &str = "the shards of a stage are on several nodes, and the profile's seconds contain what shards sum over the \
     links that they were measured on: across nodes they take longer than predicted";

/// Shards on several nodes, where they are priced by the links that they are on.
pub(super) const SHARDS_APART_PRICED: &str = "the shards of a stage are on several nodes: each pass waits for what they sum over the link between nodes, \
     whose bandwidth the predicted seconds rest on";

/// What steps of a training in chunks hold besides them.
pub(super) const BESIDES_CHUNKS: &str = "what steps hold besides chunks is added up from the layer table, which says nothing of when \
     a layer's blocks come and go: it is not to the byte, as that of recorded layers is";

/// What a stage's figures assume that the table could say, and where they are read beyond its rows.
pub(super) fn of_stage(table: &TablePredictor, setting: &StageSetting) -> Vec<String> {
    let mut warnings = Vec::new();
    let degree = Share::of(setting).tensor_degree;
    if let Some(rows) = table.groups(setting.stage).find(|rows| is_beyond(rows, degree)) {
        let listed: Vec<String> = degrees::listed(rows).iter().map(u32::to_string).collect();
        warnings.push(format!(
            "tensor degree {degree} is beyond the rows of the layer table (layers {} to {} have {}): bytes and \
             seconds are extrapolated to it",
            rows.first_layer,
            rows.last_layer,
            listed.join(", ")
        ));
    }
    if table.groups(setting.stage).any(super::level::waits) {
        warnings.push(
            "the layer table lists passes of some layers as longer than the same over more samples, as a \
             profiler that waits for the host does: they are taken to be no longer"
                .to_owned(),
        );
    }
    let has_no_transients = |rows: &LayerRows| rows.bytes.iter().any(|row| row.transient_bytes.is_none());
    if table.groups(setting.stage).any(has_no_transients) {
        warnings.push(
            "the layer table has no transient_bytes for some layers: what a pass holds besides is taken to \
             be what the layer keeps for its backward pass"
                .to_owned(),
        );
    }
    if table.rows.margin.is_none() {
        warnings.push(format!(
            "the layer table states no margin of its own: real peaks are expected within {:.0} %, as those of \
             the plans were that such tables were compared with",
            100.0 * MARGIN
        ));
    }
    warnings
}

/// Whether a degree is below or above all rows of one kind.
fn is_beyond(rows: &LayerRows, degree: u32) -> bool {
    degrees::of_rows(rows).any(|(least, largest)| !(least..=largest).contains(&degree))
}
