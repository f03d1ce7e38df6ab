//! The rules: how many layers each of them gives every stage.

use loadmaster_proto::choice;
use loadmaster_proto::training::Optimizer;

use super::block_partition::block_partition;
use super::uniform::{uniform, uniform_weights};
use loadmaster_search::cost::LayerFacts;

/// A rule that cuts a chain for a number of stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// As many layers in each.
    UniformLayers,
    /// As many parameters.
    UniformParameters,
    /// As long a time, by torchgpipe.
    TorchgpipeTime,
    /// As many bytes, by torchgpipe.
    TorchgpipeSize,
}

choice! {
    Rule {
        UniformLayers = "uniform-layers",
        UniformParameters = "uniform-parameters",
        TorchgpipeTime = "torchgpipe-time",
        TorchgpipeSize = "torchgpipe-size",
    }
}

impl Rule {
    /// Layers of each stage, in order.
    ///
    /// # Errors
    /// What the rule needs and is not known, or more stages than layers.
    pub(super) fn cut(
        self,
        facts: &[LayerFacts],
        stages: usize,
        optimizer: &Optimizer,
    ) -> Result<Vec<usize>, String> {
        if stages == 0 || stages > facts.len() {
            return Err(format!("{} layers cannot be cut into {stages} stages", facts.len()));
        }
        match self {
            Self::UniformLayers => Ok(uniform(facts.len(), stages)),
            Self::UniformParameters => {
                let known: Option<Vec<u64>> = facts.iter().map(|layer| layer.parameter_bytes).collect();
                let weights =
                    known.ok_or_else(|| "the parameters of some layers are not known".to_owned())?;
                Ok(uniform_weights(&weights, stages))
            }
            Self::TorchgpipeTime => {
                let known: Option<Vec<f64>> = facts.iter().map(|layer| layer.seconds).collect();
                Ok(block_partition(&known.ok_or_else(|| "the profile has no times".to_owned())?, stages))
            }
            Self::TorchgpipeSize => {
                let scale = parameter_scale(optimizer);
                let size = |layer: &LayerFacts| {
                    Some(layer.activation_bytes? as f64 + scale * layer.parameter_bytes? as f64)
                };
                let known: Option<Vec<f64>> = facts.iter().map(size).collect();
                let sizes = known.ok_or_else(|| "the bytes of single layers are not known".to_owned())?;
                Ok(block_partition(&sizes, stages))
            }
        }
    }
}

/// torchgpipe's `param_scale`: how many times a parameter's bytes its training takes. Its documentation gives 2
/// to 3 for SGD and 4 to 5 for Adam; the parameter, its gradient and its state are 2 and 3, and 4.
pub(super) fn parameter_scale(optimizer: &Optimizer) -> f64 {
    2.0 + optimizer.state_scalars() as f64
}

/// Degrees of Megatron's heuristic in the order in which it tries them: (tensor, pipeline), by their product,
/// tensor shards as far as a node reaches first. The rest are replicas.
pub(super) fn megatron_degrees(devices: u32, per_node: u32, layers: usize) -> Vec<(u32, u32)> {
    let mut degrees = Vec::new();
    let products = (0..u32::BITS).map(|power| 1_u32 << power).take_while(|&product| product <= devices);
    for product in products.filter(|&product| devices.is_multiple_of(product)) {
        let tensors = (0..=product.ilog2()).rev().map(|power| 1_u32 << power);
        for tensor in tensors.filter(|&tensor| tensor <= per_node && per_node.is_multiple_of(tensor)) {
            let pipeline = product / tensor;
            if pipeline as usize <= layers {
                degrees.push((tensor, pipeline));
            }
        }
    }
    degrees
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Vec<LayerFacts> {
        let layer = |seconds, parameters, activations| LayerFacts {
            seconds: Some(seconds),
            parameter_bytes: Some(parameters),
            activation_bytes: Some(activations),
        };
        vec![layer(1.0, 10, 8), layer(1.0, 10, 8), layer(2.0, 50, 1), layer(4.0, 100, 1)]
    }

    /// Each rule balances what its name says.
    #[test]
    fn rules_balance_what_they_are_named_after() {
        let cut = |rule: Rule| rule.cut(&facts(), 2, &Optimizer::default()).unwrap();
        assert_eq!(cut(Rule::UniformLayers), [2, 2]);
        assert_eq!(cut(Rule::UniformParameters), [3, 1]);
        assert_eq!(cut(Rule::TorchgpipeTime), [3, 1]);
        assert_eq!(cut(Rule::TorchgpipeSize).iter().sum::<usize>(), 4);
    }

    /// A rule without its numbers makes no plan, and says which it lacks.
    #[test]
    fn a_rule_without_its_numbers_makes_no_plan() {
        let unknown = [LayerFacts::default(); 3];
        for rule in Rule::ALL {
            let cut = rule.cut(&unknown, 2, &Optimizer::default());
            assert_eq!(cut.is_ok(), rule == Rule::UniformLayers, "{rule:?}");
        }
        assert!(Rule::UniformLayers.cut(&unknown, 4, &Optimizer::default()).is_err());
    }

    /// Tensor shards fill a node before a pipeline begins.
    #[test]
    fn megatron_takes_tensor_shards_within_a_node_first() {
        let degrees = megatron_degrees(16, 4, 12);
        assert_eq!(degrees[..6], [(1, 1), (2, 1), (1, 2), (4, 1), (2, 2), (1, 4)]);
        assert!(degrees.iter().all(|&(tensor, pipeline)| tensor <= 4 && pipeline <= 12));
        assert_eq!(megatron_degrees(6, 6, 12), [(1, 1), (2, 1), (1, 2)]);
    }
}
