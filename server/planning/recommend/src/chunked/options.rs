//! What a request leaves to choose of a training in chunks, and what of it no such training can do.

use std::fmt::Display;

use loadmaster_launchers::{InChunks, Rules};
use loadmaster_proto::chunks::activations::ActivationPlace;
use loadmaster_proto::chunks::embedding::{EmbeddingPlace, HostTable};
use loadmaster_proto::chunks::host::HostCopy;
use loadmaster_proto::chunks::stage::UpdateTime;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::chunked::{ChunkPolicy, FixedChunks};
use loadmaster_proto::plan::objective::{Launcher, Objective, SearchMode};
use loadmaster_proto::training::chunk_order::ChunkOrder;
use loadmaster_proto::training::stage::StageConfig;

use super::{ChunkContext, ChunksQuestion};
use loadmaster_memory::chunks::{ChunkChoices, TriedSizes};
use loadmaster_search::Unit;

/// Where a request names where the table of tokens may be.
const EMBEDDINGS: &str = "chunks.embeddings";
/// Where choices of a search are named in a request.
const NAMES: [(&str, &str); 9] = [
    ("sizes", "chunks.chunk_elements"),
    ("orders", "chunks.orders"),
    ("host_copies", "chunks.host_copies"),
    ("embedding", EMBEDDINGS),
    ("activations", "chunks.activations"),
    ("recomputes", "recompute"),
    ("update", "chunks.host_copies"),
    ("chunk_elements", "chunks.chunk_elements"),
    ("on_device", "chunks.on_device"),
];

/// What is wrong with a search's question, in the fields of the request that it was made from.
pub(super) fn by_request(invalid: &Invalid) -> Invalid {
    let named = |field: &str| NAMES.iter().find(|(own, _)| *own == field).map(|(_, name)| *name);
    let mut violations = invalid.violations().iter().map(|violation| {
        let field = named(&violation.field).unwrap_or(&violation.field).to_owned();
        Invalid::field(field, violation.description.clone())
    });
    violations.next().unwrap_or_else(|| invalid.clone())
}

impl ChunkContext<'_> {
    /// The same, with what to name where it is shards that cannot.
    pub(super) fn by_request(&self, invalid: &Invalid) -> Invalid {
        let told = by_request(invalid);
        let whole = StageConfig::single(0, self.model.layers().len().saturating_sub(1));
        let are_chosen = self.question.request.partitioning.is_none() && self.devices.shards > 1;
        match told.violations() {
            [only]
                if are_chosen
                    && only.field == EMBEDDINGS
                    && HostTable::check(EmbeddingPlace::Host, self.model, &whole).is_ok() =>
            {
                let remedy = format!("{} (`constraints.tensor_degrees` 1)", only.description);
                Invalid::field(EMBEDDINGS, remedy)
            }
            _ => told,
        }
    }
}

impl ChunksQuestion<'_> {
    /// # Errors
    /// Names the first field that contradicts a training in chunks, and what to do.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let refuse = |field: &str, why: String| Err(Invalid::field(field, why));
        if let Some(Rules { launcher, .. }) =
            self.criteria.rules.filter(|rules| rules.chunks == InChunks::Never)
        {
            let why = format!(
                "is {launcher}, which has no chunks or partitions that leave the device: name colossal-ai or deepspeed, or \
                 leave out `memory_mode`"
            );
            return refuse("launcher", why);
        }
        if self.criteria.mode != SearchMode::Exact {
            let why = format!("is {}, which knows no chunks: leave it out", self.criteria.mode);
            return refuse("search_mode", why);
        }
        if self.asked.host_memory.0 == 0 {
            let why =
                "is 0, and chunks are in the host's memory: name how much of it they may take".to_owned();
            return refuse("host_memory_bytes", why);
        }
        if self.criteria.unit == Unit::Share && self.criteria.objective == Objective::MinPeakMemory {
            let why = "is a share of each device, and peaks in chunks are told in bytes: leave it out, or `memory_mode`";
            return refuse("memory_unit", why.to_owned());
        }
        if let Some(given) = &self.request.partitioning
            && given.stages().len() != 1
        {
            let why = "is a pipeline, and a training in chunks is planned as one stage of replicas and shards: leave it out, or \
                       `memory_mode`"
                .to_owned();
            return refuse("partitioning", why);
        }
        let constraints = &self.request.goal.constraints;
        let contradicts = [
            ("min_stages", constraints.min_stages.is_some_and(|least| least > 1)),
            ("cut_after", !constraints.cut_after.is_empty()),
            ("pins", !constraints.pins.is_empty()),
        ];
        if let Some((field, _)) = contradicts.into_iter().find(|(_, contradicts)| *contradicts) {
            let why = "asks for a pipeline, and a training in chunks is planned as one stage of replicas and shards: leave it \
                       out, or `memory_mode`"
                .to_owned();
            return refuse(&format!("constraints.{field}"), why);
        }
        self.check_published()
    }

    /// # Errors
    /// Names a choice that the launcher, which does as others published, does not have.
    fn check_published(&self) -> Result<(), Invalid> {
        let FixedChunks { policy, orders, host_copies, embeddings, activations, .. } = &self.asked.fixed;
        let is_published = *policy == Some(ChunkPolicy::Patrickstar);
        if is_published && self.criteria.objective != Objective::MinIterationTime {
            let why = format!(
                "is {}, which has one plan for each model: ask for the shortest iteration, or choose the policy {}",
                ChunkPolicy::Patrickstar,
                ChunkPolicy::Ours
            );
            return Err(Invalid::field("chunks.policy", why));
        }
        let Some(launcher) = self.published_by() else { return Ok(()) };
        let refuse = |field: &str, named: String, own: &dyn Display| {
            let why = format!(
                "are {named}, and {launcher} has {own} alone: name that, leave it out, or leave out `launcher`"
            );
            Err(Invalid::field(format!("chunks.{field}"), why))
        };
        if let Some(named) = others(orders, PUBLISHED.order) {
            return refuse("orders", named, &PUBLISHED.order);
        }
        if let Some(named) = others(host_copies, PUBLISHED.host_copy) {
            return refuse("host_copies", named, &PUBLISHED.host_copy);
        }
        if let Some(named) = others(embeddings, PUBLISHED.embedding) {
            return refuse("embeddings", named, &PUBLISHED.embedding);
        }
        match others(activations, PUBLISHED.activations) {
            Some(named) => refuse("activations", named, &PUBLISHED.activations),
            None => Ok(()),
        }
    }

    /// The launcher, where it does as others published.
    pub(super) fn published_by(&self) -> Option<Launcher> {
        self.criteria.rules.filter(|rules| rules.chunks == InChunks::AsPublished).map(|rules| rules.launcher)
    }

    /// An objective that is none of a training in one stage.
    pub(super) fn no_objective(&self) -> Invalid {
        let why = format!(
            "is {}, and a training in chunks is planned as one stage: ask for the shortest iteration, the lowest peak, the \
             largest micro-batch or the largest model",
            self.criteria.objective
        );
        Invalid::field("objective", why)
    }

    /// What may be chosen.
    pub(super) fn choices(&self) -> ChunkChoices {
        let usual = ChunkChoices::on(&self.builder.chain.device_kind);
        let default = match self.published_by() {
            Some(_) => PUBLISHED.of(usual),
            // Of no launcher nobody has trained with them on the host.
            None if self.criteria.rules.is_some() => {
                ChunkChoices { activations: vec![ActivationPlace::Device], ..usual }
            }
            None => usual,
        };
        let FixedChunks { policy, sizes, orders, host_copies, embeddings, activations, on_device } =
            self.asked.fixed.clone();
        ChunkChoices {
            policy: policy.unwrap_or(default.policy),
            sizes: if sizes.is_empty() { default.sizes } else { TriedSizes::Named(sizes) },
            orders: or_all(orders, default.orders),
            recomputes: or_all(self.asked.recomputes.clone(), default.recomputes),
            host_copies: or_all(host_copies, default.host_copies),
            embeddings: or_all(embeddings, default.embeddings),
            activations: or_all(activations, default.activations),
            on_device: on_device.or(default.on_device),
            ..default
        }
    }
}

/// What ZeRO-Offload and PatrickStar have of each choice.
struct Published {
    order: ChunkOrder,
    host_copy: HostCopy,
    embedding: EmbeddingPlace,
    activations: ActivationPlace,
    update: UpdateTime,
}

const PUBLISHED: Published = Published {
    order: ChunkOrder::MicroBatch,
    host_copy: HostCopy::Kept,
    embedding: EmbeddingPlace::Chunk,
    activations: ActivationPlace::Device,
    update: UpdateTime::AfterBackward,
};

impl Published {
    /// These choices without what others do not have.
    fn of(&self, usual: ChunkChoices) -> ChunkChoices {
        let &Self { order, host_copy, embedding, activations, update } = self;
        ChunkChoices {
            orders: vec![order],
            host_copies: vec![host_copy],
            embeddings: vec![embedding],
            activations: vec![activations],
            update,
            ..usual
        }
    }
}

/// What is named besides the one that there is; none where nothing is.
fn others<T: Copy + PartialEq + Display>(named: &[T], own: T) -> Option<String> {
    let others: Vec<String> = named.iter().filter(|of| **of != own).map(ToString::to_string).collect();
    (!others.is_empty()).then(|| others.join(", "))
}

fn or_all<T>(named: Vec<T>, all: Vec<T>) -> Vec<T> {
    if named.is_empty() { all } else { named }
}
