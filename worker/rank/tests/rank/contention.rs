//! A stage that is trained alone finds out what others on its host's cores would cost it, and measures what it measures without.

use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::measure::rank::{Contention, RankSpec};
use loadmaster_proto::model::Model;
use loadmaster_proto::model::zoo::{Gpt2, Zoo};

use crate::models::small_amoebanet;
use crate::processes::{positions, run, small_vgg, solo, training};

/// Bytes that copies of the host may carry in a second.
const PACE: f64 = 5e8;

/// A stage, one of several, alone beside so many others.
fn beside(model: &Model, sizes: &[usize], stage: usize, companions: u32) -> Measurement {
    let turns = std::env::temp_dir().join(format!("loadmaster-turns-{}", std::process::id()));
    let contention = (companions > 0).then_some(Contention { companions, turns });
    let pace = CopyPace { host: Some(PACE), peer: None };
    let spec = RankSpec { contention, pace, ..solo(model, training(), positions(sizes)[stage]) };
    run(&spec).measurement()
}

/// But for what is timed, and what others cost.
fn lasting(of: Measurement) -> Measurement {
    let environment = Environment { contention_slowdown: None, copy_cost: None, ..of.environment };
    Measurement { environment, iteration_seconds: 0.0, step_seconds: 0.0, layers: Vec::new(), ..of }
}

/// Losses, peaks and tapes are the same with companions and without, for embeddings, blocks, with dropout, too, a tied head with a
/// copy of its weights, convolutions, and layers with two inputs and running statistics.
#[test]
fn companions_change_nothing_but_what_they_cost() {
    let gpt = |dropout| {
        let of = Gpt2 {
            blocks: 1,
            hidden_size: 16,
            heads: 2,
            sequence_length: 12,
            positions: 20,
            ..Gpt2::default()
        };
        Zoo::Gpt2(Gpt2 { vocabulary_size: 50, dropout, ..of }).build().unwrap()
    };
    let amoeba = small_amoebanet();
    let (whole, dropped, vgg) = (gpt(0.0), gpt(0.1), small_vgg());
    let layers = whole.layers().len();
    let alone = vec![1; layers];
    let rest = |model: &Model, first: usize| vec![first, model.layers().len() - first];
    for (model, sizes, stage) in [
        (&whole, alone.clone(), 0),
        (&whole, alone.clone(), 1),
        (&whole, alone.clone(), layers - 1),
        (&dropped, alone.clone(), 0),
        (&dropped, alone, 1),
        (&vgg, rest(&vgg, 5), 0),
        (&amoeba, rest(&amoeba, 2), 1),
    ] {
        let (with, without) = (beside(model, &sizes, stage, 2), beside(model, &sizes, stage, 0));
        let ratio = with.environment.contention_slowdown.unwrap();
        let copies = with.environment.copy_cost.unwrap();
        assert!((1.0..=Environment::MOST_SLOWDOWN).contains(&ratio), "{ratio}");
        assert!((0.1..=Environment::MOST_SLOWDOWN).contains(&copies.contention_slowdown), "{copies:?}");
        assert!(copies.bytes_per_second <= PACE * 1.1, "{copies:?}");
        assert!(copies.core_share > 0.0 && copies.core_share <= 1.0, "{copies:?}");
        assert_eq!(without.environment.contention_slowdown, None, "there is nobody else");
        assert_eq!(without.environment.copy_cost, None, "nobody copies");
        assert_eq!(lasting(with), lasting(without), "{} {sizes:?} {stage}", model.family());
    }
}

/// A tied head beside its embedding has no weights of its own.
#[test]
fn what_cannot_be_computed_twice_at_once_is_not() {
    let tied = Zoo::Gpt2(Gpt2 {
        blocks: 1,
        hidden_size: 16,
        heads: 2,
        sequence_length: 12,
        positions: 20,
        vocabulary_size: 50,
        dropout: 0.0,
        ..Gpt2::default()
    });
    let tied = tied.build().unwrap();
    let environment = beside(&tied, &[tied.layers().len()], 0, 1).environment;
    assert_eq!(environment.contention_slowdown, None);
    assert!(environment.copy_cost.is_some(), "copies are beside it nevertheless");
}
