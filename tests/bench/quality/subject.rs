//! The models that plans are made for, and the searches and rules that make them.

/// A model and how it is trained.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    /// Short name.
    pub(crate) id: &'static str,
    /// For people.
    pub(crate) title: &'static str,
    /// Options of `profile run` that name the model.
    pub(crate) model: Vec<&'static str>,
    /// Samples of one pass of a whole stage.
    pub(crate) micro_batch_size: u32,
    /// Passes per iteration.
    pub(crate) micro_batches: u32,
}

/// Names that the command line takes.
pub(crate) fn names() -> Vec<&'static str> {
    all(false).iter().map(|subject| subject.id).chain([crate::quality::largest::ID]).collect()
}

/// All models, or tiny ones of the same families.
pub(crate) fn all(quick: bool) -> Vec<Subject> {
    let subject = |id, title, model: &'static str, micro_batch_size, micro_batches| {
        let model = model.split_whitespace().collect();
        Subject { id, title, model, micro_batch_size, micro_batches }
    };
    if quick {
        let tiny =
            "--model gpt2 --blocks 3 --hidden-size 32 --heads 4 --sequence-length 16 --vocabulary-size 96";
        return vec![subject("gpt2", "GPT-2, 3 blocks of 32, to try it out", tiny, 4, 2)];
    }
    let vgg11 = "--model vgg11 --image-size 64 --classes 10 --classifier-width 512";
    let amoebanet = "--model amoebanet_d --cells 18 --filters 208 --image-size 64";
    let gpt2 =
        "--model gpt2 --blocks 12 --hidden-size 256 --heads 8 --sequence-length 128 --vocabulary-size 8192";
    vec![
        subject("vgg11", "VGG11, 64 pixels, 30 layers", vgg11, 8, 4),
        subject("amoebanet", "AmoebaNet-D (18, 208), 64 pixels, 24 layers", amoebanet, 4, 4),
        subject("gpt2", "GPT-2, 12 blocks of 256, sequence 128, vocabulary 8,192", gpt2, 8, 4),
    ]
}

/// A search with its options of `plan recommend`.
pub(crate) struct Contender {
    /// For people.
    pub(crate) name: &'static str,
    /// What it is after.
    pub(crate) aim: Aim,
    /// Objective, shape, and whose search it is unless it is ours.
    options: [&'static str; 3],
}

impl Contender {
    /// Options of `plan recommend`.
    pub(crate) fn arguments(&self) -> Vec<&'static str> {
        let named = ["--objective", "--shape", "--search-mode"].into_iter().zip(self.options);
        named.filter(|(_, value)| !value.is_empty()).flat_map(|(name, value)| [name, value]).collect()
    }
}

/// What a plan is compared in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Peak memory.
    Memory,
    /// Iteration time.
    Time,
}

/// All searches.
pub(crate) const CONTENDERS: [Contender; 11] = [
    memory("memory, one device per stage", ["min-peak-memory", "single-pipeline", ""]),
    memory("memory, any stage", ["min-peak-memory", "per-stage-mesh", ""]),
    time("time, uniform grid", ["min-iteration-time", "uniform-grid", ""]),
    time("time, any stage", ["min-iteration-time", "per-stage-mesh", ""]),
    time("front, its fastest point", ["pareto", "uniform-grid", ""]),
    memory("CAPTURE's enumeration", ["min-peak-memory", "per-stage-mesh", "capture"]),
    memory("mCAP's brute force", ["min-peak-memory", "single-pipeline", "mcap-brute-force"]),
    memory("mCAP's Bayesian optimisation", ["min-peak-memory", "single-pipeline", "mcap-bayesian"]),
    time("AMP's program", ["min-iteration-time", "uniform-grid", "amp"]),
    time("AMP's annealing", ["min-iteration-time", "uniform-grid", "amp-annealing"]),
    time("time, one device per stage", ["min-iteration-time", "single-pipeline", ""]),
];

const fn memory(name: &'static str, options: [&'static str; 3]) -> Contender {
    Contender { name, aim: Aim::Memory, options }
}

const fn time(name: &'static str, options: [&'static str; 3]) -> Contender {
    Contender { name, aim: Aim::Time, options }
}
