//! What a manifest needs that no plan says.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::compatibility::{Setting, Settings};

use super::{Manifest, names};

/// What a caller says of a manifest; empty where nothing is said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ManifestSettings {
    /// The image of every pod, with the framework and the program in it.
    pub image: String,
    /// The namespace of all objects.
    pub namespace: String,
    /// What the objects are called.
    pub name: String,
    /// The queue of Kueue that admits them.
    pub queue: String,
    /// All pods are within one domain of this level of the topology, or none is admitted.
    pub required_topology: String,
    /// All pods are within one domain of this level, or of as few as possible.
    pub preferred_topology: String,
    /// The pods of each stage are within one domain of this level.
    pub stage_topology: String,
}

/// A manifest with settings that Kubernetes accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrapping {
    manifest: Manifest,
    plan: PlanName,
    settings: ManifestSettings,
    is_bound: bool,
}

impl Wrapping {
    /// A manifest for a plan, whose objects are called `plan-ID` unless they have a name.
    ///
    /// # Errors
    /// A setting of `manifest_options` that this manifest has no use for, that it lacks, or that the API of Kubernetes refuses.
    pub fn of(manifest: Manifest, plan: &PlanName, mut settings: ManifestSettings) -> Result<Self, Invalid> {
        if !manifest.is_kubernetes() {
            if let Some((field, _)) = settings.fields().into_iter().find(|(_, text)| !text.is_empty()) {
                Settings::default()
                    .says(Setting::OtherManifest, manifest)
                    .when(true, Setting::KubernetesSetting)
                    .in_field(Setting::KubernetesSetting, format!("manifest_options.{field}"))
                    .check()?;
            }
            return Ok(Self { manifest, plan: plan.clone(), settings, is_bound: false });
        }
        // A runtime of Kubeflow's has an image.
        if settings.image.is_empty() && manifest != Manifest::Trainjob {
            let why =
                format!("is required. Name an image with the framework and your program for {manifest}");
            return Err(Invalid::field("manifest_options.image", why));
        }
        Settings::default()
            .when(!settings.required_topology.is_empty(), Setting::RequiredTopology)
            .when(!settings.preferred_topology.is_empty(), Setting::PreferredTopology)
            .check()?;
        if settings.name.is_empty() {
            settings.name = format!("plan-{}", plan.id());
            if settings.name.len() > names::MAX_NAME {
                let why = format!(
                    "is required, because the plan's own name is longer than {} characters. Set a shorter name",
                    names::MAX_NAME
                );
                return Err(Invalid::field("manifest_options.name", why));
            }
        }
        for (field, text) in settings.fields() {
            let check = match field {
                "image" => names::image,
                "namespace" => names::namespace,
                "name" => names::object,
                "queue" => names::queue,
                _ => names::level,
            };
            if !text.is_empty() {
                check(field, text)?;
            }
        }
        Ok(Self { manifest, plan: plan.clone(), settings, is_bound: false })
    }

    /// Which manifest it is.
    pub fn manifest(&self) -> Manifest {
        self.manifest
    }

    /// The same for a plan whose devices are those of a placement: its ranks are to be on them, and on no others.
    ///
    /// # Errors
    /// A level of a topology, by which nodes would be chosen.
    pub fn on_placement(self) -> Result<Self, Invalid> {
        for (field, level) in self.settings.fields() {
            if field.ends_with("_topology") && !level.is_empty() {
                Settings::default()
                    .when(true, Setting::Topology)
                    .in_field(Setting::Topology, format!("manifest_options.{field}"))
                    .when(true, Setting::Placement)
                    .check()?;
            }
        }
        Ok(Self { is_bound: true, ..self })
    }

    pub(super) fn is_bound(&self) -> bool {
        self.is_bound
    }

    pub(super) fn settings(&self) -> &ManifestSettings {
        &self.settings
    }

    /// The first line of what is written, behind the sign for comments.
    pub(super) fn head_line(&self) -> String {
        format!("Written by Loadmaster for {}. Do not edit. Export the plan instead", self.plan)
    }
}

impl ManifestSettings {
    fn fields(&self) -> [(&'static str, &str); 7] {
        [
            ("image", &self.image),
            ("namespace", &self.namespace),
            ("name", &self.name),
            ("queue", &self.queue),
            ("required_topology", &self.required_topology),
            ("preferred_topology", &self.preferred_topology),
            ("stage_topology", &self.stage_topology),
        ]
    }
}
