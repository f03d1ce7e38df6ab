//! A table of tokens on the host (PatrickStar, § embedding on CPU). Its rows are gathered for the device, and their gradients
//! are added up, by a thread of its own, in the order in which it is asked.
//!
//! Sums are those of libtorch's embedding on the host, to the bit. Of a micro-batch the gradients of each row are added up in
//! the order of its tokens, each sum rounded to the number format, and that is added to the gradient of the table. On a GPU
//! libtorch adds up in fp32 and in any order, so there sums differ in their last bits.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use loadmaster_proto::chunks::embedding::HostTable;
use loadmaster_proto::chunks::host::{HostPart, HostTableParts};
use loadmaster_proto::training::Precision;

use super::lists::{Bf16, Scalar, of_each_thread, side_by_side};
use crate::completion::{Completion, Doing};
use crate::error::RankError;
use crate::ffi::{Mapping, Number};
use crate::tape::defect;

/// The tokens of a micro-batch, in order.
pub(super) type Tokens = Arc<[i64]>;

/// A table on the host.
#[derive(Debug)]
pub(super) struct EmbeddingRows {
    pub(super) table: HostTable,
    pub(super) parts: HostTableParts,
    /// The elements that this rank owns.
    pub(super) owned: Range<u64>,
    asked: Sender<TableRequest>,
    /// The last copy of rows to the device: others take their place on the host behind it.
    pub(super) copied: Option<Completion>,
    /// The last addition of a micro-batch to the table's gradient, behind which are all before it.
    pub(super) added: Option<Completion>,
    /// Whether the host has all of a table that ranks share as it was last updated.
    pub(super) has_whole: bool,
}

/// Something to do with the table.
#[derive(Debug)]
enum TableWork {
    /// Rows of these tokens, for the device.
    Gather(Tokens),
    /// Gradients of the rows of these tokens, of one micro-batch.
    Add(Tokens),
    /// A gradient of all rows that this rank owns.
    AddAll(HostPart),
}

#[derive(Debug)]
struct TableRequest {
    /// What must be done before.
    after: Vec<Completion>,
    work: TableWork,
    end: Doing,
}

/// A table, and where it is in the host's memory.
#[derive(Debug)]
pub(super) struct TablePlace {
    pub(super) memory: Arc<Mapping>,
    pub(super) table: HostTable,
    pub(super) parts: HostTableParts,
    /// Its fp32 copy, or what this rank owns of that.
    pub(super) weights: HostPart,
    /// Which elements those are.
    pub(super) owned: Range<u64>,
}

impl EmbeddingRows {
    /// Starts the thread, which ends when no one can ask any more.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub(super) fn start(place: TablePlace, precision: Precision, threads: usize) -> Result<Self, RankError> {
        let (asked, works) = mpsc::channel();
        let (table, parts, owned) = (place.table, place.parts, place.owned.clone());
        std::thread::Builder::new()
            .name("gathers rows".to_owned())
            .spawn(move || work(&works, &place, precision, threads))
            .map_err(|error| RankError::Other(format!("cannot start a thread of embeddings: {error}")))?;
        Ok(Self { table, parts, owned, asked, copied: None, added: None, has_whole: false })
    }

    fn ask(&self, after: Vec<Completion>, work: TableWork) -> Completion {
        let (done, end) = Completion::begun();
        // Where its thread is gone the work comes back, is dropped, and has failed.
        drop(self.asked.send(TableRequest { after, work, end }));
        done
    }

    /// Asks for the rows of these tokens, behind the table's last update.
    pub(super) fn gather(&self, tokens: Tokens, updated: Option<Completion>) -> Completion {
        let after = updated.into_iter().chain(self.copied.clone()).collect();
        self.ask(after, TableWork::Gather(tokens))
    }

    /// Adds the gradients of the rows of these tokens, once they are on the host.
    pub(super) fn add(&mut self, tokens: Tokens, copied: Completion) {
        self.added = Some(self.ask(vec![copied], TableWork::Add(tokens)));
    }

    /// Adds a gradient of the whole table, or of what this rank owns of it, once it is on the host.
    pub(super) fn add_all(&self, gradient: HostPart, copied: Completion, end: Doing) {
        drop(self.asked.send(TableRequest { after: vec![copied], work: TableWork::AddAll(gradient), end }));
    }
}

fn work(works: &Receiver<TableRequest>, place: &TablePlace, precision: Precision, threads: usize) {
    for TableRequest { after, work, end } in works {
        // Sums that lack something are no one's: with it fails all that comes behind.
        if !after.iter().all(Completion::is_done_at_last) {
            return;
        }
        let done = match precision {
            Precision::Fp32 => place.run::<f32>(&work, threads),
            Precision::Bf16 | Precision::Bf16Fp32Gradients => place.run::<Bf16>(&work, threads),
        };
        match done {
            Ok(()) => end.complete(),
            // Whoever waits for it is told that it failed; why is for people.
            Err(error) => return eprintln!("loadmaster-rank: embedding rows were not copied: {error}"),
        }
    }
}

impl TablePlace {
    fn run<L: Scalar + Number>(&self, work: &TableWork, threads: usize) -> Result<(), RankError> {
        let lacks = || defect("an embedding table is not in CPU memory");
        let own =
            |part: HostPart, elements: u64| self.memory.numbers::<L>(part.start, elements).ok_or_else(lacks);
        let HostTable { rows, width, .. } = self.table;
        let elements = rows.saturating_mul(width);
        let row = usize::try_from(width).map_err(|_| lacks())?;
        match work {
            TableWork::Gather(tokens) => {
                let mut taken = own(self.parts.up, tokens.len() as u64 * width)?;
                if let Some(whole) = self.parts.whole {
                    return gather(own(whole, elements)?.all(), tokens, taken.all(), (row, threads));
                }
                let weights = self.memory.numbers::<f32>(self.weights.start, elements);
                gather(weights.ok_or_else(lacks)?.all(), tokens, taken.all(), (row, threads))
            }
            TableWork::Add(tokens) => {
                let mut gradients = own(self.parts.down, tokens.len() as u64 * width)?;
                add_rows(own(self.parts.gradients, elements)?.all(), tokens, gradients.all(), (row, threads))
            }
            TableWork::AddAll(part) => {
                let (start, elements) = (self.owned.start, self.owned.end - self.owned.start);
                let owned = self.parts.gradients.start + size_of::<L>() as u64 * start;
                let sum = self.memory.numbers::<L>(owned, elements);
                let (mut sum, mut other) = (sum.ok_or_else(lacks)?, own(*part, elements)?);
                let each = of_each_thread(sum.all().len(), threads);
                let parts = sum.all().chunks_mut(each).zip(other.all().chunks(each));
                side_by_side(parts, |(sum, other)| add(sum, other));
                Ok(())
            }
        }
    }
}

/// Rows of a table with rows of so many elements, rounded to what layers compute with, on so many threads at most.
fn gather<W: Scalar, L: Scalar>(
    weights: &[W],
    tokens: &[i64],
    to: &mut [L],
    (row, threads): (usize, usize),
) -> Result<(), RankError> {
    check(tokens, weights.len() / row)?;
    let each = of_each_thread(to.len(), threads).div_ceil(row);
    side_by_side(tokens.chunks(each).zip(to.chunks_mut(each * row)), |(tokens, to)| {
        for (&token, to) in tokens.iter().zip(to.chunks_exact_mut(row)) {
            let from = usize::try_from(token).ok().and_then(|token| weights.chunks_exact(row).nth(token));
            to.iter_mut().zip(from.unwrap_or_default()).for_each(|(to, &from)| *to = L::round(from.read()));
        }
    });
    Ok(())
}

/// Adds a micro-batch's gradients to those of a table.
fn add_rows<L: Scalar>(
    table: &mut [L],
    tokens: &[i64],
    gradients: &[L],
    (row, threads): (usize, usize),
) -> Result<(), RankError> {
    check(tokens, table.len() / row)?;
    // The places of each token, one behind the other: each thread has those of some rows.
    let mut places: Vec<usize> = (0..tokens.len()).collect();
    places.sort_by_key(|&place| tokens[place]);
    let row_of = |place: usize| usize::try_from(tokens[place]).unwrap_or_default();
    let each = of_each_thread(gradients.len(), threads).div_ceil(row);
    let (mut rest, mut rows) = (table, 0);
    let mut left = places.as_slice();
    let parts = std::iter::from_fn(|| {
        let last = row_of(*left.get(each.min(left.len()).checked_sub(1)?)?);
        let (own, others) = left.split_at(left.partition_point(|&place| row_of(place) <= last));
        let (part, behind) = std::mem::take(&mut rest).split_at_mut((last + 1 - rows) * row);
        let first = std::mem::replace(&mut rows, last + 1);
        (left, rest) = (others, behind);
        Some((own, part, first))
    });
    side_by_side(parts, |(places, part, first)| {
        let mut sum = vec![L::round(0.0); row];
        for places in places.chunk_by(|&one, &other| tokens[one] == tokens[other]) {
            sum.fill(L::round(0.0));
            for gradient in places.iter().filter_map(|&place| gradients.chunks_exact(row).nth(place)) {
                add(&mut sum, gradient);
            }
            let own = places.first().map_or(0, |&place| row_of(place) - first);
            part.chunks_exact_mut(row).nth(own).into_iter().for_each(|to| add(to, &sum));
        }
    });
    Ok(())
}

/// Whether a table with so many rows has one for each token.
fn check(tokens: &[i64], rows: usize) -> Result<(), RankError> {
    let is_known = |&&token: &&i64| usize::try_from(token).is_ok_and(|token| token < rows);
    match tokens.iter().find(|token| !is_known(token)) {
        Some(token) => {
            Err(defect(&format!("token {token} of a micro-batch has no row in the embedding table")))
        }
        None => Ok(()),
    }
}

fn add<L: Scalar>(to: &mut [L], other: &[L]) {
    to.iter_mut().zip(other).for_each(|(to, other)| *to = L::round(to.read() + other.read()));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tch::{Kind, Tensor};

    use super::*;

    proptest! {
        /// What is gathered and added up over micro-batches is what libtorch's embedding looks up and finds, to the bit, in either
        /// format.
        #[test]
        fn rows_and_sums_are_those_of_libtorch(
            batches in proptest::collection::vec(proptest::collection::vec(0_i64..7, 1..20), 1..4),
            row in 1_usize..9,
            seed in any::<i64>(),
            is_fp32 in any::<bool>(),
        ) {
            tch::manual_seed(seed);
            let kind = if is_fp32 { Kind::Float } else { Kind::BFloat16 };
            let weights = Tensor::randn([7, row as i64], (Kind::Float, tch::Device::Cpu));
            let leaf = weights.to_kind(kind).set_requires_grad(true);
            let numbers: Vec<f32> = Vec::try_from(weights.flatten(0, -1)).unwrap();
            let (mut fp32, mut bf16) = (vec![0.0_f32; 7 * row], vec![Bf16(0); 7 * row]);
            for tokens in &batches {
                let found = Tensor::embedding(&leaf, &Tensor::from_slice(tokens), -1, false, false);
                let gradients = found.randn_like();
                (&found * &gradients).sum(Kind::Float).backward();
                let values = |tensor: &Tensor| -> Vec<f32> {
                    Vec::try_from(tensor.detach().to_kind(Kind::Float).flatten(0, -1)).unwrap()
                };
                let (rows, gradients) = (values(&found), values(&gradients));
                if is_fp32 {
                    let mut taken = vec![0.0_f32; rows.len()];
                    gather(&numbers, tokens, &mut taken, (row, 3)).unwrap();
                    prop_assert_eq!(&taken, &rows);
                    add_rows(&mut fp32, tokens, &gradients, (row, 3)).unwrap();
                } else {
                    let mut taken = vec![Bf16(0); rows.len()];
                    gather(&numbers, tokens, &mut taken, (row, 3)).unwrap();
                    prop_assert_eq!(taken.iter().map(|of| of.read()).collect::<Vec<_>>(), rows);
                    let gradients: Vec<Bf16> = gradients.iter().map(|&of| Bf16::round(of)).collect();
                    add_rows(&mut bf16, tokens, &gradients, (row, 3)).unwrap();
                }
            }
            let found: Vec<f32> = Vec::try_from(leaf.grad().to_kind(Kind::Float).flatten(0, -1)).unwrap();
            let sums = if is_fp32 { fp32 } else { bf16.iter().map(|of| of.read()).collect() };
            prop_assert_eq!(sums, found);
        }
    }

    /// As many threads as there are find what one finds, to the bit, of tokens that come often, seldom or never.
    #[test]
    fn threads_change_nothing() {
        const ROW: usize = 1 << 10;
        let numbers = |count: usize, by: usize| -> Vec<f32> {
            (0..count).map(|index| (index * by % 1_009) as f32 / 7.0).collect()
        };
        let weights = numbers(300 * ROW, 31);
        let tokens: Vec<i64> = (0..500_i64).map(|place| place * place % 256).collect();
        let gradients = numbers(tokens.len() * ROW, 17);
        let found = [1, 2, 7].map(|threads| {
            let (mut taken, mut table) = (vec![0.0_f32; gradients.len()], weights.clone());
            gather(&weights, &tokens, &mut taken, (ROW, threads)).unwrap();
            add_rows(&mut table, &tokens, &gradients, (ROW, threads)).unwrap();
            (taken, table)
        });
        assert_ne!(found[0].1, weights);
        assert!(found[1] == found[0] && found[2] == found[0]);
    }

    #[test]
    fn tokens_without_a_row_are_refused() {
        for token in [-1, 3] {
            assert!(gather(&[0.0; 6], &[0, token], &mut [0.0_f32; 4], (2, 1)).is_err());
            assert!(add_rows(&mut [0.0_f32; 6], &[0, token], &[0.0; 4], (2, 1)).is_err());
        }
    }
}
