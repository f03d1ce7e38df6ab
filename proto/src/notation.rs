//! Stages and partitionings as people write them.
//!
//! * `8-8-7-7`: layers per stage, one device each;
//! * `8-8d2-7t4-7`: the second stage data parallel on two devices, the third tensor parallel on four;
//! * `3..9`, `3..9t4`: the stage of layers 3 to 9, both included.
//!
//! The longer spelling that messages use, `8/data2` and `3..9/tensor4`, is read as well.

use std::str::FromStr;

use crate::stage::{Parallelism, Partitioning, StageConfig};

/// A text that is no stage or partitioning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: {why}")]
pub struct NotationError {
    text: String,
    why: String,
}

const PARTITIONING: &str = "write the layers of each stage joined by dashes, with d or t and a degree where \
                            a stage is data or tensor parallel: 8-8d2-7t4-7";
const STAGE: &str = "write the first and last layer, both included, with d or t and a degree where the \
                     stage is data or tensor parallel: 3..9, 3..9t4";

impl FromStr for Partitioning {
    type Err = NotationError;

    fn from_str(text: &str) -> Result<Self, NotationError> {
        let wrong = |why: &str| NotationError { text: text.to_owned(), why: why.to_owned() };
        let mut next = 0_usize;
        let mut stages = Vec::new();
        for part in text.trim().split('-') {
            let (layers, parallelism, degree) = shared(part).ok_or_else(|| wrong(PARTITIONING))?;
            let layers: usize = layers.parse().map_err(|_| wrong(PARTITIONING))?;
            let end = next.checked_add(layers).ok_or_else(|| wrong(PARTITIONING))?;
            let last_layer = end.checked_sub(1).filter(|_| layers > 0).ok_or_else(|| wrong(PARTITIONING))?;
            stages.push(StageConfig { first_layer: next, last_layer, parallelism, degree });
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
        let (last, parallelism, degree) = shared(rest).ok_or_else(|| wrong(STAGE))?;
        let layer = |number: &str| number.parse().map_err(|_| wrong(STAGE));
        let stage = Self { first_layer: layer(first)?, last_layer: layer(last)?, parallelism, degree };
        stage.checked().map_err(|invalid| wrong(&invalid.to_string()))
    }
}

/// A number and how the stage behind it is shared.
fn shared(text: &str) -> Option<(&str, Parallelism, u32)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    if suffix.is_empty() {
        return Some((number, Parallelism::None, 1));
    }
    let spellings = [
        ("/data", Parallelism::Data),
        ("/tensor", Parallelism::Tensor),
        ("d", Parallelism::Data),
        ("t", Parallelism::Tensor),
    ];
    let (degree, parallelism) = spellings
        .into_iter()
        .find_map(|(spelling, parallelism)| Some((suffix.strip_prefix(spelling)?, parallelism)))?;
    match degree.parse().ok()? {
        1 => Some((number, Parallelism::None, 1)),
        degree => Some((number, parallelism, degree)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stage() -> impl Strategy<Value = (usize, Parallelism, u32)> {
        let shared = prop_oneof![
            Just((Parallelism::None, 1)),
            (1_u32..5).prop_map(|power| (Parallelism::Data, 1 << power)),
            (1_u32..5).prop_map(|power| (Parallelism::Tensor, 1 << power)),
        ];
        (1_usize..50, shared).prop_map(|(layers, (parallelism, degree))| (layers, parallelism, degree))
    }

    proptest! {
        /// What a partitioning is printed as is read as that partitioning, in either spelling, and so are
        /// its stages.
        #[test]
        fn printed_stages_are_read_again(parts in proptest::collection::vec(stage(), 1..10)) {
            let mut first_layer = 0;
            let stages: Vec<StageConfig> = parts
                .into_iter()
                .map(|(layers, parallelism, degree)| {
                    let last_layer = first_layer + layers - 1;
                    let stage = StageConfig { first_layer, last_layer, parallelism, degree };
                    first_layer = last_layer + 1;
                    stage
                })
                .collect();
            for stage in &stages {
                prop_assert_eq!(stage.to_string().parse::<StageConfig>().unwrap(), *stage);
            }
            let partitioning = Partitioning::new(stages).unwrap();
            let long = partitioning.to_string();
            let short = long.replace("/data", "d").replace("/tensor", "t");
            for text in [long, short] {
                prop_assert_eq!(&text.parse::<Partitioning>().unwrap(), &partitioning);
            }
        }

        /// No text makes the reader fail in any other way than with an error.
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9dt./a-z-]{0,24}") {
            let _ = text.parse::<Partitioning>();
            let _ = text.parse::<StageConfig>();
        }
    }

    #[test]
    fn wrong_texts_are_refused_with_an_example() {
        let huge = "99999999999999999999";
        for text in
            ["", "-", "8-", "0", "8-0", "8x2", "8d", "8d3", "8d0", "d2", "8 d2", huge, "8d99999999999"]
        {
            assert!(text.parse::<Partitioning>().is_err(), "{text:?}");
        }
        for text in ["", "3", "3..", "..3", "9..3", "3..9x", "3..9d", "3..9t3", "-1..2"] {
            assert!(text.parse::<StageConfig>().is_err(), "{text:?}");
        }
        assert_eq!("8d1".parse::<Partitioning>().unwrap(), Partitioning::from_sizes(&[8]).unwrap());
        let error = "8x2".parse::<Partitioning>().unwrap_err().to_string();
        assert!(error.contains("8-8d2-7t4-7"), "{error}");
    }
}
