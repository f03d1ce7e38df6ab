//! A table of tokens on the host (PatrickStar, § embedding on CPU): its rows are gathered for the device, and their gradients
//! are added up, by a thread of its own, in the order in which it is asked.
//!
//! Sums are those of libtorch's embedding on the host, to the bit: of a micro-batch the gradients of each row are added up in
//! the order of its tokens, each sum rounded to the number format, and that is added to the gradient of the table. On a GPU
//! libtorch adds up in fp32 and in any order, so there sums differ in their last bits.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use loadmaster_proto::chunks::embedding::HostTable;
use loadmaster_proto::chunks::host::{HostPart, HostTableParts};
use loadmaster_proto::training::Precision;

use super::lists::{Bf16, Scalar};
use crate::completion::{Completion, Doing};
use crate::error::RankError;
use crate::ffi::{Mapping, Number};
use crate::tape::defect;

/// The tokens of a micro-batch, in order.
pub(super) type Tokens = Arc<[i64]>;

/// A table on the host.
#[derive(Debug)]
pub(super) struct HostRows {
    pub(super) table: HostTable,
    pub(super) parts: HostTableParts,
    /// The elements that this rank owns.
    pub(super) owned: Range<u64>,
    asked: Sender<Asked>,
    /// The last copy of rows to the device: others take their place on the host behind it.
    pub(super) copied: Option<Completion>,
    /// The last addition of a micro-batch to the table's gradient, behind which are all before it.
    pub(super) added: Option<Completion>,
    /// Whether the host has all of a table that ranks share as it was last updated.
    pub(super) has_whole: bool,
}

/// Something to do with the table.
#[derive(Debug)]
enum Work {
    /// Rows of these tokens, for the device.
    Gather(Tokens),
    /// Gradients of the rows of these tokens, of one micro-batch.
    Add(Tokens),
    /// A gradient of all rows that this rank owns.
    AddAll(HostPart),
}

#[derive(Debug)]
struct Asked {
    /// What must be done before.
    after: Vec<Completion>,
    work: Work,
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

impl HostRows {
    /// Starts the thread, which ends when nobody can ask any more.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub(super) fn start(place: TablePlace, precision: Precision) -> Result<Self, RankError> {
        let (asked, works) = mpsc::channel();
        let (table, parts, owned) = (place.table, place.parts, place.owned.clone());
        std::thread::Builder::new()
            .name("gathers rows".to_owned())
            .spawn(move || work(&works, &place, precision))
            .map_err(|error| RankError::Other(format!("cannot start a thread that gathers rows: {error}")))?;
        Ok(Self { table, parts, owned, asked, copied: None, added: None, has_whole: false })
    }

    fn ask(&self, after: Vec<Completion>, work: Work) -> Completion {
        let (done, end) = Completion::begun();
        // Where its thread is gone the work comes back, is dropped, and has failed.
        drop(self.asked.send(Asked { after, work, end }));
        done
    }

    /// Asks for the rows of these tokens, behind the table's last update.
    pub(super) fn gather(&self, tokens: Tokens, updated: Option<Completion>) -> Completion {
        let after = updated.into_iter().chain(self.copied.clone()).collect();
        self.ask(after, Work::Gather(tokens))
    }

    /// Adds the gradients of the rows of these tokens, once they are on the host.
    pub(super) fn add(&mut self, tokens: Tokens, copied: Completion) {
        self.added = Some(self.ask(vec![copied], Work::Add(tokens)));
    }

    /// Adds a gradient of the whole table, or of what this rank owns of it, once it is on the host.
    pub(super) fn add_all(&self, gradient: HostPart, copied: Completion, end: Doing) {
        drop(self.asked.send(Asked { after: vec![copied], work: Work::AddAll(gradient), end }));
    }
}

fn work(works: &Receiver<Asked>, place: &TablePlace, precision: Precision) {
    for Asked { after, work, end } in works {
        // Sums that lack something are nobody's: with it fails all that comes behind.
        if !after.iter().all(Completion::is_done_at_last) {
            return;
        }
        let done = match precision {
            Precision::Fp32 => place.run::<f32>(&work),
            Precision::Bf16 | Precision::Bf16Fp32Gradients => place.run::<Bf16>(&work),
        };
        match done {
            Ok(()) => end.complete(),
            // Whoever waits for it is told that it failed; why is for people.
            Err(error) => return eprintln!("loadmaster-rank: rows of a table were not found: {error}"),
        }
    }
}

impl TablePlace {
    fn run<L: Scalar + Number>(&self, work: &Work) -> Result<(), RankError> {
        let lacks = || defect("a table is not in the host's memory");
        let own =
            |part: HostPart, elements: u64| self.memory.numbers::<L>(part.start, elements).ok_or_else(lacks);
        let HostTable { rows, width, .. } = self.table;
        let elements = rows.saturating_mul(width);
        let row = usize::try_from(width).map_err(|_| lacks())?;
        match work {
            Work::Gather(tokens) => {
                let mut taken = own(self.parts.up, tokens.len() as u64 * width)?;
                if let Some(whole) = self.parts.whole {
                    return gather(own(whole, elements)?.all(), tokens, taken.all(), row);
                }
                let weights = self.memory.numbers::<f32>(self.weights.start, elements);
                gather(weights.ok_or_else(lacks)?.all(), tokens, taken.all(), row)
            }
            Work::Add(tokens) => {
                let mut gradients = own(self.parts.down, tokens.len() as u64 * width)?;
                add_rows(own(self.parts.gradients, elements)?.all(), tokens, gradients.all(), row)
            }
            Work::AddAll(part) => {
                let (start, elements) = (self.owned.start, self.owned.end - self.owned.start);
                let owned = self.parts.gradients.start + size_of::<L>() as u64 * start;
                let sum = self.memory.numbers::<L>(owned, elements);
                let (mut sum, mut other) = (sum.ok_or_else(lacks)?, own(*part, elements)?);
                add(sum.all(), other.all());
                Ok(())
            }
        }
    }
}

/// Rows of a table with rows of so many elements, rounded to what layers compute with.
fn gather<W: Scalar, L: Scalar>(
    weights: &[W],
    tokens: &[i64],
    to: &mut [L],
    row: usize,
) -> Result<(), RankError> {
    for (&token, to) in tokens.iter().zip(to.chunks_exact_mut(row)) {
        let from = usize::try_from(token).ok().and_then(|token| weights.chunks_exact(row).nth(token));
        let from = from.ok_or_else(|| unknown(token))?;
        to.iter_mut().zip(from).for_each(|(to, &from)| *to = L::round(from.read()));
    }
    Ok(())
}

/// Adds a micro-batch's gradients to those of a table.
fn add_rows<L: Scalar>(
    table: &mut [L],
    tokens: &[i64],
    gradients: &[L],
    row: usize,
) -> Result<(), RankError> {
    // The places of each token, one behind the other.
    let mut places: Vec<usize> = (0..tokens.len()).collect();
    places.sort_by_key(|&place| tokens[place]);
    let mut sum = vec![L::round(0.0); row];
    for places in places.chunk_by(|&one, &other| tokens[one] == tokens[other]) {
        sum.fill(L::round(0.0));
        for gradient in places.iter().filter_map(|&place| gradients.chunks_exact(row).nth(place)) {
            add(&mut sum, gradient);
        }
        let token = places.first().map_or(-1, |&place| tokens[place]);
        let to = usize::try_from(token).ok().and_then(|token| table.chunks_exact_mut(row).nth(token));
        add(to.ok_or_else(|| unknown(token))?, &sum);
    }
    Ok(())
}

fn add<L: Scalar>(to: &mut [L], other: &[L]) {
    to.iter_mut().zip(other).for_each(|(to, other)| *to = L::round(to.read() + other.read()));
}

fn unknown(token: i64) -> RankError {
    defect(&format!("a micro-batch has token {token}, which the table has no row for"))
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
                    gather(&numbers, tokens, &mut taken, row).unwrap();
                    prop_assert_eq!(&taken, &rows);
                    add_rows(&mut fp32, tokens, &gradients, row).unwrap();
                } else {
                    let mut taken = vec![Bf16(0); rows.len()];
                    gather(&numbers, tokens, &mut taken, row).unwrap();
                    prop_assert_eq!(taken.iter().map(|of| of.read()).collect::<Vec<_>>(), rows);
                    let gradients: Vec<Bf16> = gradients.iter().map(|&of| Bf16::round(of)).collect();
                    add_rows(&mut bf16, tokens, &gradients, row).unwrap();
                }
            }
            let found: Vec<f32> = Vec::try_from(leaf.grad().to_kind(Kind::Float).flatten(0, -1)).unwrap();
            let sums = if is_fp32 { fp32 } else { bf16.iter().map(|of| of.read()).collect() };
            prop_assert_eq!(sums, found);
        }
    }

    #[test]
    fn tokens_without_a_row_are_refused() {
        for token in [-1, 3] {
            assert!(gather(&[0.0; 6], &[0, token], &mut [0.0_f32; 4], 2).is_err());
            assert!(add_rows(&mut [0.0_f32; 6], &[0, token], &[0.0; 4], 2).is_err());
        }
    }
}
