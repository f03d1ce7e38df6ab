//! What a lane of a timeline is made of: passes, waits and copies.

use loadmaster_proto::wire::v1::{CopySpan, MemoryBlock, PassSpan, UpdateSpan, WaitSpan, pass_span};

use crate::text::{bytes, count, seconds, word};

/// Share of a piece of time that a device must work in to be shown at work.
pub(crate) const MOSTLY: f64 = 0.5;
/// The same of copies, which are seen however short they are.
pub(crate) const EVER: f64 = 0.0;

/// One pass, or the step at the end; a wait; a copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pass {
    pub kind: Kind,
    /// Which micro-batch, from 0.
    pub micro_batch: i32,
    /// Which chunk of the stage's layers.
    pub chunk: i32,
    /// The layer that it goes through alone.
    pub layer: Option<i32>,
    /// What is copied, exchanged, updated or waited for.
    pub moved: Option<Moved>,
    /// Whether it goes on with what a wait interrupted.
    pub goes_on: bool,
    /// Seconds since the start of the iteration, finite.
    pub start: f64,
    /// See start; not less.
    pub end: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Forward,
    Backward,
    /// Forward once more, for the backward pass that follows.
    Again,
    /// Gradient synchronisation and optimizer step.
    Step,
    /// Ranks give each other their parts of a chunk.
    Exchange,
    /// Waiting for a copy, all else being there.
    Wait,
    /// A block leaves.
    Out,
    /// A block comes back.
    Back,
}

impl Kind {
    /// All of them, in the order of legends.
    pub(crate) const ALL: [Self; 8] = [
        Self::Forward,
        Self::Backward,
        Self::Again,
        Self::Step,
        Self::Exchange,
        Self::Wait,
        Self::Out,
        Self::Back,
    ];

    /// In words.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Again => "recompute",
            Self::Step => "synchronisation and step",
            Self::Exchange => "exchange between ranks",
            Self::Wait => "waiting for a copy",
            Self::Out => "copy out",
            Self::Back => "copy back",
        }
    }

    /// Whether every legend has it; others only where they are drawn.
    pub(crate) fn is_usual(self) -> bool {
        matches!(self, Self::Forward | Self::Backward | Self::Step)
    }
}

impl Pass {
    /// A pass, or the step.
    pub(super) fn of(span: &PassSpan) -> Option<Self> {
        let kind = match span.kind() {
            pass_span::Kind::Unspecified => return None,
            pass_span::Kind::Forward => Kind::Forward,
            pass_span::Kind::Backward => Kind::Backward,
            pass_span::Kind::OptimizerStep => Kind::Step,
            pass_span::Kind::Recomputation => Kind::Again,
            pass_span::Kind::AllGather | pass_span::Kind::ReduceScatter => Kind::Exchange,
        };
        let (start, end) = during(span.start_seconds, span.end_seconds)?;
        let of_chunk = |chunk: i32| match span.kind() {
            pass_span::Kind::AllGather => Moved::Gathered(chunk),
            pass_span::Kind::ReduceScatter => Moved::Scattered(chunk),
            _ => Moved::Updated { chunk, parameters: None },
        };
        Some(Self {
            kind,
            micro_batch: span.micro_batch,
            chunk: span.virtual_stage,
            layer: span.layer,
            moved: span.chunk.map(of_chunk),
            goes_on: false,
            start,
            end,
        })
    }

    fn of_wait(span: &WaitSpan) -> Option<Self> {
        let (start, end) = during(span.start_seconds, span.end_seconds)?;
        let moved = match span.chunk {
            Some(chunk) => Moved::ForChunk { chunk, back: span.fetch },
            None => Moved::For { peer: span.peer, back: span.fetch },
        };
        Some(Self::moving(Kind::Wait, 0, moved, (start, end)))
    }

    /// An update by the host.
    pub(super) fn of_update(span: &UpdateSpan) -> Option<Self> {
        let (start, end) = during(span.start_seconds, span.end_seconds)?;
        let moved = Moved::Updated { chunk: span.chunk, parameters: Some(span.parameter_count) };
        Some(Self::moving(Kind::Step, 0, moved, (start, end)))
    }

    /// What is no pass through anything.
    fn moving(kind: Kind, micro_batch: i32, moved: Moved, (start, end): (f64, f64)) -> Self {
        let moved = Some(moved);
        Self { kind, micro_batch, chunk: 0, layer: None, moved, goes_on: false, start, end }
    }

    /// A copy.
    pub(super) fn of_copy(span: &CopySpan) -> Option<Self> {
        let (start, end) = during(span.start_seconds, span.end_seconds)?;
        let (stage, layer, micro_batch, bytes) = (span.stage, span.layer, span.micro_batch, span.bytes);
        let (block, back, unfinished) = (span.block(), span.fetch, span.partial_gradients);
        let moved = match span.chunk {
            Some(chunk) => Moved::Chunk { chunk, block, layer, micro_batch, bytes, back, unfinished },
            None => Moved::Block { stage, block, layer, micro_batch, bytes },
        };
        let kind = if back { Kind::Back } else { Kind::Out };
        Some(Self::moving(kind, micro_batch.unwrap_or(0), moved, (start, end)))
    }

    /// All that is known of it.
    pub(crate) fn title(&self) -> String {
        let what = match self.kind {
            Kind::Step if self.moved.is_none() => self.kind.name().to_owned(),
            Kind::Step | Kind::Exchange => self.moved.map_or_else(String::new, Moved::words),
            Kind::Wait | Kind::Out | Kind::Back => {
                let of = self.moved.map_or_else(String::new, |of| format!(" {}", of.words()));
                format!("{}{of}", self.kind.name())
            }
            Kind::Forward | Kind::Backward if self.chunk > 0 => {
                format!("{} pass of micro-batch {}, chunk {}", self.kind.name(), self.micro_batch, self.chunk)
            }
            Kind::Forward | Kind::Backward | Kind::Again => {
                let name = if self.kind == Kind::Again { "repeated forward" } else { self.kind.name() };
                let layer = self.layer.map_or_else(String::new, |layer| format!(" through layer {layer}"));
                format!("{name} pass of micro-batch {}{layer}", self.micro_batch)
            }
        };
        let took = seconds(self.end - self.start);
        format!("{what}: {took}, from {} to {} (predicted)", seconds(self.start), seconds(self.end))
    }
}

/// What is copied, or waited for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Moved {
    /// A block, or a part of it.
    Block {
        /// Whose it is.
        stage: i32,
        block: MemoryBlock,
        layer: i32,
        micro_batch: Option<i32>,
        bytes: i64,
    },
    /// A copy to or from a stage, or the host.
    For { peer: Option<i32>, back: bool },
    /// Parameters of a chunk, or their gradients.
    Chunk {
        chunk: i32,
        block: MemoryBlock,
        /// Of the pass that needs it, or used it last.
        layer: i32,
        micro_batch: Option<i32>,
        bytes: i64,
        /// Whether it comes to the device.
        back: bool,
        /// Whether gradients are still to be added to.
        unfinished: bool,
    },
    /// A copy of a chunk.
    ForChunk { chunk: i32, back: bool },
    /// The others' parts of a chunk.
    Gathered(i32),
    /// The sum of all ranks' gradients of a chunk.
    Scattered(i32),
    /// A chunk that is updated: on the device, or so many parameters by the host.
    Updated { chunk: i32, parameters: Option<i64> },
}

impl Moved {
    fn words(self) -> String {
        match self {
            Self::Block { stage, block, layer, micro_batch, bytes: size } => {
                let block = word(block.as_str_name(), "MEMORY_BLOCK_");
                let micro_batch = micro_batch.map_or_else(String::new, |of| format!(", micro-batch {of}"));
                format!("of {} of {block}, layer {layer} of stage {stage}{micro_batch}", bytes(size))
            }
            Self::For { peer, back } => {
                let place = peer.map_or_else(|| "the host".to_owned(), |stage| format!("stage {stage}"));
                format!("{} {place}", if back { "back from" } else { "to" })
            }
            Self::Chunk { chunk, block, layer, micro_batch, bytes: size, back, unfinished } => {
                let block = word(block.as_str_name(), "MEMORY_BLOCK_");
                let unfinished = if unfinished { "unfinished " } else { "" };
                let why = if back { "for" } else { "after" };
                let micro_batch = micro_batch.map_or_else(String::new, |of| format!(", micro-batch {of}"));
                format!(
                    "of {} of chunk {chunk}, {unfinished}{block}, {why} layer {layer}{micro_batch}",
                    bytes(size)
                )
            }
            Self::ForChunk { chunk, back } => {
                format!("of chunk {chunk} {} the host", if back { "from" } else { "to" })
            }
            Self::Gathered(chunk) => format!("all-gather of chunk {chunk}"),
            Self::Scattered(chunk) => format!("reduce-scatter of the gradients of chunk {chunk}"),
            Self::Updated { chunk, parameters: None } => {
                format!("optimizer step of chunk {chunk} on the device")
            }
            Self::Updated { chunk, parameters: Some(parameters) } => {
                format!("optimizer step of chunk {chunk} on the CPU, {} parameters", count(parameters))
            }
        }
    }
}

/// A span that makes sense.
fn during(start: f64, end: f64) -> Option<(f64, f64)> {
    // Clocks start at 0, and no iteration that anybody waits for takes longer.
    let sane = |at: f64| (0.0..=1e12).contains(&at);
    (sane(start) && sane(end) && start <= end).then_some((start, end))
}

/// Passes in order with the waits between and within them: a pass that waits is in pieces.
pub(super) fn with_waits(passes: impl Iterator<Item = Pass>, waits: &[WaitSpan]) -> Vec<Pass> {
    let mut sorted: Vec<Pass> = waits.iter().filter_map(Pass::of_wait).collect();
    if sorted.is_empty() {
        return passes.collect();
    }
    sorted.sort_by(|one, other| one.start.total_cmp(&other.start));
    let mut waits: Vec<Pass> = Vec::with_capacity(sorted.len());
    for wait in sorted {
        if waits.last().is_none_or(|last| last.end <= wait.start) {
            waits.push(wait);
        }
    }
    let mut drawn = waits.clone();
    for pass in passes {
        let (mut from, mut goes_on) = (pass.start, false);
        let first = waits.partition_point(|wait| wait.end <= pass.start);
        for wait in waits.iter().skip(first).take_while(|wait| wait.start < pass.end) {
            if from < wait.start {
                drawn.push(Pass { start: from, end: wait.start, goes_on, ..pass });
                goes_on = true;
            }
            from = wait.end;
        }
        if from < pass.end || pass.start == pass.end {
            drawn.push(Pass { start: from.min(pass.end), goes_on, ..pass });
        }
    }
    drawn.sort_by(|one, other| one.start.total_cmp(&other.start));
    drawn
}

/// What a lane mostly does in each of `columns` equal pieces of `end` seconds; nothing where it does less than that `share` of
/// the time.
pub(crate) fn columns(passes: &[Pass], end: f64, columns: usize, share: f64) -> Vec<Option<Kind>> {
    let mut weights = vec![[0.0_f64; Kind::ALL.len()]; columns];
    let scale = columns as f64 / end;
    for pass in passes {
        let (from, to) = (pass.start * scale, (pass.end * scale).min(columns as f64));
        let first = from.max(0.0) as usize;
        for (at, weight) in weights.iter_mut().enumerate().skip(first) {
            let overlap = (to.min(at as f64 + 1.0) - from.max(at as f64)).max(0.0);
            weight[pass.kind as usize] += overlap;
            if to <= at as f64 + 1.0 {
                break;
            }
        }
    }
    let most = |weight: &[f64; Kind::ALL.len()]| {
        let busy: f64 = weight.iter().sum();
        let (kind, _) =
            Kind::ALL.into_iter().zip(weight).reduce(|best, one| if one.1 > best.1 { one } else { best })?;
        (busy >= share && busy > 0.0).then_some(kind)
    };
    weights.iter().map(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(kind: Kind, start: f64, end: f64) -> Pass {
        Pass { kind, micro_batch: 0, chunk: 0, layer: None, moved: None, goes_on: false, start, end }
    }

    /// Each piece of time shows what happens in most of it.
    #[test]
    fn columns_show_what_takes_most_of_the_time() {
        let passes = [pass(Kind::Forward, 0.0, 1.0), pass(Kind::Backward, 2.0, 4.0)];
        let (f, b) = (Some(Kind::Forward), Some(Kind::Backward));
        assert_eq!(columns(&passes, 4.0, 4, MOSTLY), [f, None, b, b]);
        assert_eq!(columns(&passes, 4.0, 2, MOSTLY), [f, b]);
        let many: Vec<Pass> =
            (0..1000).map(|at| pass(Kind::Forward, f64::from(at), f64::from(at) + 0.9)).collect();
        assert_eq!(columns(&many, 1000.0, 3, MOSTLY), [f, f, f]);
        assert_eq!(columns(&passes, 4.0, 0, MOSTLY), []);
        assert_eq!(columns(&[pass(Kind::Out, 0.0, 0.1)], 4.0, 2, EVER), [Some(Kind::Out), None]);
    }

    /// A pass that waits for copies is drawn in pieces, and nothing lies over anything else.
    #[test]
    fn waits_cut_passes_into_pieces() {
        let wait =
            |start_seconds, end_seconds| WaitSpan { start_seconds, end_seconds, ..WaitSpan::default() };
        let waits = [wait(1.0, 2.0), wait(1.5, 1.75), wait(3.0, 3.5), wait(f64::NAN, 9.0), wait(5.0, 6.0)];
        let drawn =
            with_waits([pass(Kind::Forward, 0.0, 4.0), pass(Kind::Step, 6.0, 7.0)].into_iter(), &waits);
        let spans: Vec<(Kind, f64, f64)> = drawn.iter().map(|of| (of.kind, of.start, of.end)).collect();
        let (f, w) = (Kind::Forward, Kind::Wait);
        assert_eq!(
            spans,
            [
                (f, 0.0, 1.0),
                (w, 1.0, 2.0),
                (f, 2.0, 3.0),
                (w, 3.0, 3.5),
                (f, 3.5, 4.0),
                (w, 5.0, 6.0),
                (Kind::Step, 6.0, 7.0)
            ]
        );
    }
}
