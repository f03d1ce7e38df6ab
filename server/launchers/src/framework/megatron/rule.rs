//! How a plan updates weights, in the words of Megatron's family: its state is among the plan's bytes.

use loadmaster_proto::training::Optimizer;

/// An update rule; its step size is no part of a plan.
pub(in crate::framework) struct Rule {
    /// `sgd` or `adam`.
    pub(in crate::framework) name: &'static str,
    /// What it is told, as Megatron's configuration calls it.
    pub(in crate::framework) settings: Vec<(&'static str, f64)>,
    /// Weights decay beside the update rather than through their gradients. Of SGD without momentum that is the same.
    pub(in crate::framework) decouples_decay: bool,
}

impl Rule {
    /// That of a plan.
    pub(in crate::framework) fn of(optimizer: Optimizer) -> Self {
        let decay = |weight_decay: f64| ("weight_decay", weight_decay);
        let adam = |beta1: f64, beta2: f64, epsilon: f64, weight_decay: f64| {
            vec![("adam_beta1", beta1), ("adam_beta2", beta2), ("adam_eps", epsilon), decay(weight_decay)]
        };
        match optimizer {
            Optimizer::Sgd { momentum, weight_decay, .. } => Self {
                name: "sgd",
                settings: vec![("sgd_momentum", momentum), decay(weight_decay)],
                decouples_decay: false,
            },
            Optimizer::Adam { beta1, beta2, epsilon, weight_decay, .. } => {
                let settings = adam(beta1, beta2, epsilon, weight_decay);
                Self { name: "adam", settings, decouples_decay: false }
            }
            Optimizer::AdamW { beta1, beta2, epsilon, weight_decay, .. } => {
                let settings = adam(beta1, beta2, epsilon, weight_decay);
                Self { name: "adam", settings, decouples_decay: true }
            }
        }
    }

    /// Whether it is what Megatron's flags say, whose Adam is `AdamW`: without decay both are one.
    pub(in crate::framework) fn is_said_by_flags(&self) -> bool {
        self.name == "sgd" || self.decouples_decay || self.settings.contains(&("weight_decay", 0.0))
    }
}
