//! What a profile of a GPT-2 with 24 blocks costs, in all five scenarios of the paper.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::zoo::{Gpt2, Zoo};
use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::scenario::Scenario;

use super::{adam, data, of_pipelines, tensor, training};
use crate::accuracy::row::Group;
use crate::accuracy::study::Study;
use loadmaster_tests::Sampler;

pub(super) fn study() -> Result<Study, Invalid> {
    let model = Zoo::Gpt2(Gpt2 {
        blocks: 24,
        hidden_size: 256,
        heads: 4,
        sequence_length: 128,
        positions: 128,
        vocabulary_size: 2_000,
        ..Gpt2::default()
    })
    .build()?;
    let training = training(adam(), Schedule::Gpipe, 8, 4);
    let mut sampler = Sampler::new(24);
    let held_out = of_pipelines(&model, training, (1, 1), (2, 4), Group::Stages, &mut sampler)?;
    Ok(Study {
        name: "gpt2-24-blocks".to_owned(),
        model,
        training,
        sizes: vec![2, 4],
        scenarios: vec![Scenario::SINGLE, data(2), data(4), tensor(2), tensor(4)],
        capture: Vec::new(),
        held_out,
        partitionings: false,
        judges_cost: true,
    })
}
