//! A document as a stored profile.

use std::collections::BTreeSet;

use loadmaster_predict::profiling::runs::Layout;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::run::ProfilingMode;
use loadmaster_proto::name::{ModelName, ProfileName};
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::profile::document::{MeasuredStage, ProfileDocument, RunMeasurement, Subject};
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::wire::reading::{Wanted, always};

use crate::store::{DocumentRow, Store, StoreError};

/// Digits of the content's digest in a profile's default name.
const NAME_DIGITS: usize = 12;
/// Longest start of a profile's default name.
const NAME_START: usize = 48;

/// A checked document, ready to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Import {
    /// What it will be stored as.
    pub settings: ProfileSettings,
    pub document: ProfileDocument,
    /// As it is stored, with the digest of its content.
    pub row: DocumentRow,
}

impl Import {
    /// Checks a document. Its profile is called `id`, or by its content: the same document always has the
    /// same name.
    ///
    /// # Errors
    /// Names the key that is wrong; the training settings that plans are made for are required here.
    pub fn check(text: &str, id: Option<ProfileName>) -> Result<Self, Invalid> {
        Self::check_while(text, id, &always)
    }

    /// [`Self::check`] as long as the document is wanted.
    ///
    /// # Errors
    /// As there, or that it is not wanted any more.
    pub fn check_while(text: &str, id: Option<ProfileName>, wanted: Wanted<'_>) -> Result<Self, Invalid> {
        let document = ProfileDocument::parse_while(text, wanted)?;
        // Lists of measurements go on after a name.
        let mut names = BTreeSet::new();
        for (index, name) in document.measurements.iter().map(RunMeasurement::name).enumerate() {
            if names.contains(&name) {
                let why = format!("{name} is present twice. Remove one of them.");
                return Err(Invalid::field(format!("measurements[{index}]"), why));
            }
            names.insert(name);
        }
        let row = DocumentRow::of(&document)?;
        let name = match id {
            Some(id) => id,
            None => default_name(&document, &row.digest)?,
        };
        let settings = settings(&document, name)?;
        if let Subject::Known(model) = &document.model
            && settings.profiling_mode != ProfilingMode::Imported
        {
            // Predictors lay it out again: what cannot be is found now, not by the first question.
            Layout::new(&settings, model).map_err(|why| Invalid::field("settings", why.to_string()))?;
        }
        Ok(Self { settings, document, row })
    }

    /// Stores it, if it is new.
    ///
    /// # Errors
    /// The name belongs to another profile, or the database fails.
    pub async fn store(&self, store: &Store) -> Result<(), StoreError> {
        store.import_profile(&self.settings, &self.row).await
    }
}

fn default_name(document: &ProfileDocument, digest: &str) -> Result<ProfileName, Invalid> {
    let model = document.model.id();
    let start = model.rsplit_once('-').map_or(model.as_str(), |(start, _)| start);
    let start: String = start.chars().take(NAME_START).collect();
    let digits = digest.get(..NAME_DIGITS).unwrap_or(digest);
    ProfileName::from_id(format!("{}-{digits}", start.trim_matches('-')))
}

/// What was asked for, as far as another tool's document says.
fn settings(document: &ProfileDocument, name: ProfileName) -> Result<ProfileSettings, Invalid> {
    let Some(training) = document.training else {
        return Err(Invalid::field(
            "training",
            "required. Add the precision, optimizer, pipeline schedule and micro-batch size. Plans depend on \
             these settings.",
        ));
    };
    let model = ModelName::from_id(document.model.id())?;
    if let Some(settings) = &document.settings {
        return Ok(ProfileSettings { name, ..settings.clone() });
    }
    let scenarios: BTreeSet<Scenario> = document.stages.iter().map(MeasuredStage::scenario).collect();
    let others = scenarios.into_iter().filter(|&scenario| scenario != Scenario::SINGLE);
    Ok(ProfileSettings {
        name,
        model,
        training,
        profiling_mode: ProfilingMode::Imported,
        devices: None,
        scenarios: std::iter::once(Scenario::SINGLE).chain(others).collect(),
        scale_by_pipeline: false,
        micro_batch_sizes: micro_batch_sizes(document),
        command: None,
        device_kind: document.provenance.device_kind.clone(),
        iterations: 1,
        min_capacity: 0,
        deadline_seconds: 1,
        fresh: false,
        reuse_contended: false,
        host_memory: None,
    })
}

/// Every size that the document has a number for, ascending.
fn micro_batch_sizes(document: &ProfileDocument) -> Vec<u32> {
    let groups = document.layer_table.iter().flat_map(|table| &table.layers);
    let rows = groups.flat_map(|rows| {
        let times = rows.times.iter().map(|row| row.micro_batch_size);
        let bytes = rows.bytes.iter().map(|row| row.micro_batch_size);
        times.chain(bytes).chain(rows.memory.iter().map(|row| row.micro_batch_size))
    });
    let sizes: BTreeSet<u32> =
        document.stages.iter().map(|stage| stage.micro_batch_size).chain(rows).collect();
    sizes.into_iter().collect()
}
