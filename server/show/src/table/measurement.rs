//! Measurements, one stage of one run per line.

use loadmaster_proto::wire::v1::{Measurement, MemoryAccounting};

use super::grid::Grid;
use super::grid::Side::{Left, Right};
use super::{components, id, interference, training};
use crate::show;
use crate::text::terminal_abilities::Look;
use crate::text::{bytes, maybe_bytes, seconds, word};

show!(Measurement as one);
show!(ListMeasurementsResponse of measurements as list);

/// The accountings of the columns; all sources are the same.
const NOTE: &str = "all bytes are measured. Peak reserved counts reserved memory; all others count allocated memory, unless \
                    their name says otherwise\n";

fn one(measurement: &Measurement, look: Look) -> String {
    list(std::slice::from_ref(measurement), look)
}

pub(super) fn list(measurements: &[Measurement], look: Look) -> String {
    if measurements.is_empty() {
        return "no measurements\n".to_owned();
    }
    grid(measurements, look).render()
        + NOTE
        + &disturbed(measurements)
        + &in_chunks(measurements)
        + &components::list(measurements, look)
}

/// A row for each.
pub fn grid(measurements: &[Measurement], look: Look) -> Grid {
    let mut grid = Grid::new(
        &[
            ("run", Left),
            ("stage", Left),
            ("layers", Left),
            ("micro-batch", Right),
            ("in flight", Right),
            ("peak allocated", Right),
            ("peak reserved", Right),
            ("parameters", Right),
            ("gradients", Right),
            ("optimizer", Right),
            ("capacity", Right),
            ("iteration", Right),
        ],
        look,
    );
    for one in measurements {
        let solo = if one.solo { " alone" } else { "" };
        grid.row([
            id(&one.run),
            format!("{} of {}{solo}", one.stage_index, one.stage_count),
            training::stage(one.stage.as_ref(), look),
            one.micro_batch_size.to_string(),
            one.in_flight_micro_batch_count.to_string(),
            peak(one),
            maybe_bytes(one.peak_reserved_bytes, look),
            bytes(one.parameter_bytes),
            bytes(one.gradient_bytes),
            bytes(one.optimizer_bytes),
            bytes(one.capacity_bytes),
            iteration(one),
        ]);
    }
    grid
}

/// The peak, with its accounting where that is not the column's.
fn peak(measurement: &Measurement) -> String {
    let peak = bytes(measurement.peak_allocated_bytes);
    match measurement.peak_accounting() {
        MemoryAccounting::Unspecified | MemoryAccounting::Allocated => peak,
        other @ (MemoryAccounting::Reserved | MemoryAccounting::Device | MemoryAccounting::Host) => {
            format!("{peak} ({})", word(other.as_str_name(), "MEMORY_ACCOUNTING_"))
        }
    }
}

/// The seconds of an iteration, and whether they are of devices that the run had for itself.
fn iteration(measurement: &Measurement) -> String {
    let mark =
        measurement.environment.as_ref().map_or("", |of| interference::mark(of.contended, of.oversubscribed));
    seconds(measurement.iteration_seconds) + mark
}

/// What chunks of those that were trained so took of the host, and how long it updated them.
fn in_chunks(measurements: &[Measurement]) -> String {
    let told = measurements.iter().filter_map(|one| {
        let chunks = one.chunk_traffic.as_ref()?;
        Some(format!(
            "{} with chunked training: {} of CPU memory, {} of CPU optimizer steps per iteration; {} fetched to the \
             device, {} evicted\n",
            id(&one.run),
            bytes(chunks.host_bytes),
            seconds(chunks.cpu_optimizer_seconds),
            bytes(chunks.fetched_bytes),
            bytes(chunks.evicted_bytes)
        ))
    });
    told.collect()
}

fn disturbed(measurements: &[Measurement]) -> String {
    let (mut contended, mut share, mut oversubscribed) = (0, 0.0_f64, 0);
    for environment in measurements.iter().filter_map(|one| one.environment.as_ref()) {
        contended += i32::from(environment.contended);
        share = share.max(environment.external_cpu_share());
        oversubscribed += i32::from(environment.oversubscribed);
    }
    interference::warnings(contended, share, oversubscribed)
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1;

    use super::*;

    #[test]
    fn each_number_has_a_unit_and_each_column_an_accounting() {
        let measurement = Measurement {
            run: "runs/01".to_owned(),
            stage: Some(v1::StageConfig { first_layer: 0, last_layer: 7, ..v1::StageConfig::default() }),
            stage_count: 4,
            solo: true,
            micro_batch_size: 2,
            in_flight_micro_batch_count: 4,
            peak_allocated_bytes: 3 << 20,
            capacity_bytes: 2 << 30,
            iteration_seconds: 0.25,
            ..Measurement::default()
        };
        assert_eq!(
            list(&[measurement], Look::PLAIN),
            "run  stage         layers  micro-batch  in flight  peak allocated  peak reserved  parameters  \
             gradients  optimizer  capacity  iteration\n\
             01   0 of 4 alone  0..7              2          4        3.00 MiB              -         0 B  \
             \x20     0 B        0 B  2.00 GiB   250.0 ms\n"
                .to_owned()
                + NOTE
        );
        assert_eq!(list(&[], Look::PLAIN), "no measurements\n");
    }

    #[test]
    fn what_chunks_took_of_the_host_names_its_accounting() {
        let chunks = v1::ChunkTraffic {
            host_bytes: 3 << 30,
            fetched_bytes: 2 << 30,
            evicted_bytes: 1 << 30,
            cpu_optimizer_seconds: 0.25,
            ..v1::ChunkTraffic::default()
        };
        let measured =
            Measurement { run: "runs/01".to_owned(), chunk_traffic: Some(chunks), ..Measurement::default() };
        let text = list(&[measured, Measurement::default()], Look::PLAIN);
        let told = "01 with chunked training: 3.00 GiB of CPU memory, 250.0 ms of CPU optimizer steps per iteration; \
                    2.00 GiB fetched to the device, 1.00 GiB evicted\n";
        assert!(text.contains(told), "{text}");
    }

    /// Pins that bytes of another memory accounting, and numbers of a shared GPU, are never shown as if they were not.
    #[test]
    fn another_accounting_and_a_shared_gpu_are_told() {
        let environment = v1::Environment { contended: true, ..v1::Environment::default() };
        let measurement = Measurement {
            peak_allocated_bytes: 3 << 20,
            peak_accounting: MemoryAccounting::Device.into(),
            environment: Some(environment),
            ..Measurement::default()
        };
        let text = list(&[measurement, Measurement::default()], Look::PLAIN);
        assert!(text.contains("3.00 MiB (device)") && text.contains("the GPU during 1 of the"), "{text}");
    }

    /// Pins that seconds of shared cores are flagged where they are shown, and how much others used.
    #[test]
    fn seconds_of_shared_cores_are_told() {
        let measured = |contended, others_share, oversubscribed| Measurement {
            iteration_seconds: 0.25,
            environment: Some(v1::Environment {
                contended,
                external_cpu_share: Some(others_share),
                oversubscribed,
                ..v1::Environment::default()
            }),
            ..Measurement::default()
        };
        let quiet = list(&[measured(false, 0.04, false)], Look::PLAIN);
        assert!(!quiet.contains("warning") && quiet.contains("250.0 ms\n"), "{quiet}");
        let text = list(
            &[measured(true, 0.2, false), measured(true, 0.55, false), measured(false, 0.0, true)],
            Look::PLAIN,
        );
        assert!(
            text.contains("250.0 ms (contended)") && text.contains("250.0 ms (oversubscribed)"),
            "{text}"
        );
        assert!(text.contains("up to 55.0 % of the CPU cores during 2 of the"), "{text}");
        assert!(text.contains("the ranks of 1 of the measurements"), "{text}");
    }
}
