//! AmoebaNet-D (Real et al., 2018) as torchgpipe builds it.

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, in_range};
use crate::model::layer::{AmoebaCell, Layer, LayerKind};
use crate::model::{Model, ModelInput};

/// Between input and classifier rows and columns are halved this often.
const HALVINGS: u32 = 5;

/// AmoebaNet-D(L, F): a stem of three layers, normal cells, a reduction, normal cells, a reduction, normal
/// cells, a classifier; L + 6 layers, 81,505,540 parameters at the default sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AmoebaNet {
    /// L: normal cells, a third of them before, between and behind the two reductions.
    pub cells: i64,
    /// F: filters; the stem yields a quarter of them.
    pub filters: i64,
    /// Height and width of the input.
    pub image_size: i64,
    /// Classes.
    pub classes: i64,
}

impl Default for AmoebaNet {
    fn default() -> Self {
        Self { cells: 18, filters: 208, image_size: 224, classes: 1000 }
    }
}

/// The cells so far, and what the next one must know of them.
struct Cells {
    layers: Vec<Layer>,
    before_previous: i64,
    previous: i64,
    channels: i64,
    after_reduction: bool,
}

impl Cells {
    fn push(&mut self, name: String, reduction: bool) {
        if reduction {
            self.channels *= 2;
        }
        let cell = AmoebaCell {
            channels_before_previous: self.before_previous,
            channels_previous: self.previous,
            channels: self.channels,
            reduction,
            after_reduction: self.after_reduction,
            // The stem alone is before it.
            single_input: self.layers.len() == 1,
            last: false,
        };
        self.before_previous = self.previous;
        self.previous = cell.output_channels();
        self.after_reduction = reduction;
        self.layers.push(Layer { name, kind: LayerKind::AmoebaCell(cell) });
    }
}

pub(super) fn build(options: &AmoebaNet) -> Result<Model, Invalid> {
    let cells = multiple_of(3, "cells", options.cells, 9_000)?;
    let filters = multiple_of(8, "filters", options.filters, 65_536)?;
    let size = multiple_of(1 << HALVINGS, "image_size", options.image_size, 4_096)?;
    let classes = in_range("classes", options.classes, 1..=1_000_000)?;

    let channels = filters / 4;
    let stem = LayerKind::ReluConvBatchNorm {
        in_channels: 3,
        out_channels: channels,
        kernel: 3,
        stride: 2,
        padding: 1,
    };
    let mut network = Cells {
        layers: vec![Layer { name: "stem1".to_owned(), kind: stem }],
        before_previous: channels,
        previous: channels,
        channels,
        after_reduction: false,
    };
    network.push("stem2".to_owned(), true);
    network.push("stem3".to_owned(), true);
    for group in [1, 3, 5] {
        if group > 1 {
            network.push(format!("cell{}_reduction", group - 1), true);
        }
        for index in 1..=cells / 3 {
            network.push(format!("cell{group}_normal{index}"), false);
        }
    }
    let Cells { mut layers, previous, .. } = network;
    if let Some(Layer { kind: LayerKind::AmoebaCell(cell), .. }) = layers.last_mut() {
        cell.last = true;
    }
    layers.push(Layer {
        name: "classify".to_owned(),
        kind: LayerKind::ImageClassifier { channels: previous, classes },
    });
    let input = ModelInput::Image { channels: 3, height: size, width: size };
    Model::new("amoebanet_d".to_owned(), input, layers)
}

fn multiple_of(factor: i64, field: &str, value: i64, most: i64) -> Result<i64, Invalid> {
    in_range(field, value, factor..=most)?;
    if value % factor == 0 {
        Ok(value)
    } else {
        Err(invalid!(field, "{value} is not a multiple of {factor}. Use a multiple"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::layer::Parameter;

    fn model(cells: i64, filters: i64) -> Model {
        build(&AmoebaNet { cells, filters, ..AmoebaNet::default() }).unwrap()
    }

    #[test]
    fn the_published_sizes_have_their_published_parameters() {
        for (cells, filters, layers, parameters) in [
            (18, 208, 24, 81_505_540),
            (18, 256, 24, 122_470_120),
            (18, 416, 24, 319_024_120),
            (18, 544, 24, 542_734_840),
            (36, 544, 42, 1_055_832_376),
            (72, 512, 78, 1_844_858_344),
            (36, 808, 42, 2_322_395_707),
            (36, 1008, 42, 3_610_012_132),
        ] {
            let model = model(cells, filters);
            assert_eq!(model.layers().len(), layers, "({cells}, {filters})");
            assert_eq!(model.parameter_count(), parameters, "({cells}, {filters})");
        }
    }

    #[test]
    fn each_layer_has_its_parameters() {
        let repeated = |count: u64, times: usize| std::iter::repeat_n(count, times);
        let expected: Vec<u64> = [3_944, 331_704, 1_541_968, 3_042_592, 3_782_432]
            .into_iter()
            .chain(repeated(4_078_368, 10))
            .chain([8_817_696, 12_743_744, 15_111_232])
            .chain(repeated(16_294_976, 10))
            .chain([35_243_584, 50_937_984, 60_407_936])
            .chain(repeated(65_142_912, 10))
            .chain([8_705_000])
            .collect();
        let counts: Vec<u64> =
            model(36, 544).layers().iter().map(|layer| layer.kind.parameter_count()).collect();
        assert_eq!(counts, expected);
    }

    #[test]
    fn a_cell_hands_its_input_on_but_the_last_does_not() {
        let model = model(18, 208);
        assert_eq!(model.edge(1), [[52, 112, 112]]);
        assert_eq!(model.edge(2), [[312, 56, 56], [52, 112, 112]]);
        assert_eq!(model.edge(3), [[624, 28, 28], [312, 56, 56]]);
        assert_eq!(model.edge(4), [[832, 28, 28], [624, 28, 28]]);
        assert_eq!(model.edge(23), [[3328, 7, 7]]);
        assert_eq!(model.edge(24), [[1000]]);
    }

    /// Two running statistics per channel that is normalised, none elsewhere.
    #[test]
    fn buffers_are_the_running_statistics_of_the_normalisations() {
        let model = model(18, 208);
        for (index, layer) in model.layers().iter().enumerate() {
            let scales =
                layer.kind.parameters().into_iter().filter(|parameter| parameter.name.contains("norm."));
            let normalised: u64 = scales.map(|parameter: Parameter| parameter.elements()).sum();
            let buffers: u64 = model.buffers(index).iter().map(|buffer| buffer.elements()).sum();
            assert_eq!(buffers, normalised, "{}", layer.name);
        }
    }

    #[test]
    fn names_within_a_layer_are_distinct() {
        for layer in model(18, 208).layers() {
            let names: Vec<&str> = layer.kind.parameters().iter().map(|parameter| parameter.name).collect();
            let distinct: std::collections::HashSet<&&str> = names.iter().collect();
            assert_eq!(distinct.len(), names.len(), "{}: {names:?}", layer.name);
        }
    }

    #[test]
    fn sizes_that_do_not_divide_are_named() {
        let bad = |options: AmoebaNet| build(&options).unwrap_err().violations()[0].field.clone();
        assert_eq!(bad(AmoebaNet { cells: 16, ..AmoebaNet::default() }), "cells");
        assert_eq!(bad(AmoebaNet { filters: 100, ..AmoebaNet::default() }), "filters");
        assert_eq!(bad(AmoebaNet { image_size: 100, ..AmoebaNet::default() }), "image_size");
    }
}
