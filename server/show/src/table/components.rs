//! What single layers need, taken apart, one layer of one run per line.

use loadmaster_proto::wire::v1::Measurement;

use super::grid::Grid;
use super::grid::Side::{Left, Right};
use super::id;
use crate::text::terminal_abilities::Look;
use crate::text::{bytes, seconds};

/// How the columns are to be read.
const NOTE: &str = "kept: bytes of one micro-batch between its forward and backward pass. A tensor between two layers \
                    exists once, but both layers may count it, so do not add the rows.\nhighest: the most temporary bytes of one pass or \
                    the optimizer step. Bytes that existed before or remain afterwards do not count\n";

/// Nothing where no layer was measured alone.
pub(super) fn list(measurements: &[Measurement], look: Look) -> String {
    let mut grid = Grid::new(
        &[
            ("run", Left),
            ("layer", Right),
            ("kept inside", Right),
            ("kept inputs", Right),
            ("kept outputs", Right),
            ("highest forward", Right),
            ("backward", Right),
            ("step", Right),
            ("input", Right),
            ("output", Right),
            ("collectives", Right),
            ("forward", Right),
            ("backward", Right),
            ("step", Right),
        ],
        look,
    );
    let mut is_empty = true;
    for one in measurements {
        let Some(of) = &one.components else { continue };
        is_empty = false;
        grid.row([
            id(&one.run),
            of.layer.to_string(),
            bytes(of.retained_inner_bytes),
            bytes(of.retained_input_bytes),
            bytes(of.retained_output_bytes),
            bytes(of.forward_transient_bytes),
            bytes(of.backward_transient_bytes),
            bytes(of.step_transient_bytes),
            bytes(of.input_bytes),
            bytes(of.output_bytes),
            bytes(of.communication_bytes),
            seconds(of.forward_seconds),
            seconds(of.backward_seconds),
            seconds(of.step_seconds),
        ]);
    }
    if is_empty { String::new() } else { format!("\nlayers alone:\n{}{NOTE}", grid.render()) }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1::LayerComponents;

    use super::*;

    #[test]
    fn only_layers_alone_are_taken_apart() {
        assert_eq!(list(&[Measurement::default()], Look::PLAIN), "");
        let components = LayerComponents {
            layer: 3,
            retained_inner_bytes: 2 << 20,
            forward_transient_bytes: 5 << 10,
            backward_seconds: 0.25,
            ..LayerComponents::default()
        };
        let one =
            Measurement { run: "runs/01".to_owned(), components: Some(components), ..Measurement::default() };
        let text = list(&[one, Measurement::default()], Look::PLAIN);
        let row = text.lines().nth(3).unwrap_or_default();
        let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(&cells[..6], ["01", "3", "2.00 MiB", "0 B", "0 B", "5.00 KiB"], "{text}");
        assert_eq!(cells[12], "250.0 ms", "{text}");
    }
}
