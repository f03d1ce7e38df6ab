//! What a stored profile says: the planning rules applied to the store's records.

use loadmaster_proto::measurement::Measurement;
use loadmaster_proto::model::Model;

use crate::planning::campaign::CampaignError;
use crate::planning::layout::Layout;
use crate::planning::metrics::Metrics;
use crate::store::records::ProfileSettings;

/// Isolated and added memory of the layers of `model`, the profile's, from its measurements, and what is
/// missing.
///
/// # Errors
/// When the settings make no campaign.
pub fn metrics(
    settings: &ProfileSettings,
    model: &Model,
    measurements: &[Measurement],
) -> Result<Metrics, CampaignError> {
    let layout = Layout::new(settings.campaign, model, &settings.training, settings.devices)?;
    Ok(layout.metrics(model, &settings.micro_batch_sizes, measurements))
}
