//! The paper's planner, asked for one of its cells.

use std::time::{Duration, Instant};

use loadmaster_planning::actions::fastest::{self, Effort, FastestPlan, Known};
use loadmaster_planning::actions::paper::{PaperPlan, plan};
use loadmaster_planning::actions::{Allowed, NodeDevices, PlanError, Question, StageBlocks};
use loadmaster_planning::iteration::Overlap;
use loadmaster_planning::search::Stop;
use loadmaster_proto::training::actions::Block;

use crate::memory::models::{PaperModel, STAGES};
use crate::memory::nodes::Server;

/// A system that the paper compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ways {
    Untouched,
    Recompute,
    Host,
    Peers,
    All,
}

impl Ways {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Untouched => "untouched",
            Self::Recompute => "recompute",
            Self::Host => "host swap",
            Self::Peers => "D2D",
            Self::All => "all",
        }
    }

    fn allowed(self) -> Allowed {
        let is = |way| self == way || self == Self::All;
        Allowed { recompute: is(Self::Recompute), host: is(Self::Host), peers: is(Self::Peers) }
    }
}

/// How the links of a node are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkUse {
    /// Blocks are split over several.
    pub(crate) stripes: bool,
    /// Mappings that are simulated at most; 0 leaves stages in order.
    pub(crate) mappings: usize,
}

/// A model on a server.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) model: PaperModel,
    stages: Vec<StageBlocks>,
    node: NodeDevices,
    micro_batches: u32,
}

const BLOCKS: [Block; 5] =
    [Block::Activations, Block::Versions, Block::Weights, Block::Gradients, Block::Optimizer];

impl Case {
    pub(crate) fn of(model: PaperModel, server: Server, micro_batches: u32) -> Self {
        Self { model, stages: model.stages(server.flops(model.system)), node: server.node(), micro_batches }
    }

    /// The plan of one of the systems, and how long it took to find.
    pub(crate) fn plan(&self, ways: Ways, links: LinkUse) -> (Result<PaperPlan, PlanError>, Duration) {
        self.asked(ways, links, plan)
    }

    /// The fastest plan that is found with these ways, and how long that took.
    pub(crate) fn chosen(&self, ways: Ways) -> (Result<FastestPlan, PlanError>, Duration) {
        self.asked(ways, LinkUse { stripes: true, mappings: 0 }, |question| {
            fastest::plan(question, Known::default(), Effort::All)
        })
    }

    fn asked<T>(&self, ways: Ways, links: LinkUse, plan: impl Fn(&Question<'_>) -> T) -> (T, Duration) {
        let began = Instant::now();
        let edge_bytes = [self.model.edge_bytes(); STAGES - 1];
        // As what is asked for: none that every update makes anew.
        let schedule = self.model.schedule();
        let blocks: Vec<Block> = BLOCKS.into_iter().filter(|block| block.may_leave(schedule)).collect();
        let plan = plan(&Question {
            stages: &self.stages,
            edge_bytes: &edge_bytes,
            order: self.model.order(),
            micro_batches: self.micro_batches,
            overlap: Overlap::Computing,
            node: &self.node,
            reserve: &[],
            allowed: ways.allowed(),
            blocks: &blocks,
            smallest_block: 0,
            stripes: links.stripes,
            mappings: links.mappings,
            stop: &Stop::default(),
        });
        (plan, began.elapsed())
    }
}
