//! What a request asks of a training in chunks, checked.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::chunked::{AskedChunks, FixedChunks, MemoryMode};
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::wire::{field, v1};

/// Fastest update that is taken for possible, parameters per second.
const FASTEST_UPDATE: f64 = 1e15;

/// What is asked of a training in chunks; none where none is to be.
///
/// # Errors
/// Names the field that is wrong.
pub(super) fn asked(request: &v1::RecommendPlanRequest) -> Result<Option<AskedChunks>, Invalid> {
    let mode = field::<Option<MemoryMode>, _>("memory.mode", request.memory().mode)?.unwrap_or_default();
    let or_plain = match mode {
        MemoryMode::Plain => return Ok(None),
        MemoryMode::Chunks => false,
        MemoryMode::Best => true,
    };
    let constraints = request.constraints.clone().unwrap_or_default();
    let policies: Vec<Option<RecomputePolicy>> =
        field("constraints.recompute_policies", constraints.recompute_policies)?;
    let own: Option<RecomputePolicy> = field("problem.recompute", request.problem().recompute)?;
    let mut recomputes: Vec<RecomputePolicy> = policies.into_iter().flatten().collect();
    if recomputes.is_empty() {
        recomputes.extend(own);
    }
    Ok(Some(AskedChunks {
        or_plain,
        fixed: field::<Option<FixedChunks>, _>(
            "memory.chunk_options",
            request.memory().chunk_options.clone(),
        )?
        .unwrap_or_default(),
        recomputes,
        host_memory: field::<Option<Bytes>, _>(
            "memory.host_memory_bytes",
            request.memory().host_memory_bytes,
        )?
        .unwrap_or(Bytes(0)),
        host_update: host_update(request.memory().cpu_optimizer_rate)?,
    }))
}

/// The field of these choices.
const CHOICES: &str = "memory.chunk_options";

/// Returns the path of the first of these choices that fixes something; that of all of them where none does.
pub(in crate::rpc::plan) fn first_choice(choices: &v1::ChunkOptions) -> String {
    let v1::ChunkOptions {
        policy,
        chunk_elements,
        micro_batch_orders,
        host_parameters,
        embedding_places,
        activation_places,
        resident_chunk_count,
    } = choices;
    let named = [
        ("policy", *policy != 0),
        ("chunk_elements", !chunk_elements.is_empty()),
        ("micro_batch_orders", !micro_batch_orders.is_empty()),
        ("host_parameters", !host_parameters.is_empty()),
        ("embedding_places", !embedding_places.is_empty()),
        ("activation_places", !activation_places.is_empty()),
        ("resident_chunk_count", resident_chunk_count.is_some()),
    ];
    let first = named.iter().find(|(_, is_named)| *is_named);
    first.map_or_else(|| CHOICES.to_owned(), |(name, _)| format!("{CHOICES}.{name}"))
}

fn host_update(rate: f64) -> Result<Option<f64>, Invalid> {
    if rate == 0.0 {
        return Ok(None);
    }
    if rate > 0.0 && rate <= FASTEST_UPDATE {
        return Ok(Some(rate));
    }
    let why = format!(
        "{rate} is out of range. Use more than 0 and at most {FASTEST_UPDATE:e} parameters per second"
    );
    Err(Invalid::field("memory.cpu_optimizer_rate", why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> v1::RecommendPlanRequest {
        v1::RecommendPlanRequest {
            memory: Some(v1::MemoryOptions {
                mode: v1::MemoryMode::Chunks.into(),
                host_memory_bytes: 1 << 30,
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    fn refused(request: &v1::RecommendPlanRequest) -> String {
        asked(request).unwrap_err().violations()[0].field.clone()
    }

    /// Every number has its range, and is named by its path.
    #[test]
    fn numbers_out_of_range_are_refused_by_path() {
        let of = |chunks: v1::ChunkOptions| {
            refused(&loadmaster_proto::changed!(some(), memory.chunk_options = Some(chunks)))
        };
        let none = v1::ChunkOptions::default;
        assert_eq!(
            of(v1::ChunkOptions { micro_batch_orders: vec![0], ..none() }),
            "memory.chunk_options.micro_batch_orders[0]"
        );
        assert_eq!(of(v1::ChunkOptions { policy: 4, ..none() }), "memory.chunk_options.policy");
        assert_eq!(
            of(v1::ChunkOptions { embedding_places: vec![9], ..none() }),
            "memory.chunk_options.embedding_places[0]"
        );
        assert_eq!(
            of(v1::ChunkOptions { chunk_elements: vec![8, 0], ..none() }),
            "memory.chunk_options.chunk_elements[1]"
        );
        let policy = v1::ChunkPolicy::Patrickstar.into();
        assert_eq!(
            of(v1::ChunkOptions { chunk_elements: vec![8], policy, ..none() }),
            "memory.chunk_options.chunk_elements"
        );
        assert_eq!(
            of(v1::ChunkOptions { resident_chunk_count: Some(0), policy, ..none() }),
            "memory.chunk_options.resident_chunk_count"
        );
        assert_eq!(
            of(v1::ChunkOptions { resident_chunk_count: Some(-1), ..none() }),
            "memory.chunk_options.resident_chunk_count"
        );
        for rate in [-1.0, f64::NAN, f64::INFINITY, 1e16] {
            let request = loadmaster_proto::changed!(some(), memory.cpu_optimizer_rate = rate);
            assert_eq!(refused(&request), "memory.cpu_optimizer_rate");
        }
        assert_eq!(
            refused(&loadmaster_proto::changed!(some(), memory.host_memory_bytes = -1)),
            "memory.host_memory_bytes"
        );
    }
}
