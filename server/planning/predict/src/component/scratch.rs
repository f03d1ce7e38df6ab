//! What kernels take for themselves while they work.
//!
//! A kernel asks for scratch memory, works, and gives it back before anything else happens: in a recording such
//! a block is freed by the very next event. (Some tensors live no longer; `blend.rs` recognises them by their bytes.)
//! All other blocks are tensors, whose bytes are a straight line over
//! the samples.
//!
//! Scratch is one only where a kernel does the same at every size: in fp32 on CPU slots, as far as
//! anybody has seen. For bf16 oneDNN copies parts of the operands into blocks whose extents it chooses by size.
//! So more samples may take less scratch and fewer more, and a small product has none before it grows.
//! `cuDNN` chooses its workspaces by size in any precision.
//!
//! There a line through two recordings is what is expected of scratch, and [`most`] what it is held to: what
//! was recorded, in proportion, times [`ALLOWANCE`].

use std::collections::BTreeSet;

use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::trace::{Passage, Slot};
use loadmaster_proto::model::layer::LayerKind;
use loadmaster_proto::training::Precision;
use loadmaster_proto::training::shard::{Shard, ShardParameter};

/// How much more scratch is allowed for than was recorded in proportion, as a fraction. In 1,400 recordings of
/// layers in bf16 at up to 19 sizes none took more than 2.02 times as much.
const ALLOWANCE: (u64, u64) = (5, 2);
/// Multiplications of the largest matrix product that libtorch does not hand to oneDNN in bf16: 16 · 16 · 16.
const PLAIN_PRODUCT: u64 = 4_096;
/// Rows and columns are padded to multiples of this, at most.
const PADDED_TO: u64 = 64;

/// Whether scratch follows a line over the samples.
pub(super) fn is_steady(precision: Precision, environment: &Environment) -> bool {
    precision == Precision::Fp32 && environment.device_kind == CPU_KIND
}

/// The fewest and the most threads of the recordings so far and this one, where scratch depends on them. On CPU
/// slots in bf16, where each thread copies for itself. 0 where it is not known.
pub(super) fn threads(
    so_far: Option<[u32; 2]>,
    precision: Precision,
    environment: &Environment,
) -> Option<[u32; 2]> {
    let threads = environment.threads;
    if is_steady(precision, environment) || environment.device_kind != CPU_KIND || threads == 0 {
        return so_far;
    }
    let [fewest, most] = so_far.unwrap_or([threads; 2]);
    Some([fewest.min(threads), most.max(threads)])
}

/// The blocks of a passage that are scratch of kernels.
pub(super) fn of(passage: &Passage) -> BTreeSet<usize> {
    let freed_next = |slot| passage.slot(slot).windows(2).filter(|pair| pair[0] > 0 && pair[1] == -pair[0]);
    let pairs = Slot::ALL.into_iter().flat_map(freed_next);
    pairs.filter_map(|pair| usize::try_from(pair[0] - 1).ok()).collect()
}

/// With the allowance.
pub(super) fn most(in_proportion: u64) -> u64 {
    let (times, of) = ALLOWANCE;
    in_proportion.saturating_mul(times).div_ceil(of)
}

/// Scratch that no recording shows because products of the layer were too small for oneDNN there: the most
/// that the operands and the result of one can take once it is handed over. `recorded` and `target` are samples
/// of a device, the recorded ones the largest; the products of a degree that was not recorded may have been
/// smaller by `shrunk`.
pub(super) fn unseen(
    kind: &LayerKind,
    shard: Shard,
    tokens: u64,
    recorded: u64,
    target: u64,
    shrunk: u64,
) -> u64 {
    let padded = |extent: u64| extent.next_multiple_of(PADDED_TO);
    let (recorded, small) = (recorded.max(1), PLAIN_PRODUCT.saturating_mul(shrunk.max(1)));
    products(kind, shard, tokens)
        .into_iter()
        .filter(|product| product.multiplications().saturating_mul(recorded) <= small)
        .map(|Product { rows, inner, columns }| {
            // All that is known of the rows is that the product was small.
            let most_rows = small.div_ceil(recorded).saturating_mul(target) / (inner * columns).max(1);
            let rows = padded(most_rows.max(rows.saturating_mul(target)));
            let (inner, columns) = (padded(inner), padded(columns));
            let operands = rows.saturating_mul(inner).saturating_add(inner.saturating_mul(columns));
            operands.saturating_mul(2).saturating_add(rows.saturating_mul(columns).saturating_mul(4))
        })
        .max()
        .unwrap_or_default()
}

/// A matrix product of one sample: rows × inner by inner × columns.
#[derive(Debug, Clone, Copy)]
struct Product {
    rows: u64,
    inner: u64,
    columns: u64,
}

impl Product {
    fn multiplications(self) -> u64 {
        self.rows.saturating_mul(self.inner).saturating_mul(self.columns)
    }
}

/// The products of a layer with the fewest rows that they can have: one for each sample, where not every token
/// need take part.
fn products(kind: &LayerKind, shard: Shard, tokens: u64) -> Vec<Product> {
    let extent = |extent: &i64| u64::try_from(*extent).unwrap_or(1).max(1);
    let of_parameter = |parameter: &ShardParameter| match parameter.shape().as_slice() {
        [columns, inner] => Some(Product { rows: 1, inner: extent(inner), columns: extent(columns) }),
        _ => None,
    };
    let mut products: Vec<Product> = match kind {
        // Rows of a table are looked up.
        LayerKind::TokenEmbedding(_) => Vec::new(),
        _ => kind.shard_parameters(shard).iter().filter_map(of_parameter).collect(),
    };
    products.extend(kind.shard_shared_parameter(shard).as_ref().and_then(of_parameter));
    if let LayerKind::TransformerBlock(block) = kind {
        let heads = extent(&block.heads);
        let width = (extent(&block.query_size()) / heads).max(1);
        let rows = (heads / u64::from(shard.degree.max(1))).max(1).saturating_mul(tokens);
        products.push(Product { rows, inner: width, columns: tokens.max(1) });
    }
    products
}
