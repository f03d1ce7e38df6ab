//! A question about a scene, as a file that can be asked again.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::certificates::check::{Class, Finding};
use crate::certificates::draw_question::Topic;
use crate::certificates::question::Question;
use crate::certificates::scene::Scene;

/// One question about one scene.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Instance {
    pub(crate) topic: Topic,
    pub(crate) scene: Scene,
    pub(crate) question: Question,
    /// The same devices with other models, where the largest one is asked for.
    #[serde(default)]
    pub(crate) rivals: Vec<Scene>,
    /// What was wrong with its answer.
    #[serde(default)]
    pub(crate) wrong: Vec<(Class, String)>,
}

impl Instance {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no instance", path.display()))
    }

    /// Writes it, and returns where.
    pub(crate) fn write(&self, folder: &Path, class: Class, findings: &[Finding]) -> Result<PathBuf> {
        let wrong = findings.iter().map(|finding| (finding.class, finding.what.clone())).collect();
        let whole = Self { wrong, ..self.clone() };
        let class = serde_json::to_value(class)?.as_str().unwrap_or_default().to_owned();
        let path = folder.join(format!("{class}-{}.json", self.scene.id));
        std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        std::fs::write(&path, serde_json::to_string_pretty(&whole)?)?;
        Ok(path)
    }
}
