//! Promises of the recommendation as a whole.

use loadmaster_proto::run::Campaign;
use loadmaster_proto::training::Schedule;

use super::*;
use crate::planning::campaign::{paper, stages};
use crate::planning::capture::Capture;
use crate::planning::fixtures::{Oracle, WorkingSet, training};
use crate::planning::metrics::{StagePeak, derive};
use crate::planning::neighbours::Neighbours;
use crate::planning::predictor::{Margin, Origin, Prediction, StageSetting};

const PLENTY: Bytes = Bytes(1 << 60);

fn names(count: usize) -> Vec<String> {
    (0..count).map(|layer| format!("layer{layer}")).collect()
}

/// A predictor whose peaks are given by a function of (first, last, in flight).
struct Given<F>(usize, F);

impl<F: Fn(usize, usize, u32) -> u64> Predictor for Given<F> {
    fn name(&self) -> &'static str {
        "given/1"
    }

    fn layers(&self) -> usize {
        self.0
    }

    fn stage(&self, setting: &StageSetting) -> Result<Prediction, PredictionError> {
        let (first, last) = (setting.stage.first_layer, setting.stage.last_layer);
        assert!(first <= last && last < self.0, "{first}..{last}");
        Ok(Prediction {
            bytes: Bytes((self.1)(first, last, setting.in_flight())),
            breakdown: None,
            seconds: None,
            margin: None,
            predictor: self.name(),
            origin: Origin::Profiled,
        })
    }

    fn sources(&self, _setting: &StageSetting) -> Vec<String> {
        Vec::new()
    }
}

fn predict(
    predictor: &impl Predictor,
    training: &TrainingSpec,
    partitioning: &Partitioning,
) -> Vec<Prediction> {
    settings(training, partitioning).iter().map(|setting| predictor.stage(setting).unwrap()).collect()
}

/// From the paper's runs on a model to the partitioning that no other one beats by prediction.
#[test]
fn vgg11_profiled_as_in_the_paper_is_cut_at_its_predicted_optimum() {
    let oracle = Oracle::new(WorkingSet::Sum);
    let training = training(Schedule::Gpipe, 92, 12);
    let campaign = paper::paper(30, 4, &training).unwrap();
    let sizes = crate::planning::campaign::default_micro_batch_sizes(Campaign::Paper, 92);
    let peaks: Vec<StagePeak> = campaign
        .partitionings
        .iter()
        .flat_map(|partitioning| partitioning.stages())
        .flat_map(|stage| sizes.iter().map(|&size| (stage.first_layer, stage.last_layer, size)))
        .map(|(first, last, size)| oracle.measure(first, last, size, 12))
        .collect();
    let metrics = derive(&oracle.names(), &campaign.neighbours, &[], &peaks);
    let capture = Capture::new(30, &metrics.layers);
    let best = recommend(&capture, &oracle.names(), &training, &[PLENTY; 4], Limits::default()).unwrap();
    assert_eq!(best.solver, "leximax/1");
    assert_eq!(best.stages.len(), 4);

    let highest = |partitioning: &Partitioning| {
        predict(&capture, &training, partitioning).iter().map(|p| p.bytes).max().unwrap()
    };
    let found = best.highest().unwrap().prediction;
    assert_eq!(found.bytes, highest(&best.partitioning));
    assert_eq!((found.predictor, found.origin), ("capture/1", Origin::Extrapolated));
    for a in 1..28 {
        for b in 1..29 - a {
            for c in 1..30 - a - b {
                let other = Partitioning::from_sizes(&[a, b, c, 30 - a - b - c]).unwrap();
                assert!(found.bytes <= highest(&other), "{other}");
            }
        }
    }
    // A device that is one byte too small for the optimum cannot hold any partitioning.
    let tight = Bytes(found.bytes.0 - 1);
    let error = recommend(&capture, &oracle.names(), &training, &[tight; 4], Limits::default()).unwrap_err();
    let RecommendError::DoesNotFit { reason, .. } = error else { panic!("{error}") };
    assert_eq!(reason.missing(), Some(Bytes(1)));
}

/// Under 1F1B earlier stages hold more micro-batches, so they get fewer layers, and the profile needs
/// no more than two numbers in flight for it.
#[test]
fn one_f_one_b_gives_earlier_stages_fewer_layers() {
    let training = training(Schedule::OneFOneB, 8, 12);
    let equal = Given(20, |first, last, in_flight: u32| (last + 1 - first) as u64 * u64::from(in_flight));
    let best = recommend(&equal, &names(20), &training, &[PLENTY; 4], Limits::default()).unwrap();
    let sizes = best.partitioning.sizes();
    assert!(sizes.is_sorted() && sizes[0] < sizes[3], "{sizes:?}");
    assert_eq!(best.stages.iter().map(|stage| stage.setting.in_flight()).collect::<Vec<_>>(), [4, 3, 2, 1]);

    let oracle = Oracle::new(WorkingSet::Sum);
    let neighbours = Neighbours::growing(30, 4);
    let peaks = [oracle.profile(&neighbours, 8, 1), oracle.profile(&neighbours, 8, 4)].concat();
    let metrics = derive(&oracle.names(), &neighbours, &[], &peaks);
    let capture = Capture::new(30, &metrics.layers);
    assert!(recommend(&capture, &oracle.names(), &training, &[PLENTY; 4], Limits::default()).is_ok());
}

/// Only stages that some partitioning contains are predicted, and each of them is found, for all
/// small shapes and both schedules.
#[test]
fn every_stage_that_the_search_meets_was_predicted() {
    for layers in 1..=9 {
        for devices in 1..=layers {
            for schedule in [Schedule::Gpipe, Schedule::OneFOneB] {
                let training = training(schedule, 1, 3);
                let given = Given(layers, |first, last, in_flight| {
                    assert!(first == 0 || devices > 1);
                    (1 + last - first) as u64 * u64::from(in_flight) + first as u64 % 3
                });
                let best =
                    recommend(&given, &names(layers), &training, &vec![PLENTY; devices], Limits::default())
                        .unwrap();
                let again = predict(&given, &training, &best.partitioning);
                assert!(best.stages.iter().map(|stage| stage.prediction).eq(again));
            }
        }
    }
}

/// A plan never asks for a device without a layer, and says both numbers.
#[test]
fn more_stages_than_layers_are_refused() {
    let training = training(Schedule::Gpipe, 8, 12);
    let given = Given(3, |_, _, _| 1);
    let error = recommend(&given, &names(3), &training, &[PLENTY; 4], Limits::default()).unwrap_err();
    assert_eq!(error.to_string(), "more stages than layers: 4 devices for 3 layers");
    assert_eq!(
        recommend(&given, &names(3), &training, &[], Limits::default()).unwrap_err(),
        RecommendError::NoDevices
    );
    assert_eq!(
        recommend(&given, &names(4), &training, &[PLENTY], Limits::default()).unwrap_err(),
        RecommendError::OtherModel { profiled: 3, layers: 4 }
    );
}

/// People read names, not indices.
#[test]
fn a_layer_that_fits_nowhere_is_named() {
    let training = training(Schedule::Gpipe, 8, 12);
    let given = Given(3, |first, last, _| (first..=last).map(|layer| [1, 50, 1][layer]).sum());
    let error = recommend(&given, &names(3), &training, &[Bytes(20); 3], Limits::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "layer 1 fits on no device: layers 1 to 1 on device 1 need 50 B of 20 B, 30 B too much (the layer is \
         layer1)"
    );
}

/// A gap in the profile is an error before anything is searched.
#[test]
fn a_gap_in_the_profile_is_the_error() {
    let oracle = Oracle::new(WorkingSet::Max);
    let neighbours = Neighbours::growing(30, 4);
    let mut peaks = oracle.profile(&neighbours, 8, 12);
    peaks.retain(|peak| (peak.first_layer, peak.last_layer) != (20, 20));
    let metrics = derive(&oracle.names(), &neighbours, &[], &peaks);
    assert_eq!(metrics.missing.len(), 1);
    let error = recommend(
        &Capture::new(30, &metrics.layers),
        &oracle.names(),
        &training(Schedule::Gpipe, 8, 12),
        &[PLENTY; 4],
        Limits::default(),
    );
    assert!(matches!(
        error.unwrap_err(),
        RecommendError::Prediction(PredictionError::MetricMissing { metric: "isolated", layer: 20, .. })
    ));
}

/// A call never hangs in a search that is too large.
#[test]
fn a_search_that_would_take_too_long_is_refused() {
    let training = training(Schedule::Gpipe, 8, 12);
    let given = Given(10_000, |_, _, _| 1);
    let error = recommend(&given, &names(10_000), &training, &[PLENTY; 64], Limits::default()).unwrap_err();
    assert!(matches!(error, RecommendError::TooLarge { .. }));
    assert!(recommend(&given, &names(10_000), &training, &[PLENTY; 2], Limits::default()).is_ok());
}

/// The solo runs of a transformer suffice to recommend a plan for it.
#[test]
fn a_transformer_is_planned_from_its_distinct_stages() {
    use loadmaster_proto::zoo::{Gpt2, Zoo};
    let model = Zoo::Gpt2(Gpt2 { blocks: 24, ..Gpt2::default() }).build().unwrap();
    let training = training(Schedule::Gpipe, 4, 8);
    let campaign = stages::stages(&model, &training, 4).unwrap();
    let peak = |first: usize, last: usize| {
        let parameters: u64 = model.stage_parameters(first, last).iter().map(|p| p.elements()).sum();
        12 * parameters + (last + 1 - first) as u64 * (1 << 24)
    };
    let peaks: Vec<StagePeak> = campaign
        .runs
        .iter()
        .map(|run| (run.stage.first_layer, run.stage.last_layer))
        .map(|(first, last)| StagePeak::new(first, last, 4, 8, peak(first, last)))
        .collect();
    let names: Vec<String> = model.layers().iter().map(|layer| layer.name.clone()).collect();
    let metrics =
        derive(&names, &campaign.neighbours, &[], &stages::expand(&campaign.representatives, &peaks));
    assert_eq!(metrics.missing, Vec::<String>::new());
    let capture = Capture::new(names.len(), &metrics.layers);
    let best = recommend(&capture, &names, &training, &[PLENTY; 4], Limits::default()).unwrap();
    for stage in &best.stages {
        let (first, last) = (stage.setting.stage.first_layer, stage.setting.stage.last_layer);
        assert_eq!(
            stage.prediction.bytes.0,
            peak(first, last),
            "sums are predicted exactly: {first}..{last}"
        );
    }
}

/// Merging restricts where a model is cut, not what its stages are predicted to need, and reasons are
/// told in layers of the model.
#[test]
fn merged_layers_are_never_cut_and_reasons_name_the_models_layers() {
    let training = training(Schedule::Gpipe, 8, 12);
    let weights = [9_u64, 1, 1, 8, 1, 1];
    let given = Given(6, move |first, last, _| weights[first..=last].iter().sum());
    let merged_to = |left| Limits { merge_layers_to: Some(left), ..Limits::default() };
    let best = recommend(&given, &names(6), &training, &[PLENTY; 3], merged_to(3)).unwrap();
    // By sums the cheapest pairs go first: 1+1, 1+1, then 1+1+8.
    assert_eq!(best.partitioning.to_string(), "1-3-2");
    assert_eq!(best.stages.iter().map(|stage| stage.prediction.bytes.0).collect::<Vec<_>>(), [9, 10, 2]);
    let free = recommend(&given, &names(6), &training, &[PLENTY; 3], Limits::default()).unwrap();
    assert_eq!(recommend(&given, &names(6), &training, &[PLENTY; 3], merged_to(6)).unwrap(), free);
    let error = recommend(&given, &names(6), &training, &[Bytes(9); 3], merged_to(3)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "layer 1 fits on no device: layers 1 to 3 on device 1 need 10 B of 9 B, 1 B too much (the layer is \
         layer1+layer2+layer3)"
    );
    let error = recommend(&given, &names(6), &training, &[PLENTY; 4], merged_to(3)).unwrap_err();
    assert_eq!(error, RecommendError::MoreStagesThanLayers { devices: 4, layers: 3 });
}

/// Capacities hold the upper end of the interval, and a caller may choose another margin.
#[test]
fn the_margin_decides_what_fits() {
    struct Unsure;
    impl Predictor for Unsure {
        fn name(&self) -> &'static str {
            "unsure/1"
        }
        fn layers(&self) -> usize {
            2
        }
        fn stage(&self, _setting: &StageSetting) -> Result<Prediction, PredictionError> {
            Ok(Prediction {
                bytes: Bytes(100),
                breakdown: None,
                seconds: None,
                margin: Some(0.05),
                predictor: self.name(),
                origin: Origin::Profiled,
            })
        }
        fn sources(&self, _setting: &StageSetting) -> Vec<String> {
            Vec::new()
        }
    }
    let training = training(Schedule::Gpipe, 8, 12);
    let fits = |capacity, margin| {
        let limits = Limits { margin, ..Limits::default() };
        recommend(&Unsure, &names(2), &training, &[Bytes(capacity); 2], limits).is_ok()
    };
    assert!(fits(105, Margin::Known) && !fits(104, Margin::Known));
    assert!(fits(100, Margin::Share(0.0)) && !fits(99, Margin::Share(0.0)));
    assert!(fits(120, Margin::Share(0.2)) && !fits(119, Margin::Share(0.2)));
}

/// Any partitioning can be made a plan of, data- and tensor-parallel stages included, as long as it fits;
/// otherwise the first device that is too small is named.
#[test]
fn a_given_partitioning_is_predicted_and_checked() {
    use loadmaster_proto::stage::Parallelism;
    let training = training(Schedule::Gpipe, 8, 12);
    let hundred = Given(4, |first, last, _| 100 * (last + 1 - first) as u64);
    let mut stages = vec![StageConfig::single(0, 1), StageConfig::single(2, 3)];
    stages[1] = StageConfig { parallelism: Parallelism::Data, degree: 2, ..stages[1] };
    let partitioning = Partitioning::new(stages).unwrap();
    let plan = |capacities: &[u64]| {
        let capacities: Vec<Bytes> = capacities.iter().copied().map(Bytes).collect();
        given(&hundred, &training, partitioning.clone(), &capacities, Margin::Known)
    };
    let made = plan(&[200, 300, 250]).unwrap();
    assert_eq!((made.solver, made.partitioning), ("given", partitioning.clone()));
    let capacities: Vec<u64> = made.stages.iter().map(|stage| stage.smallest.unwrap().capacity.0).collect();
    assert_eq!(capacities, [200, 250]);
    assert!(matches!(
        plan(&[200, 300, 199]).unwrap_err(),
        RecommendError::GivenDoesNotFit { device: 2, needed: Bytes(200), capacity: Bytes(199), .. }
    ));
    assert!(matches!(plan(&[200, 300]).unwrap_err(), RecommendError::Devices(_)));
    let short = Partitioning::from_sizes(&[1, 2]).unwrap();
    assert_eq!(
        given(&hundred, &training, short, &[PLENTY; 2], Margin::Known).unwrap_err(),
        RecommendError::CoversOther { covered: 3, layers: 4 }
    );
}
