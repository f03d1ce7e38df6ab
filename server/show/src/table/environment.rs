//! What measurements were made with: when, by which software, at which clocks.

use loadmaster_proto::cluster::quantity;
use loadmaster_proto::wire::v1::{CopyCost, DeviceSample, Environment, Measurement};

use super::grid::Grid;
use super::grid::Side::{Left, Right};
use super::{id, or_none};
use crate::text::terminal_abilities::Look;
use crate::text::time;

/// A row for each measurement.
pub fn grid(measurements: &[Measurement], look: Look) -> Grid {
    let columns = [
        ("run", Left),
        ("measured", Left),
        ("libtorch", Left),
        ("CUDA", Left),
        ("driver", Left),
        ("loadmaster", Left),
        ("threads", Right),
        ("beside others", Right),
        ("beside copies", Left),
        ("SM clock (MHz)", Right),
        ("memory clock (MHz)", Right),
        ("temperature (°C)", Right),
        ("slowed by", Left),
    ];
    let mut grid = Grid::new(&columns, look);
    for one in measurements {
        let unknown = Environment::default();
        let of = one.environment.as_ref().unwrap_or(&unknown);
        let number = |number: i32| if number > 0 { number.to_string() } else { look.none().to_owned() };
        grid.row([
            id(&one.run),
            time(one.measure_time.as_ref(), look),
            or_none(&of.libtorch_version, look),
            or_none(&of.cuda_version, look),
            or_none(&of.driver_version, look),
            or_none(&of.loadmaster_version, look),
            number(of.thread_count),
            of.contention_slowdown
                .map_or_else(|| look.none().to_owned(), |ratio| format!("{ratio:.2}{}", look.times())),
            of.copy_cost.as_ref().map_or_else(|| look.none().to_owned(), |cost| copies(cost, look)),
            samples(of, look, |sample| sample.sm_clock_mhz),
            samples(of, look, |sample| sample.memory_clock_mhz),
            samples(of, look, |sample| sample.temperature_celsius),
            slowed(of, look),
        ]);
    }
    grid
}

/// How much longer it takes beside how many bytes a second: `1.10× at 1.50 GB/s`.
fn copies(cost: &CopyCost, look: Look) -> String {
    format!(
        "{:.2}{} at {}",
        cost.contention_slowdown,
        look.times(),
        quantity::show_bytes_per_second(cost.bytes_per_second)
    )
}

/// Before and after the run: `1980 – 1755`.
fn samples(of: &Environment, look: Look, read: impl Fn(&DeviceSample) -> Option<i32>) -> String {
    let [before, after] = [&of.start_sample, &of.end_sample]
        .map(|sample| sample.as_ref().and_then(&read).map(|value| value.to_string()));
    match (before, after) {
        (Some(before), Some(after)) if before != after => format!("{before} {} {after}", look.to()),
        (Some(one), _) | (None, Some(one)) => one,
        (None, None) => look.none().to_owned(),
    }
}

fn slowed(of: &Environment, look: Look) -> String {
    let throttled =
        [&of.start_sample, &of.end_sample].into_iter().flatten().flat_map(|sample| &sample.throttle_reasons);
    let mut reasons: Vec<String> = throttled.cloned().collect();
    reasons.dedup();
    reasons.extend(of.contended.then(|| "other programs".to_owned()));
    reasons.extend(of.oversubscribed.then(|| "more threads than cores".to_owned()));
    or_none(&reasons.join(", "), look)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_tell_before_and_after() {
        let sample = |clock| DeviceSample { sm_clock_mhz: Some(clock), ..DeviceSample::default() };
        let environment = Environment {
            libtorch_version: "2.11.0".to_owned(),
            start_sample: Some(sample(1_980)),
            end_sample: Some(sample(1_755)),
            contended: true,
            contention_slowdown: Some(1.25),
            copy_cost: Some(CopyCost { bytes_per_second: 1.5e9, core_share: 0.3, contention_slowdown: 1.5 }),
            ..Environment::default()
        };
        let measurement = Measurement {
            run: "runs/1".to_owned(),
            environment: Some(environment),
            ..Measurement::default()
        };
        let text = grid(&[measurement], Look::PLAIN).render();
        for told in ["2.11.0", "1980 - 1755", "other programs", "1.25x", "1.50x at 1.5 GB/s"] {
            assert!(text.contains(told), "{told}:\n{text}");
        }
    }
}
