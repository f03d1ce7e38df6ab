//! What starts a launcher's processes: torchrun by hand, what Kubernetes runs in pods, or actors of Ray. A file each.

mod job;
mod jobset;
mod kubernetes;
mod leaderworkerset;
mod manifest;
mod names;
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
use loadmaster_proto::plan::objective::Launcher;
use loadmaster_proto::wire::v1;

use crate::Refusal;
use crate::export_parts::Export;
use crate::framework::rules;
use crate::local_order::in_sight;
use crate::question::Refused;

pub use settings::{EnvelopeSettings, Wrapping};
pub(crate) use torchrun::{Flag, SCRIPT, STRICT, Torchrun, flag, nodes, switch};

/// What starts the processes of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Envelope {
    /// The launcher's own command on each node.
    #[default]
    Torchrun,
    /// A `JobSet`, one replicated job for each run of equal nodes, or for each node of a binding.
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

choice! {
    Envelope = v1::Envelope { Torchrun, Jobset, Trainjob, Pytorchjob, Leaderworkerset, Job, Ray }
}

impl Envelope {
    /// Whether it is something that Kubernetes runs.
    pub fn is_kubernetes(self) -> bool {
        !matches!(self, Self::Torchrun | Self::Ray)
    }
}

/// The envelopes that can start a launcher's processes.
pub fn envelopes(launcher: Launcher) -> impl Iterator<Item = Envelope> {
    Envelope::ALL.into_iter().filter(move |&envelope| match envelope {
        Envelope::Torchrun => true,
        Envelope::Ray => ray::is_started(launcher),
        _ => true,
    })
}

/// Puts an export into an envelope: what it is made of besides, and what is run now.
///
/// # Errors
/// The envelope cannot hold the plan, or start the launcher; nothing is rounded.
pub fn wrap(export: Export, wrapping: &Wrapping) -> Result<Export, Box<Refusal>> {
    let target = export.target;
    let wrapped = match wrapping.envelope() {
        Envelope::Torchrun => Ok(in_sight(export)),
        Envelope::Ray => ray::wrap(export, wrapping),
        Envelope::Jobset => kubernetes::wrap(export, wrapping, &jobset::KIND),
        Envelope::Trainjob => kubernetes::wrap(export, wrapping, &trainjob::KIND),
        Envelope::Pytorchjob => kubernetes::wrap(export, wrapping, &pytorchjob::KIND),
        Envelope::Leaderworkerset => kubernetes::wrap(export, wrapping, &leaderworkerset::KIND),
        Envelope::Job => kubernetes::wrap(export, wrapping, &job::KIND),
    };
    wrapped.map_err(|stages: Refused| {
        let required_shape = rules(target.launcher).shape;
        Box::new(Refusal { target, envelope: wrapping.envelope(), required_shape, is_for_it: false, stages })
    })
}
