//! A stage in chunks from a file.

use std::path::Path;

use loadmaster_proto::wire::v1;
use loadmaster_show::json;

use crate::failure::Failure;
use crate::input::read_file;

/// Room for every visit that a stage may have, as `plan show -o json` prints it.
const MOST_BYTES: usize = 256 << 20;

/// `--chunks`: what a plan in JSON has of its stage; the planner checks it.
pub(super) fn read(path: &Path) -> Result<v1::ChunkedStage, Failure> {
    let text = read_file("file of --chunks", path, MOST_BYTES)?;
    json::parse("loadmaster.v1.ChunkedStage", &text).map_err(|error| {
        Failure::Usage(format!(
            "--chunks: {} does not describe the chunked training of a stage: {error}. Use the value of \
             .stages[0].chunkedTraining in the output of `plan show PLAN -o json`",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1::chunked_stage::Residency;

    use super::*;

    fn stage() -> v1::ChunkedStage {
        let visit = v1::ResidencyInterval {
            chunk: 1,
            gradients_only: true,
            prefetch_step: 0,
            first_use_step: 2,
            evict_step: 5,
            free_step: 6,
        };
        v1::ChunkedStage {
            layout: v1::ChunkLayout::Aligned.into(),
            chunk_elements: 4 << 20,
            micro_batch_order: v1::MicroBatchOrder::Layer.into(),
            resident_chunks: vec![0, 2],
            host_memory_bytes: 64 << 30,
            residency: Some(Residency::PlannedResidency(v1::ResidencyPlan { intervals: vec![visit] })),
            ..v1::ChunkedStage::default()
        }
    }

    fn written(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    /// What `plan show` prints of a stage is what `plan predict` reads.
    #[test]
    fn what_is_printed_is_read() {
        let stages = vec![v1::PlanStage { chunked_training: Some(stage()), ..v1::PlanStage::default() }];
        let plan = json::json(&v1::Plan { stages, ..v1::Plan::default() }).unwrap();
        let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
        let file = written(&plan["stages"][0]["chunkedTraining"].to_string());
        assert_eq!(read(file.path()).unwrap(), stage());
    }

    #[test]
    fn a_file_of_something_else_is_refused_by_its_option() {
        for wrong in ["", "{", "[]", "{\"stages\": []}", "{\"layout\": \"ROUND\"}", "{} {}"] {
            let file = written(wrong);
            let refused = read(file.path());
            let told = file.path().display().to_string();
            assert!(
                matches!(&refused, Err(Failure::Usage(why)) if why.contains("--chunks") && why.contains(&told)),
                "{wrong:?}: {refused:?}"
            );
        }
        assert!(
            matches!(read(Path::new("/does/not/exist")), Err(Failure::Usage(why)) if why.contains("--chunks"))
        );
    }
}
