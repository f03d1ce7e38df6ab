//! Who makes a plan: searches, and the well-known rules that come with every answer.

/// A search with its options of `plan recommend`.
pub(crate) struct Contender {
    /// For people.
    pub(crate) name: &'static str,
    /// What it is after.
    pub(crate) aim: Aim,
    /// Options.
    pub(crate) arguments: &'static [&'static str],
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
    Contender {
        name: "memory, one device per stage",
        aim: Aim::Memory,
        arguments: &["--objective", "min-peak-memory", "--shape", "single-pipeline"],
    },
    Contender {
        name: "memory, any stage",
        aim: Aim::Memory,
        arguments: &["--objective", "min-peak-memory", "--shape", "per-stage-mesh"],
    },
    Contender {
        name: "time, uniform grid",
        aim: Aim::Time,
        arguments: &["--objective", "min-iteration-time", "--shape", "uniform-grid"],
    },
    Contender {
        name: "time, any stage",
        aim: Aim::Time,
        arguments: &["--objective", "min-iteration-time", "--shape", "per-stage-mesh"],
    },
    Contender {
        name: "front, its fastest point",
        aim: Aim::Time,
        arguments: &["--objective", "pareto", "--shape", "uniform-grid"],
    },
    Contender {
        name: "CAPTURE's enumeration",
        aim: Aim::Memory,
        arguments: &[
            "--objective",
            "min-peak-memory",
            "--shape",
            "per-stage-mesh",
            "--search-mode",
            "capture",
        ],
    },
    Contender {
        name: "mCAP's brute force",
        aim: Aim::Memory,
        arguments: &[
            "--objective",
            "min-peak-memory",
            "--shape",
            "single-pipeline",
            "--search-mode",
            "mcap-brute-force",
        ],
    },
    Contender {
        name: "mCAP's Bayesian optimisation",
        aim: Aim::Memory,
        arguments: &[
            "--objective",
            "min-peak-memory",
            "--shape",
            "single-pipeline",
            "--search-mode",
            "mcap-bayesian",
        ],
    },
    Contender {
        name: "AMP's program",
        aim: Aim::Time,
        arguments: &["--objective", "min-iteration-time", "--shape", "uniform-grid", "--search-mode", "amp"],
    },
    Contender {
        name: "AMP's annealing",
        aim: Aim::Time,
        arguments: &[
            "--objective",
            "min-iteration-time",
            "--shape",
            "uniform-grid",
            "--search-mode",
            "amp-annealing",
        ],
    },
    Contender {
        name: "time, one device per stage",
        aim: Aim::Time,
        arguments: &["--objective", "min-iteration-time", "--shape", "single-pipeline"],
    },
];
