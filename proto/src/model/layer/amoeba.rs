//! Cells of AmoebaNet-D (Real et al., 2018), as torchgpipe builds them.
//!
//! A cell brings its two inputs to its number of channels, and applies ten operations in five pairs.
//! Each pair's sum is a further state. The cell concatenates some of the states. torchgpipe's `max_pool_3x3` is
//! an average pooling. So it is here, because the published measurements are of that model.

use serde::{Deserialize, Serialize};

use super::checks::size;
use super::parameters::{Buffer, Parameter, batch_norm, batch_norm_buffers, fan_in, parameter};
use super::{Shape, is_default};
use crate::error::Invalid;

/// A cell of AmoebaNet-D. Two tensors enter it: its predecessor's output and, unless `single_input`,
/// its predecessor's first input. Its output and, unless `last`, its own first input leave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AmoebaCell {
    /// Channels of the predecessor's input.
    pub channels_before_previous: i64,
    /// Channels of the predecessor's output.
    pub channels_previous: i64,
    /// Channels of each state, a multiple of 4.
    pub channels: i64,
    /// Halves rows and columns.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reduction: bool,
    /// The predecessor is a reduction, so its input has twice the rows and columns.
    #[serde(default, skip_serializing_if = "is_default")]
    pub after_reduction: bool,
    /// One tensor enters and serves as both: the cell follows the stem.
    #[serde(default, skip_serializing_if = "is_default")]
    pub single_input: bool,
    /// Only the output leaves: no cell follows.
    #[serde(default, skip_serializing_if = "is_default")]
    pub last: bool,
}

/// What a cell computes from one of its states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// The state itself.
    Identity,
    /// Average of 3 × 3, the padding not counted.
    AveragePool3 {
        /// Step.
        stride: i64,
    },
    /// Maximum of 2 × 2.
    MaxPool2 {
        /// Step.
        stride: i64,
    },
    /// One after the other, each behind a rectifier and before a batch normalisation.
    Convolutions(Vec<CellConvolution>),
}

/// A convolution without a bias and the batch normalisation behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellConvolution {
    names: Names,
    /// Input channels.
    pub in_channels: i64,
    /// Output channels.
    pub out_channels: i64,
    /// Rows and columns of the kernel.
    pub kernel: [i64; 2],
    /// Step down and to the right.
    pub stride: [i64; 2],
    /// Zero padding above and below, left and right.
    pub padding: [i64; 2],
}

/// Names of a convolution's tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Names {
    weight: &'static str,
    norm: [&'static str; 2],
    buffers: [&'static str; 2],
}

macro_rules! names {
    ($stem:literal) => {
        Names {
            weight: concat!($stem, ".weight"),
            norm: [concat!($stem, ".norm.weight"), concat!($stem, ".norm.bias")],
            buffers: [concat!($stem, ".norm.running_mean"), concat!($stem, ".norm.running_variance")],
        }
    };
}

const INPUT1: Names = names!("input1");
const INPUT2: Names = names!("input2");
/// The two halves of a factorised reduction share the normalisation, which goes by `INPUT2`.
const INPUT2_HALVES: [&str; 2] = ["input2.even.weight", "input2.odd.weight"];

/// Per operation that convolves: the names of its convolutions.
const OPERATION0: [Names; 1] = [names!("operation0.conv1")];
const OPERATION3: [Names; 4] = [
    names!("operation3.conv1"),
    names!("operation3.conv2"),
    names!("operation3.conv3"),
    names!("operation3.conv4"),
];
const OPERATION4: [Names; 4] = [
    names!("operation4.conv1"),
    names!("operation4.conv2"),
    names!("operation4.conv3"),
    names!("operation4.conv4"),
];
const OPERATION5: [Names; 4] = [
    names!("operation5.conv1"),
    names!("operation5.conv2"),
    names!("operation5.conv3"),
    names!("operation5.conv4"),
];
const OPERATION9: [Names; 1] = [names!("operation9.conv1")];

impl AmoebaCell {
    /// The states that are concatenated to the output: 0 and 1 are the inputs, the others the sums.
    pub fn concatenated(&self) -> &'static [usize] {
        if self.reduction { &[4, 5, 6] } else { &[0, 3, 4, 6] }
    }

    /// Channels of the output.
    pub fn output_channels(&self) -> i64 {
        let parts = i64::try_from(self.concatenated().len()).unwrap_or(i64::MAX);
        parts.saturating_mul(self.channels)
    }

    /// The ten operations, each with the state that it takes; the sum of each pair is the next state.
    pub fn operations(&self) -> [(usize, Operation); 10] {
        use Operation::Identity;
        let (c, quarter) = (self.channels, self.channels / 4);
        // States 0 and 1 are still as large as the inputs.
        let stride = if self.reduction { 2 } else { 1 };
        let one = |names, step| Operation::Convolutions(vec![conv(names, c, c, [1, 1], step)]);
        let bottleneck = |names: &[Names; 4], step: i64| {
            Operation::Convolutions(vec![
                conv(names[0], c, quarter, [1, 1], [1, 1]),
                conv(names[1], quarter, quarter, [1, 7], [1, step]),
                conv(names[2], quarter, quarter, [7, 1], [step, 1]),
                conv(names[3], quarter, c, [1, 1], [1, 1]),
            ])
        };
        if !self.reduction {
            return [
                (1, one(OPERATION0[0], [1, 1])),
                (1, Operation::AveragePool3 { stride }),
                (1, Identity),
                (0, bottleneck(&OPERATION3, 1)),
                (0, one(OPERATION4[0], [1, 1])),
                (0, bottleneck(&OPERATION5, 1)),
                (2, Operation::AveragePool3 { stride: 1 }),
                (2, Identity),
                (1, Operation::AveragePool3 { stride }),
                (5, one(OPERATION9[0], [1, 1])),
            ];
        }
        let three_by_three = Operation::Convolutions(vec![
            conv(OPERATION3[0], c, quarter, [1, 1], [1, 1]),
            conv(OPERATION3[1], quarter, quarter, [3, 3], [stride, stride]),
            conv(OPERATION3[2], quarter, c, [1, 1], [1, 1]),
        ]);
        [
            (0, Operation::MaxPool2 { stride }),
            (0, Operation::AveragePool3 { stride }),
            (2, Identity),
            (1, three_by_three),
            (2, bottleneck(&OPERATION4, 1)),
            (2, Operation::AveragePool3 { stride: 1 }),
            (3, Identity),
            (1, Operation::MaxPool2 { stride }),
            (2, Operation::AveragePool3 { stride: 1 }),
            (3, one(OPERATION9[0], [1, 1])),
        ]
    }

    /// The convolution that brings the first input to the cell's channels.
    pub fn first_input(&self) -> CellConvolution {
        conv(INPUT1, self.channels_previous, self.channels, [1, 1], [1, 1])
    }

    /// The convolution that brings the second input to the cell's channels, if it has others and no
    /// factorised reduction does it.
    pub fn second_input(&self) -> Option<CellConvolution> {
        let differs = self.channels_before_previous != self.channels;
        (differs && !self.after_reduction)
            .then(|| conv(INPUT2, self.channels_before_previous, self.channels, [1, 1], [1, 1]))
    }

    pub(super) fn check(&self) -> Result<(), Invalid> {
        size("channels_before_previous", self.channels_before_previous)?;
        size("channels_previous", self.channels_previous)?;
        size("channels", self.channels)?;
        if self.channels % 4 != 0 {
            return Err(invalid!("channels", "{} is not a multiple of 4", self.channels));
        }
        if self.single_input && self.after_reduction {
            return Err(Invalid::field(
                "after_reduction",
                "needs two input tensors of different sizes, but single_input uses one tensor for both inputs. Remove \
                 one of the two fields",
            ));
        }
        if self.single_input && self.channels_before_previous != self.channels_previous {
            return Err(Invalid::field(
                "channels_before_previous",
                format!(
                    "differs from channels_previous ({}), but single_input requires equal values. Set both to the same \
                     value",
                    self.channels_previous
                ),
            ));
        }
        Ok(())
    }

    pub(super) fn output_shapes(&self, inputs: &[Shape]) -> Result<Vec<Shape>, String> {
        let expected = if self.single_input { 1 } else { 2 };
        if inputs.len() != expected {
            return Err(format!("{expected} tensors, not {}", inputs.len()));
        }
        let first = inputs.first().map(Vec::as_slice).unwrap_or_default();
        let &[channels, height, width] = first else {
            return Err("channels, height and width".to_owned());
        };
        if channels != self.channels_previous {
            return Err(format!("{} channels", self.channels_previous));
        }
        if let Some(second) = inputs.get(1) {
            let scale = if self.after_reduction { 2 } else { 1 };
            let wanted = [self.channels_before_previous, scale * height, scale * width];
            if *second != wanted {
                return Err(format!("a second input tensor of shape {wanted:?} instead of {second:?}"));
            }
        }
        let scale = if self.reduction { 2 } else { 1 };
        if height % scale != 0 || width % scale != 0 {
            return Err("an even height and width".to_owned());
        }
        let mut outputs = vec![vec![self.output_channels(), height / scale, width / scale]];
        if !self.last {
            outputs.push(first.to_vec());
        }
        Ok(outputs)
    }

    /// Those of the first input, the second, then the operations, in their order.
    pub(super) fn parameters(&self) -> Vec<Parameter> {
        let mut parameters = self.first_input().parameters();
        if self.after_reduction {
            let shape = [self.channels / 2, self.channels_before_previous, 1, 1];
            let init = fan_in(self.channels_before_previous);
            parameters.extend(INPUT2_HALVES.map(|name| parameter(name, &shape, init)));
            parameters.extend(batch_norm(INPUT2.norm, self.channels));
        }
        let rest = self.second_input().into_iter().chain(self.operation_convolutions());
        parameters.extend(rest.flat_map(|convolution| convolution.parameters()));
        parameters
    }

    /// In the order of the parameters.
    pub(super) fn buffers(&self) -> Vec<Buffer> {
        let mut buffers = self.first_input().buffers();
        if self.after_reduction {
            buffers.extend(batch_norm_buffers(INPUT2.buffers, self.channels));
        }
        let rest = self.second_input().into_iter().chain(self.operation_convolutions());
        buffers.extend(rest.flat_map(|convolution| convolution.buffers()));
        buffers
    }

    fn operation_convolutions(&self) -> impl Iterator<Item = CellConvolution> {
        self.operations().into_iter().flat_map(|(_, operation)| match operation {
            Operation::Convolutions(convolutions) => convolutions,
            _ => Vec::new(),
        })
    }
}

impl CellConvolution {
    fn parameters(&self) -> Vec<Parameter> {
        let [rows, columns] = self.kernel;
        let shape = [self.out_channels, self.in_channels, rows, columns];
        let init = fan_in(self.in_channels.saturating_mul(rows * columns));
        let mut parameters = vec![parameter(self.names.weight, &shape, init)];
        parameters.extend(batch_norm(self.names.norm, self.out_channels));
        parameters
    }

    fn buffers(&self) -> Vec<Buffer> {
        batch_norm_buffers(self.names.buffers, self.out_channels).into()
    }
}

/// A convolution whose padding keeps rows and columns, but for the step.
fn conv(
    names: Names,
    in_channels: i64,
    out_channels: i64,
    kernel: [i64; 2],
    stride: [i64; 2],
) -> CellConvolution {
    let padding = kernel.map(|extent| extent / 2);
    CellConvolution { names, in_channels, out_channels, kernel, stride, padding }
}
