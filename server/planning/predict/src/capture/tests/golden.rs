//! How the additive rule errs over all 3,654 partitionings of VGG11 on four devices, micro-batch 92,
//! 12 in flight, against two memory oracles. The figures were computed independently from the same
//! definitions; they pin the metrics, the neighbour rules and the predictor together.

use loadmaster_proto::training::Schedule;

use super::super::*;
use crate::capture::metrics::{StagePeak, derive};
use crate::profiling::neighbours::Neighbours;
use crate::profiling::paper;
use crate::tests::{Oracle, WorkingSet, training};

const LAYERS: usize = 30;

/// All ways to cut the model into four stages, as the first layers of the last three.
fn partitionings() -> Vec<[usize; 3]> {
    let mut cuts = Vec::new();
    for a in 1..LAYERS - 2 {
        for b in a + 1..LAYERS - 1 {
            cuts.extend((b + 1..LAYERS).map(|c| [a, b, c]));
        }
    }
    cuts
}

/// Highest peak over the four stages.
fn highest(cuts: [usize; 3], peak: impl Fn(usize, usize) -> u64) -> u64 {
    let [a, b, c] = cuts;
    [(0, a), (a, b), (b, c), (c, LAYERS)].iter().map(|&(from, to)| peak(from, to - 1)).max().unwrap()
}

fn predictor(oracle: &Oracle, peaks: &[StagePeak]) -> Capture {
    let metrics = derive(&oracle.names(), &Neighbours::growing(LAYERS, 4), &[], peaks);
    Capture::new(LAYERS, &metrics.layers)
}

/// Median, p90 and maximum of the absolute error in percent, the share of partitionings predicted too
/// low in percent, and how many share the lowest predicted peak.
fn errors(oracle: &Oracle, capture: &Capture) -> (String, usize) {
    let cuts = partitionings();
    assert_eq!(cuts.len(), 3_654);
    let predicted: Vec<u64> = cuts
        .iter()
        .map(|&cuts| {
            highest(cuts, |first, last| {
                capture.peak(StageConfig::single(first, last), 92, 12).unwrap().bytes.0
            })
        })
        .collect();
    let mut low = 0;
    let mut errors: Vec<f64> = cuts
        .iter()
        .zip(&predicted)
        .map(|(&cuts, &predicted)| {
            let real = highest(cuts, |first, last| oracle.peak(first, last, 92, 12));
            low += usize::from(predicted < real);
            100.0 * predicted.abs_diff(real) as f64 / real as f64
        })
        .collect();
    errors.sort_by(f64::total_cmp);
    let lowest = predicted.iter().min().unwrap();
    let figures = format!(
        "{:.1} {:.1} {:.1} {:.0}",
        errors[errors.len() / 2],
        errors[errors.len() * 9 / 10],
        errors[errors.len() - 1],
        100.0 * low as f64 / errors.len() as f64
    );
    (figures, predicted.iter().filter(|&peak| peak == lowest).count())
}

/// Every row of the table: three or more neighbours are nearly always right but often low, one
/// neighbour is always high.
#[test]
fn errors_over_all_partitionings_are_the_published_ones() {
    let rows = [
        (WorkingSet::Max, Neighbours::from_first_layer(LAYERS), "0.0 0.0 9.9 7", 164),
        (WorkingSet::Max, Neighbours::growing(LAYERS, 4), "0.0 0.0 9.9 7", 164),
        (WorkingSet::Max, Neighbours::previous(LAYERS, 3), "0.0 0.0 9.9 7", 164),
        (WorkingSet::Max, Neighbours::previous(LAYERS, 1), "10.9 19.0 19.1 0", 19),
        (WorkingSet::Sum, Neighbours::from_first_layer(LAYERS), "0.0 3.4 9.7 24", 23),
        (WorkingSet::Sum, Neighbours::growing(LAYERS, 4), "0.0 3.4 9.7 24", 23),
        (WorkingSet::Sum, Neighbours::previous(LAYERS, 3), "0.0 3.4 9.7 24", 23),
        (WorkingSet::Sum, Neighbours::previous(LAYERS, 1), "10.4 15.4 16.7 0", 19),
    ];
    for (working_set, neighbours, figures, tied) in rows {
        let oracle = Oracle::new(working_set);
        let capture = predictor(&oracle, &oracle.profile(&neighbours, 92, 12));
        let first = (1..LAYERS).map(|layer| neighbours.first_of(layer)).collect::<Vec<_>>();
        assert_eq!(errors(&oracle, &capture), (figures.to_owned(), tied), "{working_set:?} {first:?}");
    }
}

/// The runs of the `paper` profiling alone, taken as they are, give the row of CAPTURE's boundaries.
#[test]
fn the_paper_campaign_yields_the_row_of_captures_boundaries() {
    let oracle = Oracle::new(WorkingSet::Sum);
    let profiling = paper::paper(LAYERS, 4, &training(Schedule::Gpipe, 92, 12)).unwrap();
    let peaks: Vec<StagePeak> = profiling
        .partitionings
        .iter()
        .flat_map(|partitioning| partitioning.stages())
        .map(|stage| oracle.measure(stage.first_layer, stage.last_layer, 92, 12))
        .collect();
    let metrics = derive(&oracle.names(), &profiling.neighbours, &[], &peaks);
    assert_eq!(metrics.missing, Vec::<String>::new());
    assert_eq!(errors(&oracle, &predictor(&oracle, &peaks)), ("0.0 3.4 9.7 24".to_owned(), 23));
}
