//! Where chunks are, step by step.

use loadmaster_proto::wire::v1::chunked_stage::Residency as When;
use loadmaster_proto::wire::v1::{
    ChunkedStage, ComparePlansResponse, Plan, PlanStage, ResidencyInterval, ResidencyPlan,
};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use super::testing::{in_chunks, plan, trained_in_chunks, visit};
use super::{files, only, parsed, text};
use crate::picture::figure::residency::{Place, Residency};
use crate::picture::sheet::{Sheet, Which};
use crate::picture::{html, svg, terminal};
use crate::text::terminal_abilities::Look;

/// Every visit has its cells: on its way, there, leaving; what never leaves has all of them.
#[test]
fn visits_are_cells_below_their_steps() {
    let drawn = text(&in_chunks(), None, only(|which| which.chunks = true), 80, Look::UNICODE);
    let picture = &drawn[..drawn.find("Memory, step by step").unwrap()];
    assert_eq!(
        picture,
        "\n\
         Chunks, step by step · 4 chunks, 1 of them always on the device; 5 visits in 8\n  \
         steps (planned)\n \
         chunk 0 │▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓··························««««««««▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓│\n \
         chunk 1 │········«««««««««▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓»»»»»»»»··················│\n \
         chunk 2 │·················«««««««««««««««««▓▓▓▓▓▓▓▓▓»»»»»»»»»»»»»»»»»·········│\n \
         chunk 3 │█████████████████████████████████████████████████████████████████████│\n\
         a cell is one chunk in one step\n\
         gradients in chunks of their own:\n \
         chunk 0 │···················································▒▒▒▒▒▒▒▒▒»»»»»»»»»│\n \
         chunk 1 │·····································································│\n \
         chunk 2 │·····································································│\n \
         chunk 3 │█████████████████████████████████████████████████████████████████████│\n          \
         '                '                 '                '                '\n          \
         0                2                 4                6                8\n\
         ·· on the host   «« coming   ▓▓ on the device   »» leaving, or no longer needed\n\
         ██ always on the device   ▒▒ gradients on the device\n\
         a step is one pass of one layer; steps are numbered from 0 in each iteration\n\
         \n"
    );
}

/// Without colours and with few characters the same is told.
#[test]
fn plain_terminals_tell_the_same() {
    let drawn = text(&in_chunks(), None, only(|which| which.chunks = true), 60, Look::PLAIN);
    assert!(drawn.is_ascii(), "{drawn}");
    for told in [
        "<< coming",
        ">> leaving, or no longer needed",
        "## always on the device",
        "%% gradients on the device",
    ] {
        assert!(drawn.contains(told), "{told}:\n{drawn}");
    }
    let none = text(&plan(), None, Which::ALL, 60, Look::PLAIN);
    assert!(!none.contains("step by step"), "{none}");
}

/// A file tells of each visit by its steps; that some had no room is told.
#[test]
fn files_tell_of_visits() {
    let mut plan = trained_in_chunks();
    plan.stages[0].measured_chunk_traffic.as_mut().unwrap().replanned = true;
    for file in files(&plan, None) {
        let document = parsed(&file);
        let told: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
        for wanted in [
            "chunk 0: on the device, steps 0 to 1 (planned)",
            "chunk 0: coming, step 5 (planned)",
            "chunk 2: leaving, or no longer needed, steps 5 to 6 (planned)",
            "chunk 3: always on the device, steps 0 to 7 (planned)",
            "gradients of chunk 0: on the device, step 6 (planned)",
            "in training, memory was too small: some chunks were fetched later or evicted earlier than planned",
        ] {
            assert!(told.contains(&wanted), "{wanted}: {told:#?}");
        }
    }
}

/// What is paged has no plan that could be drawn; what cannot be is left out, and told.
#[test]
fn only_visits_that_can_be_are_drawn() {
    let mut plan = in_chunks();
    let chunks = plan.stages[0].chunked_training.as_mut().unwrap();
    let Some(When::PlannedResidency(planned)) = &mut chunks.residency else { panic!() };
    planned.intervals.extend([visit(-1, false, [0, 1, 2, 3]), visit(1, false, [4, 3, 5, 6])]);
    let residency = Residency::of(&plan).unwrap();
    assert_eq!((residency.chunks, residency.steps), (4, 8));
    assert!(
        residency.notes.iter().any(|note| note == "not drawn, because the steps are not valid: 2 visits")
    );
    plan.stages[0].chunked_training.as_mut().unwrap().residency = Some(When::OnDemand(Default::default()));
    assert_eq!(Residency::of(&plan), None);
}

/// A thousand chunks in ten thousand steps are a picture of a page, which says what a cell is.
#[test]
fn many_chunks_and_steps_share_cells() {
    let visits =
        (0..10_000).map(|step| visit(step % 1000, false, [step, step, step + 1, step + 1])).collect();
    let mut plan = in_chunks();
    plan.stages[0].chunked_training.as_mut().unwrap().residency =
        Some(When::PlannedResidency(ResidencyPlan { intervals: visits }));
    let drawn = text(&plan, None, only(|which| which.chunks = true), 100, Look::UNICODE);
    assert!(
        drawn.contains(
            "a cell is up to 42 chunks in up to 114 steps and shows the most common place outside CPU memory"
        ),
        "{drawn}"
    );
    assert!(drawn.contains("966–999 │"), "{drawn}");
    let plans = vec![plan.clone(), in_chunks()];
    let answer = ComparePlansResponse { plans, ..ComparePlansResponse::default() };
    let compared = Sheet::of_comparison(&answer, Which::ALL, Look::FILE);
    let [svg, html] = files(&plan, None);
    for file in [svg, html, svg::render(&compared), html::render(&compared)] {
        parsed(&file);
        assert!(file.len() < 500_000, "{} bytes", file.len());
    }
    let drawn = terminal::render(&compared, 100, Look::UNICODE);
    assert!(drawn.contains("Chunks, step by step · plan 7f3c · 4 chunks"), "{drawn}");
    assert!(drawn.contains("in chunks") && drawn.contains("16M elements, "), "{drawn}");
}

const CHUNKS: usize = 7;
const STEPS: i32 = 30;

/// Visits of one payload that follow each other, from boundaries in order: four for each. Where one is left, the first begins there,
/// in the iteration before.
fn visits(chunk: i32, gradients: bool) -> impl Strategy<Value = Vec<ResidencyInterval>> {
    btree_set(0..=STEPS, 0..12).prop_map(move |boundaries| {
        let boundaries: Vec<i32> = boundaries.into_iter().collect();
        let (fours, left) = boundaries.as_chunks();
        let mut visits: Vec<ResidencyInterval> =
            fours.iter().map(|&of| visit(chunk, gradients, of)).collect();
        if let (Some(first), Some(&late)) = (visits.first_mut(), left.first()) {
            first.prefetch_step = late;
        }
        visits
    })
}

fn stages() -> impl Strategy<Value = (Vec<ResidencyInterval>, Vec<i32>)> {
    let kept = btree_set(0..CHUNKS as i32, 0..3);
    let chunk = |chunk: i32| (visits(chunk, false), visits(chunk, true));
    let all: Vec<_> = (0..CHUNKS as i32).map(chunk).collect();
    (all, kept).prop_map(|(all, kept)| {
        let own = all.into_iter().flat_map(|(parameters, gradients)| [parameters, gradients]).flatten();
        // What is always there has no visits.
        (own.filter(|visit| !kept.contains(&visit.chunk)).collect(), kept.into_iter().collect())
    })
}

/// Where a payload is in a step, by looking at all visits.
fn scanned(
    (visits, kept): &(Vec<ResidencyInterval>, Vec<i32>),
    chunk: i32,
    gradients: bool,
    step: i32,
) -> Place {
    if kept.contains(&chunk) {
        return Place::ForGood;
    }
    let of = |visit: &&ResidencyInterval| visit.chunk == chunk && visit.gradients_only == gradients;
    for visit in visits.iter().filter(of) {
        let is_over_end = visit.prefetch_step > visit.first_use_step
            && (step >= visit.prefetch_step || step < visit.first_use_step);
        if is_over_end || (visit.prefetch_step..visit.first_use_step).contains(&step) {
            return Place::Coming;
        }
        if (visit.first_use_step..visit.evict_step).contains(&step) {
            return Place::There;
        }
        if (visit.evict_step..visit.free_step).contains(&step) {
            return Place::Leaving;
        }
    }
    Place::Host
}

fn drawn((visits, kept): &(Vec<ResidencyInterval>, Vec<i32>)) -> Option<Residency> {
    let residency = Some(When::PlannedResidency(ResidencyPlan { intervals: visits.clone() }));
    let chunks = Some(ChunkedStage { resident_chunks: kept.clone(), residency, ..ChunkedStage::default() });
    let stages = vec![PlanStage { chunked_training: chunks, ..PlanStage::default() }];
    Residency::of(&Plan { stages, ..Plan::default() })
}

proptest! {
    /// Where each chunk has a row and each step a column, a cell is what a scan of all visits finds.
    #[test]
    fn a_cell_is_where_the_chunk_is(stage in stages()) {
        let Some(residency) = drawn(&stage) else { return Ok(()) };
        for band in &residency.bands {
            let cells = residency.cells(band, (1000, 1000), Look::PLAIN);
            prop_assert!(cells.are_single());
            prop_assert_eq!((cells.rows.len(), cells.columns.len()), (residency.chunks, residency.steps));
            for (chunk, row) in cells.rows.iter().enumerate() {
                prop_assert_eq!(&row.label, &format!("chunk {chunk}"));
                for (step, &place) in row.places.iter().enumerate() {
                    let found = scanned(&stage, chunk as i32, band.is_gradients, step as i32);
                    prop_assert_eq!(place, found, "chunk {} in step {}", chunk, step);
                }
            }
        }
    }

    /// A cell of several chunks and steps is where most of those are that are not on the host, counted one by one.
    #[test]
    fn a_cell_of_many_is_where_most_of_them_are(stage in stages(), rows in 1..9_usize, columns in 1..20_usize) {
        let Some(residency) = drawn(&stage) else { return Ok(()) };
        for band in &residency.bands {
            let cells = residency.cells(band, (rows, columns), Look::PLAIN);
            let (per_row, columns) = (residency.chunks.div_ceil(rows), cells.columns.len());
            prop_assert_eq!(cells.rows.len(), residency.chunks.div_ceil(per_row));
            for (index, row) in cells.rows.iter().enumerate() {
                for (column, &place) in row.places.iter().enumerate() {
                    let mut found = [0_usize; 5];
                    for chunk in (index * per_row..(index + 1) * per_row).filter(|&chunk| chunk < residency.chunks) {
                        let steps = column * residency.steps / columns..(column + 1) * residency.steps / columns;
                        for step in steps {
                            let of = scanned(&stage, chunk as i32, band.is_gradients, step as i32);
                            found[Place::ALL.iter().position(|&place| place == of).unwrap()] += 1;
                        }
                    }
                    let count = |of: Place| found[Place::ALL.iter().position(|&place| place == of).unwrap()];
                    let others = Place::ALL.into_iter().filter(|&other| other != Place::Host && other != place);
                    if place == Place::Host {
                        prop_assert_eq!(others.map(count).sum::<usize>(), 0);
                        continue;
                    }
                    prop_assert!(count(place) > 0, "{:?} of {:?}", place, found);
                    for other in others {
                        let is_less = count(other) < count(place);
                        prop_assert!(is_less || (count(other) == count(place) && other < place), "{:?} of {:?}", place, found);
                    }
                }
            }
        }
    }

    /// Whatever arrives is some picture.
    #[test]
    fn strange_visits_are_cells_somewhere(
        wild in vec((any::<i32>(), any::<bool>(), any::<[i32; 4]>()), 0..20),
        kept in vec(any::<i32>(), 0..5),
        rows in 0..50_usize,
        columns in 0..50_usize,
    ) {
        let visits = wild.into_iter().map(|(chunk, gradients, mut boundaries)| {
            boundaries.sort_unstable();
            visit(chunk, gradients, boundaries)
        });
        let Some(residency) = drawn(&(visits.collect(), kept)) else { return Ok(()) };
        for band in &residency.bands {
            let cells = residency.cells(band, (rows, columns), Look::PLAIN);
            prop_assert!(cells.rows.len() <= rows.max(1) && cells.columns.len() <= columns.max(1));
            prop_assert!(cells.rows.iter().all(|row| row.places.len() == cells.columns.len()));
        }
    }
}
