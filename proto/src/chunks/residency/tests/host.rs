//! Where chunks are on the host.

use proptest::prelude::*;

use super::naive::{Case, cases};
use crate::chunks::host::{HostChunk, HostParameters, HostPart, HostTableParts};

/// Most bytes in front of a part.
const PADDING: u64 = 63;

fn parts(chunk: &HostChunk) -> impl Iterator<Item = HostPart> {
    let HostChunk { state, parameters, gradients } = chunk.clone();
    state.into_iter().chain(parameters).chain(gradients)
}

/// Elements of each chunk that have a place on the host as parameters, and as gradients apart, and those that pass through a
/// buffer as gradients, or rounded on their way to a GPU. What may leave unfinished is all of it, else a rank's part.
fn places(case: &Case) -> Vec<[u64; 3]> {
    let needs = case.needs();
    let of = |chunk: usize| {
        let (part, whole) = (case.part(chunk), case.bytes(needs[chunk].0) / case.scalar());
        let own = &needs[chunk].1;
        let is_apart = needs.iter().any(|(payload, _)| payload.is_gradients && payload.chunk == chunk);
        let is_kept = case.stage.host_copy == HostParameters::Stored;
        let kept = match own.is_interrupted() {
            true => whole,
            false if is_kept => part,
            false => 0,
        };
        // What no step computes with has no parameters.
        if case.is_on_device(chunk) || own.steps.is_empty() {
            return [0; 3];
        }
        let is_rounded = !is_kept && case.scalar() < 4;
        let passes = is_rounded || kept == 0 && !own.gradients.is_empty();
        [kept, if is_apart { whole } else { 0 }, if passes { part } else { 0 }]
    };
    (0..case.chunks.layout.chunks().len()).map(of).collect()
}

/// What a table on the host has besides its chunk.
fn table(case: &Case) -> impl Iterator<Item = HostPart> {
    let of = |HostTableParts { gradients, up, down, whole }| [gradients, up, down].into_iter().chain(whole);
    case.chunks.host.table.into_iter().flat_map(of)
}

/// Whether no step computes with the first chunk.
fn needs_nothing(case: &Case) -> bool {
    case.needs()[0].1.steps.is_empty()
}

proptest! {
    /// No byte is given out twice or lies outside, each part is as long as its chunk and starts where kernels want it, and what
    /// has no place passes through buffers that hold the largest of it.
    #[test]
    fn every_byte_of_the_host_is_given_out_once(case in cases()) {
        let host = &case.chunks.host;
        let table: Vec<HostPart> = table(&case).collect();
        let chunks = host.chunks.iter().flat_map(parts).chain(host.staging.iter().copied());
        let mut all: Vec<HostPart> = chunks.chain(table.iter().copied()).collect();
        all.sort_by_key(|part| part.start);
        let mut end = 0;
        for part in &all {
            prop_assert!(part.start >= end, "{part:?} begins before {end}");
            prop_assert!(part.start - end <= PADDING && part.start % 64 == 0);
            end = part.start + part.bytes;
        }
        prop_assert_eq!(end, host.bytes);

        let (places, scalar) = (places(&case), case.scalar());
        let layout = case.chunks.layout.chunks();
        prop_assert_eq!(host.chunks.len(), layout.len());
        let sizes: Vec<u64> = table.iter().map(|part| part.bytes).collect();
        // Fifty tokens, each a row of sixteen; samples of eight of them, one for each rank in each micro-batch. Of what ranks share
        // each has all, with what fills up their parts, and the table besides.
        let expected = match (case.is_on_host(), u64::from(case.ranks)) {
            (false, _) => Vec::new(),
            (true, 1) => vec![50 * 16, 8 * 16, 8 * 16],
            (true, ranks) => vec![ranks * case.part(0), 8 * 16, 8 * 16, ranks * case.part(0)],
        };
        prop_assert_eq!(sizes, expected.iter().map(|elements| scalar * elements).collect::<Vec<_>>());
        for (index, chunk) in host.chunks.iter().enumerate() {
            let [kept, apart, _] = places[index];
            let bytes = |elements: u64| (elements > 0).then_some(scalar * elements);
            // The fp32 copy and two moments.
            let states = if case.is_on_device(index) { 0 } else { 3 };
            let state = vec![4 * case.part(index); states];
            prop_assert_eq!(chunk.state.iter().map(|part| part.bytes).collect::<Vec<_>>(), state);
            prop_assert_eq!(chunk.parameters.map(|part| part.bytes), bytes(kept));
            prop_assert_eq!(chunk.gradients.map(|part| part.bytes), bytes(apart));
        }
        let passing = places.iter().map(|places| scalar * places[2]).filter(|&bytes| bytes > 0);
        let passing: Vec<u64> = passing.collect();
        prop_assert_eq!(host.staging.len(), passing.len().min(case.stage.staging));
        prop_assert!(host.staging.iter().all(|part| Some(&part.bytes) == passing.iter().max()));
    }

    /// Twelve bytes a parameter where copies are made, fourteen where they are kept in bf16 and sixteen in fp32, but for what
    /// layout and places add, and what has to be somewhere unfinished.
    #[test]
    fn bytes_per_parameter_follow_from_what_is_kept(case in cases()) {
        let host = &case.chunks.host;
        let layout = case.chunks.layout.chunks();
        let is_here = |chunk: &usize| !case.is_on_device(*chunk);
        let tensors = case.chunks.layout.tensors().iter().filter(|of| is_here(&of.chunk));
        let parameters: u64 = tensors.map(|of| of.elements).sum();
        let here = (0..layout.len()).filter(is_here);
        let owned: u64 = here.map(|chunk| case.part(chunk)).sum();
        let (each, kept) = match case.stage.host_copy {
            HostParameters::Cast => (12, 0),
            HostParameters::Stored => (12 + case.scalar(), owned),
        };
        let whole: u64 = places(&case).iter().map(|[kept, apart, _]| kept + apart).sum();
        // A table on the host has no parameters besides where no step computes with it.
        let has_none = case.is_on_host() && needs_nothing(&case) && case.stage.host_copy == HostParameters::Stored;
        let none = if has_none { case.part(0) } else { 0 };
        let unkept = case.scalar() * none;
        let unfinished = case.scalar() * (whole + none - kept);
        let staging: u64 = host.staging.iter().map(|part| part.bytes).sum();
        let count = host.chunks.iter().flat_map(parts).count() + host.staging.len();
        let table: u64 = table(&case).map(|part| part.bytes).sum();
        let taken = host.bytes - unfinished - staging - table;
        prop_assert!((taken + unkept) * u64::from(case.ranks) >= each * parameters, "{taken} for {parameters}");
        prop_assert!(taken + unkept <= each * owned + PADDING * (count + 4) as u64, "{taken} for {owned}");
    }
}
