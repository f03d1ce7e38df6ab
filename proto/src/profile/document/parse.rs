//! From text to a checked document and back.

use sha2::{Digest, Sha256};

use super::{FORMAT, ProfileDocument, text};
use crate::error::{Invalid, in_range};
use crate::measure::run::{ProfilingMode, RunSpec};
use crate::name::{INVISIBLE, checked_kind, is_invisible};
use crate::profile::ProfileSettings;
use crate::training::{RecomputePolicy, TrainingSpec};
use crate::wire::reading::meter::Limits;
use crate::wire::reading::{Wanted, always, measure_json};

/// Longest document, bytes: what fits into one message.
pub const MAX_DOCUMENT_BYTES: usize = 15 << 20;
/// Most measured stages, and most measurements.
const MAX_MEASUREMENTS: usize = 100_000;
/// Most scenarios, and most micro-batch sizes, of a Loadmaster profile.
const MAX_SETTINGS: usize = 64;
/// Most devices of a profiling.
const MAX_DEVICES: u32 = 10_000;
/// Longest limit of an attempt, seconds: a day, as for requests.
const MAX_DEADLINE_SECONDS: u32 = 86_400;
/// Most bytes of any byte count, as for the blocks of an allocation trace: far more than any device has, and sums
/// over the layers of a model still have room.
const MAX_COUNT: u64 = 1 << 48;
/// Longest time of a pass.
const MAX_SECONDS: f64 = 1e6;

/// A text that is no profile document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// Longer than [`MAX_DOCUMENT_BYTES`].
    #[error("the document has {bytes} bytes, more than {MAX_DOCUMENT_BYTES}. Remove measurements")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Not JSON, or of another form.
    #[error("{path}: {why}")]
    Malformed {
        /// Where, as a path of keys; `.` is the document itself.
        path: String,
        /// What is wrong there, with line and column.
        why: String,
    },
    /// Of the right form, with values that cannot be.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl From<DocumentError> for Invalid {
    fn from(error: DocumentError) -> Self {
        match error {
            DocumentError::Invalid(invalid) => invalid,
            DocumentError::Malformed { path, why } if path == "." => Self::field("", why),
            DocumentError::Malformed { path, why } => Self::field(path, why),
            DocumentError::TooLong { .. } => Self::field("", error.to_string()),
        }
    }
}

impl ProfileDocument {
    /// Reads and checks a document.
    ///
    /// # Errors
    /// Names the key that is wrong, missing or unknown.
    pub fn parse(text: &str) -> Result<Self, DocumentError> {
        Self::parse_while(text, &always)
    }

    /// [`Self::parse`] as long as the document is wanted. It is measured before anything is built of it.
    ///
    /// # Errors
    /// As there, or that it is not wanted any more.
    pub fn parse_while(text: &str, wanted: Wanted<'_>) -> Result<Self, DocumentError> {
        if text.len() > MAX_DOCUMENT_BYTES {
            return Err(DocumentError::TooLong { bytes: text.len() });
        }
        if text.trim().is_empty() {
            return Err(Invalid::field("", "is empty").into());
        }
        measure_json(text, &Limits::TYPED, wanted)?;
        let mut reader = serde_json::Deserializer::from_str(text);
        let document: Self = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            DocumentError::Malformed { path: error.path().to_string(), why: error.inner().to_string() }
        })?;
        reader
            .end()
            .map_err(|error| DocumentError::Malformed { path: ".".to_owned(), why: error.to_string() })?;
        document.checked()
    }

    /// Checks what a document says against its own model.
    ///
    /// # Errors
    /// Names the key.
    pub fn checked(self) -> Result<Self, DocumentError> {
        self.check()?;
        Ok(self)
    }

    fn check(&self) -> Result<(), Invalid> {
        if self.format != FORMAT {
            return Err(invalid!("format", "{:?} is not a supported format. Use {FORMAT:?}", self.format));
        }
        self.provenance.check().map_err(|invalid| invalid.under("provenance"))?;
        self.model.check().map_err(|invalid| invalid.under("model"))?;
        if let Some(training) = self.training {
            training.checked().map_err(|invalid| invalid.under("training"))?;
        }
        let layers = self.model.layer_count();
        in_range("stages", self.stages.len(), 0..=MAX_MEASUREMENTS)?;
        for (index, stage) in self.stages.iter().enumerate() {
            stage.check(layers).map_err(|invalid| invalid.under(&format!("stages[{index}]")))?;
        }
        if let Some(table) = &self.layer_table {
            table.check(layers).map_err(|invalid| invalid.under("layer_table"))?;
            let own = self.training.map(|training| training.recompute);
            if let Some(own) = own.filter(|&own| table.recomputes() && own != RecomputePolicy::Layer) {
                let why = format!(
                    "{own} does not match layer_table.recompute, which is layer. Set training.recompute to layer. If the layers \
                     were not recomputed, set layer_table.recompute to none"
                );
                return Err(Invalid::field("training.recompute", why));
            }
        }
        self.check_measurements()?;
        if self.stages.is_empty() && self.layer_table.is_none() && self.measurements.is_empty() {
            return Err(Invalid::field(
                "stages",
                "is empty, and so are layer_table and measurements. Set one of the three",
            ));
        }
        Ok(())
    }

    fn check_measurements(&self) -> Result<(), Invalid> {
        in_range("measurements", self.measurements.len(), 0..=MAX_MEASUREMENTS)?;
        let settings = match (&self.settings, self.measurements.is_empty()) {
            (None, true) => return Ok(()),
            (None, false) => {
                return Err(Invalid::field("settings", "is required together with measurements"));
            }
            (Some(_), true) => {
                return Err(Invalid::field(
                    "measurements",
                    "is empty, but settings is not. Set both or none",
                ));
            }
            (Some(settings), false) => settings,
        };
        let model = self.model.model()?;
        if settings.model.id() != self.model.id() {
            let why = format!("{} is not the document's models/{}", settings.model, self.model.id());
            return Err(Invalid::field("settings.model", why));
        }
        if self.training != Some(settings.training) {
            return Err(Invalid::field("training", "differs from settings.training. Use equal values"));
        }
        check_settings(settings).map_err(|invalid| invalid.under("settings"))?;
        for (index, measurement) in self.measurements.iter().enumerate() {
            measurement.check(model).map_err(|invalid| invalid.under(&format!("measurements[{index}]")))?;
        }
        Ok(())
    }

    /// The document as text: one measurement, stage or group of layers per line.
    ///
    /// # Errors
    /// Longer than [`MAX_DOCUMENT_BYTES`].
    pub fn to_text(&self) -> Result<String, DocumentError> {
        let text = text::write(self).map_err(|error| unwritable(&error))?;
        if text.len() > MAX_DOCUMENT_BYTES {
            return Err(DocumentError::TooLong { bytes: text.len() });
        }
        Ok(text)
    }

    /// 16 hexadecimal digits that follow from the content alone, not from spaces or the order of keys.
    ///
    /// # Errors
    /// When the document cannot be written.
    pub fn digest(&self) -> Result<String, DocumentError> {
        self.canonical().map(|(_, digest)| digest)
    }

    /// The document on one line, keys in the order of their definition, with its [`Self::digest`].
    ///
    /// # Errors
    /// When the document cannot be written.
    pub fn canonical(&self) -> Result<(String, String), DocumentError> {
        let text = serde_json::to_string(self).map_err(|error| unwritable(&error))?;
        let digest = Sha256::digest(&text).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Ok((text, digest))
    }
}

fn check_settings(settings: &ProfileSettings) -> Result<(), Invalid> {
    if settings.profiling_mode == ProfilingMode::Imported {
        return Err(Invalid::field(
            "profiling_mode",
            "imported is not valid for a profile with measurements. Use the mode with which they were measured",
        ));
    }
    in_range("devices", settings.devices.unwrap_or(1), 1..=MAX_DEVICES)?;
    in_range("iterations", settings.iterations, 1..=RunSpec::MAX_ITERATIONS)?;
    in_range("scenarios", settings.scenarios.len(), 1..=MAX_SETTINGS)?;
    for (index, scenario) in settings.scenarios.iter().enumerate() {
        scenario.stage(0, 0).checked().map_err(|invalid| invalid.under(&format!("scenarios[{index}]")))?;
    }
    in_range("micro_batch_sizes", settings.micro_batch_sizes.len(), 1..=MAX_SETTINGS)?;
    for (index, &size) in settings.micro_batch_sizes.iter().enumerate() {
        let field = format!("micro_batch_sizes[{index}]");
        in_range(&field, size, 1..=TrainingSpec::MAX_MICRO_BATCH_SIZE)?;
        if index
            .checked_sub(1)
            .and_then(|before| settings.micro_batch_sizes.get(before))
            .is_some_and(|&of| of >= size)
        {
            return Err(invalid!(field, "{size} is not above the size before it. Use ascending sizes"));
        }
    }
    checked_kind("device_kind", &settings.device_kind)?;
    bytes("min_capacity", settings.min_capacity)?;
    in_range("deadline_seconds", settings.deadline_seconds, 1..=MAX_DEADLINE_SECONDS)?;
    Ok(())
}

fn unwritable(error: &serde_json::Error) -> DocumentError {
    DocumentError::Malformed { path: ".".to_owned(), why: error.to_string() }
}

/// A text of `least` to `most` bytes without invisible characters but line ends.
pub(super) fn checked_text(field: &str, value: &str, least: usize, most: usize) -> Result<(), Invalid> {
    if value.len() < least {
        return Err(Invalid::field(field, "is empty"));
    }
    if value.len() > most {
        return Err(invalid!(field, "has {} bytes. Use at most {most}", value.len()));
    }
    if value.chars().any(|c| is_invisible(c) && c != '\n' && c != '\t') {
        return Err(Invalid::field(field, INVISIBLE));
    }
    Ok(())
}

/// A time of a pass. What is not finite is in no range.
pub(super) fn seconds(field: &str, value: f64) -> Result<(), Invalid> {
    if (0.0..=MAX_SECONDS).contains(&value) {
        Ok(())
    } else {
        Err(invalid!(field, "{value} is out of range. Use 0 to {MAX_SECONDS} seconds"))
    }
}

/// A byte count.
pub(super) fn bytes(field: &str, value: u64) -> Result<(), Invalid> {
    if value <= MAX_COUNT {
        Ok(())
    } else {
        Err(invalid!(field, "{value} is too large. Use at most {MAX_COUNT}"))
    }
}
