//! AmoebaNet's cells, operation by operation as torchgpipe lists them.

use loadmaster_proto::model::layer::AmoebaCell;
use tch::Tensor;

use super::layers::Named;

/// By the mean and the (biased) variance of the batch.
pub(super) fn batch_norm(w: &Named<'_>, name: &str, x: &Tensor) -> Tensor {
    let axes = [0_i64, 2, 3];
    let centred = x - x.mean_dim(axes.as_slice(), true, None);
    let variance = centred.square().mean_dim(axes.as_slice(), true, None);
    let channels = |part: &str| w[format!("{name}.{part}").as_str()].reshape([1, -1, 1, 1]);
    centred / (variance + 1e-5).sqrt() * channels("weight") + channels("bias")
}

pub(super) fn forward(cell: AmoebaCell, w: &Named<'_>, inputs: &[Tensor]) -> Vec<Tensor> {
    let conv = |name: &str, x: &Tensor, stride: [i64; 2], padding: [i64; 2]| {
        let weight = &w[format!("{name}.weight").as_str()];
        let convolved = x.clamp_min(0.0).conv2d(weight, None::<&Tensor>, stride, padding, 1, 1);
        batch_norm(w, &format!("{name}.norm"), &convolved)
    };
    let one = |name: &str, x: &Tensor| conv(name, x, [1, 1], [0, 0]);
    let one_by_seven = |name: &str, x: &Tensor| {
        let x = one(&format!("{name}.conv1"), x);
        let x = conv(&format!("{name}.conv2"), &x, [1, 1], [0, 3]);
        let x = conv(&format!("{name}.conv3"), &x, [1, 1], [3, 0]);
        one(&format!("{name}.conv4"), &x)
    };
    let average = |x: &Tensor, stride: i64| x.avg_pool2d(3, stride, 1, false, false, None);

    let (previous, before) = (&inputs[0], inputs.get(1).unwrap_or(&inputs[0]));
    let s0 = one("input1", previous);
    let s1 = if cell.after_reduction {
        let x = before.clamp_min(0.0);
        let half = |name: &str, x: &Tensor| x.conv2d(&w[name], None::<&Tensor>, 2, 0, 1, 1);
        let shifted = x.slice(2, 1, None, 1).slice(3, 1, None, 1).zero_pad2d(0, 1, 0, 1);
        let both = [half("input2.even.weight", &x), half("input2.odd.weight", &shifted)];
        batch_norm(w, "input2.norm", &Tensor::cat(&both, 1))
    } else if cell.channels_before_previous == cell.channels {
        before.shallow_clone()
    } else {
        one("input2", before)
    };

    let output = if cell.reduction {
        let s2 = s0.max_pool2d(2, 2, 0, 1, false) + average(&s0, 2);
        let x = one("operation3.conv1", &s1);
        let x = conv("operation3.conv2", &x, [2, 2], [1, 1]);
        let s3 = &s2 + one("operation3.conv3", &x);
        let s4 = one_by_seven("operation4", &s2) + average(&s2, 1);
        let s5 = &s3 + s1.max_pool2d(2, 2, 0, 1, false);
        let s6 = average(&s2, 1) + one("operation9.conv1", &s3);
        Tensor::cat(&[s4, s5, s6], 1)
    } else {
        let s2 = one("operation0.conv1", &s1) + average(&s1, 1);
        let s3 = &s1 + one_by_seven("operation3", &s0);
        let s4 = one("operation4.conv1", &s0) + one_by_seven("operation5", &s0);
        let s5 = average(&s2, 1) + &s2;
        let s6 = average(&s1, 1) + one("operation9.conv1", &s5);
        Tensor::cat(&[s0, s3, s4, s6], 1)
    };
    let mut outputs = vec![output];
    if !cell.last {
        outputs.push(previous.shallow_clone());
    }
    outputs
}
