//! The smallest study that goes all the way: seconds, for the harness's own test.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::zoo::{Gpt2, Zoo};
use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::scenario::Scenario;

use super::{of_pipelines, sgd, training};
use crate::accuracy::row::Group;
use crate::accuracy::study::Study;
use loadmaster_tests::Sampler;

pub(super) fn study() -> Result<Study, Invalid> {
    let model = Zoo::Gpt2(Gpt2 {
        blocks: 3,
        hidden_size: 32,
        heads: 2,
        sequence_length: 16,
        positions: 16,
        vocabulary_size: 100,
        ..Gpt2::default()
    })
    .build()?;
    let training = training(sgd(), Schedule::Gpipe, 8, 2);
    let held_out = of_pipelines(&model, training, (1, 1), (1, 2), Group::Stages, &mut Sampler::new(1))?;
    Ok(Study {
        name: "tiny".to_owned(),
        model,
        training,
        sizes: vec![2, 4],
        scenarios: vec![Scenario::SINGLE],
        capture: Vec::new(),
        held_out,
        partitionings: false,
        judges_cost: false,
    })
}
