//! What starts a framework's processes: torchrun by hand, what Kubernetes runs in pods, or actors of Ray. A file each.

mod job;
mod jobset;
mod kubernetes;
mod leaderworkerset;
mod names;
mod parts;
mod pods;
mod products;
mod pytorchjob;
mod ray;
mod settings;
mod start;
mod topology;
mod torchrun;
mod trainjob;

use loadmaster_proto::choice;
use loadmaster_proto::choice::TextChoice;
use loadmaster_proto::plan::objective::Framework;

use crate::Refusal;
use crate::export_parts::Export;
use crate::framework::rules;
use crate::local_order::in_sight;
use crate::question::Refused;

pub use settings::{ManifestSettings, Wrapping};
pub(crate) use torchrun::{Flag, SCRIPT, STRICT, Torchrun, flag, nodes, switch};

/// What starts the processes of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Manifest {
    /// The framework's own command on each node.
    #[default]
    Torchrun,
    /// A `JobSet`, one replicated job for each run of equal nodes, or for each node of a placement.
    Jobset,
    /// A `TrainJob` of Kubeflow Trainer 2.
    Trainjob,
    /// A `PyTorchJob` of Kubeflow's training operator.
    Pytorchjob,
    /// A `LeaderWorkerSet` of one group.
    Leaderworkerset,
    /// An indexed `Job` with a headless service.
    Job,
    /// A placement group of Ray with an actor for each rank.
    Ray,
}

choice! { Manifest { Torchrun, Jobset, Trainjob, Pytorchjob, Leaderworkerset, Job, Ray } }

impl TextChoice for Manifest {}

impl Manifest {
    /// Whether it is something that Kubernetes runs.
    pub fn is_kubernetes(self) -> bool {
        !matches!(self, Self::Torchrun | Self::Ray)
    }
}

/// The manifests that can start a framework's processes.
pub fn manifests(framework: Framework) -> impl Iterator<Item = Manifest> {
    Manifest::ALL.into_iter().filter(move |&manifest| match manifest {
        Manifest::Torchrun => true,
        Manifest::Ray => ray::is_started(framework),
        _ => true,
    })
}

/// Puts an export into a manifest: what it is made of besides, and what is run now.
///
/// # Errors
/// The manifest cannot hold the plan, or start the framework; nothing is rounded.
pub fn wrap(export: Export, wrapping: &Wrapping) -> Result<Export, Box<Refusal>> {
    let target = export.target;
    let wrapped = match wrapping.manifest() {
        Manifest::Torchrun => Ok(in_sight(export)),
        Manifest::Ray => ray::wrap(export, wrapping),
        Manifest::Jobset => kubernetes::wrap(export, wrapping, &jobset::KIND),
        Manifest::Trainjob => kubernetes::wrap(export, wrapping, &trainjob::KIND),
        Manifest::Pytorchjob => kubernetes::wrap(export, wrapping, &pytorchjob::KIND),
        Manifest::Leaderworkerset => kubernetes::wrap(export, wrapping, &leaderworkerset::KIND),
        Manifest::Job => kubernetes::wrap(export, wrapping, &job::KIND),
    };
    wrapped.map_err(|stages: Refused| {
        let required_shape = rules(target.framework).shape;
        Box::new(Refusal { target, manifest: wrapping.manifest(), required_shape, is_for_it: false, stages })
    })
}
