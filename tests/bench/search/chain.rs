//! Small deterministic planning problems: chains of layers by formula, at any length.
//!
//! The files in `data/` hold the same numbers for 24 and 48 layers, with what other planners reached on them.

use serde::Deserialize;

/// Which formula the layers' times follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// Times between 1 and 2 seconds, cheap edges.
    Chain,
    /// Times between 0.1 and 4 seconds, edges that matter.
    Het,
}

/// A chain of layers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Chain {
    pub(crate) name: String,
    /// Samples per iteration, one per micro-batch.
    pub(crate) num_microbatches: u32,
    /// Seconds that one unit of volume takes between two stages.
    pub(crate) p2p_seconds_per_unit: f64,
    /// Both passes of one micro-batch through each layer, seconds.
    pub(crate) time_s: Vec<f64>,
    /// What crosses the edge after each layer.
    pub(crate) boundary_volume: Vec<f64>,
    /// Parameters of each layer.
    pub(crate) param_size: Vec<f64>,
    /// What each layer keeps for its backward pass.
    pub(crate) activation_size: Vec<f64>,
}

impl Flavour {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chain => "chain",
            Self::Het => "het",
        }
    }
}

impl Chain {
    /// The chain of this length by its formula.
    pub(crate) fn of(flavour: Flavour, layers: usize) -> Self {
        let wave = |factor: usize, modulus: usize| {
            (0..layers).map(|l| 1.0 + ((l * factor) % modulus) as f64 / modulus as f64).collect::<Vec<f64>>()
        };
        let (time_s, p2p_seconds_per_unit) = match flavour {
            Flavour::Chain => (wave(7919, 97), 0.01),
            Flavour::Het => {
                let time = |l: usize| {
                    let phase = ((31 * l * l + 17 * l) % 101) as f64 / 101.0;
                    0.1 + 3.9 * phase * phase
                };
                ((0..layers).map(time).collect(), 0.5)
            }
        };
        Self {
            name: format!("{}-L{layers}", flavour.name()),
            num_microbatches: 32,
            p2p_seconds_per_unit,
            time_s,
            boundary_volume: wave(104_729, 89),
            param_size: wave(15_485_863, 83),
            activation_size: wave(32_452_843, 79),
        }
    }

    pub(crate) fn layers(&self) -> usize {
        self.time_s.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The formulas give the numbers of the files, so longer chains are of the same family.
    #[test]
    fn formulas_give_the_published_inputs() {
        for (text, flavour, layers) in [
            (include_str!("data/chain-L24.json"), Flavour::Chain, 24),
            (include_str!("data/chain-L48.json"), Flavour::Chain, 48),
            (include_str!("data/het-L24.json"), Flavour::Het, 24),
            (include_str!("data/het-L48.json"), Flavour::Het, 48),
        ] {
            let read: Chain = serde_json::from_str(text).unwrap();
            let made = Chain::of(flavour, layers);
            assert_eq!(read.name, made.name);
            for (read, made) in [
                (&read.time_s, &made.time_s),
                (&read.boundary_volume, &made.boundary_volume),
                (&read.param_size, &made.param_size),
                (&read.activation_size, &made.activation_size),
            ] {
                assert_eq!(read.len(), made.len());
                assert!(read.iter().zip(made).all(|(a, b)| (a - b).abs() < 1e-9));
            }
        }
    }
}
