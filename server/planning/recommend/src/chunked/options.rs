//! What a request leaves to choose of a training in chunks, and what of it no such training can do.

use std::fmt::Display;

use loadmaster_launchers::InChunks;
use loadmaster_proto::chunks::activations::ActivationPlace;
use loadmaster_proto::chunks::embedding::{EmbeddingPlace, HostTable};
use loadmaster_proto::chunks::host::HostParameters;
use loadmaster_proto::chunks::stage::UpdateTime;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::chunked::{ChunkPolicy, FixedChunks};
use loadmaster_proto::plan::compatibility::{Setting, Settings};
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::plan::objective::{Framework, Objective, SearchMode};
use loadmaster_proto::training::chunk_order::ChunkOrder;
use loadmaster_proto::training::stage::StageConfig;

use super::{ChunkContext, ChunksQuestion};
use crate::problem::Criteria;
use loadmaster_memory::chunks::{ChunkChoices, TriedSizes};
use loadmaster_search::Unit;

/// Where a request names where the embedding table may be.
const EMBEDDINGS: &str = "memory.chunk_options.embedding_places";
/// Where choices of a search are named in a request.
const NAMES: [(&str, &str); 9] = [
    ("sizes", "memory.chunk_options.chunk_elements"),
    ("orders", "memory.chunk_options.micro_batch_orders"),
    ("host_copies", "memory.chunk_options.host_parameters"),
    ("embedding_place", EMBEDDINGS),
    ("activations", "memory.chunk_options.activation_places"),
    ("recomputes", "problem.recompute"),
    ("cpu_optimizer_timing", "memory.chunk_options.host_parameters"),
    ("chunk_elements", "memory.chunk_options.chunk_elements"),
    ("resident_chunks", "memory.chunk_options.resident_chunk_count"),
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
                let remedy = format!("{} (`constraints.tensor_parallel_sizes` 1)", only.description);
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
        let Criteria { objective, mode, unit, rules, .. } = self.criteria;
        let without_chunks =
            rules.filter(|rules| rules.chunks == InChunks::Never).map(|rules| rules.framework);
        let is_pipeline = self.request.partitioning.as_ref().is_some_and(|given| given.stages().len() != 1);
        let Constraints { min_stages, cut_after, pins, .. } = &self.request.goal.constraints;
        let FixedChunks { policy, orders, host_copies, embeddings, activations, .. } = &self.asked.fixed;
        let is_published = *policy == Some(ChunkPolicy::Patrickstar);
        let mut choices = Settings::default()
            .when(true, Setting::Chunks)
            .says_some(Setting::FrameworkWithoutChunks, without_chunks)
            .says_some(Setting::OtherMode, (*mode != SearchMode::Exact).then_some(mode))
            .when(self.asked.host_memory.0 == 0, Setting::NoHostMemory)
            .when(*unit == Unit::Share && *objective == Objective::MinPeakMemory, Setting::MemoryShares)
            .when(is_pipeline, Setting::Pipeline)
            .when(min_stages.is_some_and(|least| least > 1), Setting::SeveralStages)
            .when(!cut_after.is_empty(), Setting::CutAfter)
            .when(!pins.is_empty(), Setting::Pins);
        if is_published {
            let (published, ours) = (ChunkPolicy::Patrickstar, ChunkPolicy::Loadmaster);
            choices = choices
                .says_instead(Setting::PatrickstarPolicy, published, ours)
                .when(*objective != Objective::MinIterationTime, Setting::OtherThanFastest);
        }
        if let Some(framework) = self.published_by() {
            choices = choices.says(Setting::FrameworkAsPublished, framework);
            for (choice, others) in [
                (Setting::ChunkOrders, others(orders, PUBLISHED.order)),
                (Setting::HostCopies, others(host_copies, PUBLISHED.host_copy)),
                (Setting::Embeddings, others(embeddings, PUBLISHED.embedding)),
                (Setting::ChunkActivations, others(activations, PUBLISHED.activations)),
            ] {
                if let Some((others, own)) = others {
                    choices = choices.says_instead(choice, others, own);
                }
            }
        }
        choices.check()
    }

    /// The framework, where it does as others published.
    pub(super) fn published_by(&self) -> Option<Framework> {
        self.criteria.rules.filter(|rules| rules.chunks == InChunks::AsPublished).map(|rules| rules.framework)
    }

    /// Checks that the objective is one of a training in one stage.
    ///
    /// # Errors
    /// It is not.
    pub(super) fn check_objective(&self) -> Result<(), Invalid> {
        let objective = self.criteria.objective;
        let of_pipelines = [Objective::Pareto, Objective::MinDevices, Objective::MinCost];
        Settings::default()
            .when(true, Setting::Chunks)
            .says_some(Setting::PipelineObjective, of_pipelines.contains(&objective).then_some(objective))
            .check()
    }

    /// What may be chosen.
    pub(super) fn choices(&self) -> ChunkChoices {
        let usual = ChunkChoices::on(&self.context.chain.device_kind);
        let default = match self.published_by() {
            Some(_) => PUBLISHED.of(usual),
            // Of no framework no one has trained with them on the host.
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
    host_copy: HostParameters,
    embedding: EmbeddingPlace,
    activations: ActivationPlace,
    update: UpdateTime,
}

const PUBLISHED: Published = Published {
    order: ChunkOrder::MicroBatch,
    host_copy: HostParameters::Stored,
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

/// What is named besides the one that there is, and that one; none where nothing is.
fn others<T: Copy + PartialEq + Display>(named: &[T], own: T) -> Option<(String, String)> {
    let others: Vec<String> = named.iter().filter(|of| **of != own).map(ToString::to_string).collect();
    (!others.is_empty()).then(|| (others.join(", "), own.to_string()))
}

fn or_all<T>(named: Vec<T>, all: Vec<T>) -> Vec<T> {
    if named.is_empty() { all } else { named }
}
