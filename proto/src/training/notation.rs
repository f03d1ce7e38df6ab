//! Stages and partitionings as people write them.
//!
//! * `8-8-7-7`: layers per stage, one device each;
//! * `8-8d2-7t4-4d2t4`: the second stage on two replicas, the third on four shards, the fourth on two
//!   replicas of four shards each;
//! * `8t4s`: the four shards divide activations along the sequence, too (sequence parallelism);
//! * `8d2z1`: the two replicas divide optimizer states (ZeRO-1);
//! * `3..9`, `3..9t4`, `3..9d2t4`: the stage of layers 3 to 9, both included.
//!
//! The longer spelling that messages use, `8/data2/tensor4` and `3..9/tensor4`, is read as well.

use std::str::FromStr;

use crate::training::sharding::StateSharding;
use crate::training::stage::{Partitioning, StageConfig};

/// A text that is no stage or partitioning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: {why}")]
pub struct NotationError {
    text: String,
    why: String,
}

const PARTITIONING: &str = "write the number of layers of each stage, joined by dashes. Add d and the data-parallel size, t \
    and the tensor-parallel size, or both, to a stage with several devices: 8-8d2-7t4-4d2t4. Add s for \
    sequence parallelism, and z1 if the replicas of the stage divide optimizer states: 8d2t4sz1";
const STAGE: &str = "write the first and the last layer, both included. Add d and the data-parallel size, t and the \
    tensor-parallel size, or both, if the stage has several devices: 3..9, 3..9t4, 3..9d2t4. Add s for \
    sequence parallelism, and z1 if the replicas of the stage divide optimizer states: 3..9d2t4sz1";

/// Stages in the shorter spelling: `8-8d2-7t4-4d2t4`.
pub fn short(stages: impl IntoIterator<Item = StageConfig>) -> String {
    let part = |letter: char, degree: u32| {
        if degree == 1 { String::new() } else { format!("{letter}{degree}") }
    };
    let stage = |of: StageConfig| {
        let zero =
            if of.sharding.is_none() { String::new() } else { format!("z{}", of.sharding.zero_stage()) };
        let sequence = if of.sequence_parallel { "s" } else { "" };
        let (data, tensor) = (part('d', of.data_degree), part('t', of.tensor_degree));
        format!("{}{data}{tensor}{sequence}{zero}", of.layer_count())
    };
    stages.into_iter().map(stage).collect::<Vec<_>>().join("-")
}

impl FromStr for Partitioning {
    type Err = NotationError;

    fn from_str(text: &str) -> Result<Self, NotationError> {
        let wrong = |why: &str| NotationError { text: text.to_owned(), why: why.to_owned() };
        let mut next = 0_usize;
        let mut stages = Vec::new();
        for part in text.trim().split('-') {
            let (layers, way) = shared(part).ok_or_else(|| wrong(PARTITIONING))?;
            let layers: usize = layers.parse().map_err(|_| wrong(PARTITIONING))?;
            let end = next.checked_add(layers).ok_or_else(|| wrong(PARTITIONING))?;
            let last_layer = end.checked_sub(1).filter(|_| layers > 0).ok_or_else(|| wrong(PARTITIONING))?;
            stages.push(StageConfig { first_layer: next, last_layer, ..way });
            next = end;
        }
        Self::new(stages).map_err(|invalid| wrong(&invalid.to_string()))
    }
}

impl FromStr for StageConfig {
    type Err = NotationError;

    fn from_str(text: &str) -> Result<Self, NotationError> {
        let wrong = |why: &str| NotationError { text: text.to_owned(), why: why.to_owned() };
        let (first, rest) = text.trim().split_once("..").ok_or_else(|| wrong(STAGE))?;
        let (last, way) = shared(rest).ok_or_else(|| wrong(STAGE))?;
        let layer = |number: &str| number.parse().map_err(|_| wrong(STAGE));
        let stage = Self { first_layer: layer(first)?, last_layer: layer(last)?, ..way };
        stage.checked().map_err(|invalid| wrong(&invalid.to_string()))
    }
}

/// A number, and how the stage behind it is shared, as a stage of the first layer.
fn shared(text: &str) -> Option<(&str, StageConfig)> {
    let (number, rest) = digits(text);
    let (data_degree, rest) = part(rest, ["/data", "d"], 1)?;
    let (tensor_degree, rest) = part(rest, ["/tensor", "t"], 1)?;
    let behind = ["/sequence", "s"].into_iter().find_map(|spelling| rest.strip_prefix(spelling));
    let (sequence_parallel, rest) = (behind.is_some(), behind.unwrap_or(rest));
    let (zero, rest) = part(rest, ["/zero", "z"], 0)?;
    let sharding = StateSharding::ALL.iter().copied().find(|of| of.zero_stage() == zero)?;
    let one = StageConfig::single(0, 0);
    let way = StageConfig { data_degree, tensor_degree, sequence_parallel, sharding, ..one };
    rest.is_empty().then_some((number, way))
}

/// The number that follows one of these spellings, and what follows it; the usual one where neither is there, none
/// where it is no number.
fn part<'a>(text: &'a str, spellings: [&str; 2], usual: u32) -> Option<(u32, &'a str)> {
    let Some(rest) = spellings.into_iter().find_map(|spelling| text.strip_prefix(spelling)) else {
        return Some((usual, text));
    };
    let (number, rest) = digits(rest);
    Some((number.parse().ok()?, rest))
}

/// The digits that a text begins with, and the rest.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stage() -> impl Strategy<Value = (usize, u32, u32, StateSharding, bool)> {
        let sharding = proptest::sample::select(StateSharding::ALL.to_vec());
        (1_usize..50, 1_u32..20, (0_u32..=6).prop_map(|power| 1 << power), sharding, any::<bool>())
    }

    proptest! {
        /// What a partitioning is printed as is read as that partitioning, in either spelling, and so are
        /// its stages.
        #[test]
        fn printed_stages_are_read_again(parts in proptest::collection::vec(stage(), 1..10)) {
            let mut first_layer = 0;
            let stages: Vec<StageConfig> = parts
                .into_iter()
                .map(|(layers, data_degree, tensor_degree, sharding, sequence_parallel)| {
                    let last_layer = first_layer + layers - 1;
                    let sharding = if data_degree > 1 { sharding } else { StateSharding::None };
                    let stage = StageConfig {
                        first_layer,
                        last_layer,
                        data_degree,
                        tensor_degree,
                        sequence_parallel: sequence_parallel && tensor_degree > 1,
                        sharding,
                    };
                    first_layer = last_layer + 1;
                    stage
                })
                .collect();
            for stage in &stages {
                prop_assert_eq!(stage.to_string().parse::<StageConfig>().unwrap(), *stage);
            }
            let partitioning = Partitioning::new(stages).unwrap();
            let long = partitioning.to_string();
            let short = short(partitioning.stages().iter().copied());
            for text in [long, short] {
                prop_assert_eq!(&text.parse::<Partitioning>().unwrap(), &partitioning);
            }
        }

        /// Any text is refused by its own words, or is written so that it reads the same.
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9dtsz./a-z-]{0,24}") {
            match text.parse::<Partitioning>() {
                Ok(read) => prop_assert_eq!(read.to_string().parse::<Partitioning>().unwrap(), read),
                Err(error) => prop_assert!(error.to_string().contains(&text)),
            }
            match text.parse::<StageConfig>() {
                Ok(read) => prop_assert_eq!(read.to_string().parse::<StageConfig>().unwrap(), read),
                Err(error) => prop_assert!(error.to_string().contains(&text)),
            }
        }
    }

    #[test]
    fn wrong_texts_are_refused_with_an_example() {
        let huge = "99999999999999999999";
        for text in [
            "",
            "-",
            "8-",
            "0",
            "8-0",
            "8x2",
            "8d",
            "8t3",
            "8d0",
            "d2",
            "8 d2",
            "8t2d2",
            "8z1",
            "8d2z9",
            "8z1d2",
            huge,
            "8d99999999999",
        ] {
            assert!(text.parse::<Partitioning>().is_err(), "{text:?}");
        }
        for text in ["", "3", "3..", "..3", "9..3", "3..9x", "3..9d", "3..9t3", "-1..2"] {
            assert!(text.parse::<StageConfig>().is_err(), "{text:?}");
        }
        assert_eq!("8d1".parse::<Partitioning>().unwrap(), Partitioning::from_sizes(&[8]).unwrap());
        let error = "8x2".parse::<Partitioning>().unwrap_err().to_string();
        assert!(error.contains("8-8d2-7t4-4d2t4"), "{error}");
    }
}
