//! What other planners reached on the same problems (`data/results.json`).

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::search::chain::Flavour;

/// Results of other planners.
pub(crate) struct Published(Value);

#[derive(Deserialize)]
struct Optimum {
    kind: String,
    #[serde(rename = "L")]
    layers: usize,
    k: Option<usize>,
    #[serde(rename = "D")]
    devices: Option<u32>,
    optimum: f64,
}

/// What Piper reached under a memory cap.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Piper {
    /// CPU seconds that it took.
    pub(crate) seconds: f64,
    /// The largest load of a stage, seconds per micro-batch; none where it found no plan.
    pub(crate) time_per_microbatch: Option<f64>,
}

impl Published {
    pub(crate) fn read() -> Result<Self> {
        let text = include_str!("data/results.json");
        Ok(Self(serde_json::from_str(text).context("data/results.json is not as expected")?))
    }

    /// The optimum of AMP's equation 5 with k stages.
    pub(crate) fn amp(&self, flavour: Flavour, layers: usize, k: usize) -> Option<f64> {
        let all = &self.0["exact_reference_for_AMP_objective"]["results"];
        self.optimum(all, |of| of.k == Some(k), flavour, layers)
    }

    /// The optimum of Alpa's objective on this many devices.
    pub(crate) fn alpa(&self, flavour: Flavour, layers: usize, devices: u32) -> Option<f64> {
        let all = &self.0["exact_reference_for_Alpa_objective"];
        self.optimum(all, |of| of.devices == Some(devices), flavour, layers)
    }

    /// What Piper reached on this many devices of this many bytes.
    pub(crate) fn piper(&self, flavour: Flavour, layers: usize, devices: u32, bytes: f64) -> Option<Piper> {
        let rows = self.0["Piper"]["rows"].as_array()?;
        let row = rows.iter().find(|row| {
            row["kind"] == flavour.name()
                && row["L"] == layers
                && row["D"] == devices
                && row["mem"].as_f64() == Some(bytes)
        })?;
        serde_json::from_value(row.clone()).ok()
    }

    fn optimum(
        &self,
        all: &Value,
        is_asked: impl Fn(&Optimum) -> bool,
        flavour: Flavour,
        layers: usize,
    ) -> Option<f64> {
        let rows: Vec<Optimum> = serde_json::from_value(all.clone()).ok()?;
        let mut rows = rows.into_iter().filter(|of| of.kind == flavour.name() && of.layers == layers);
        rows.find(is_asked).map(|of| of.optimum)
    }
}
