//! Plans with random actions, as a user would write them.

use loadmaster_tests::Sampler;

/// Most micro-batches in flight that slots are drawn from: those of the first of two stages.
const SLOTS: usize = 2;
/// Most steps that a copy has, each way.
const STEPS: usize = 4;

/// A plan to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Drawn {
    /// Layers of each stage, such as `4-3`.
    pub(super) partition: String,
    /// What `--action` takes.
    pub(super) actions: Vec<String>,
}

impl Drawn {
    /// Leaves out the action that a refusal names: `--action: stage 1: actions[0].swap…`. Whether it names one.
    pub(super) fn leave_out(&mut self, refusal: &str) -> bool {
        let named = || {
            let (stage, rest) = refusal.strip_prefix("--action: stage ")?.split_once(": actions[")?;
            let entry: usize = rest.split_once(']')?.0.parse().ok()?;
            let is_own = |action: &String| action.split_once('/').is_some_and(|of| of.0 == stage);
            let mut own = self.actions.iter().enumerate().filter(|(_, action)| is_own(action));
            own.nth(entry).map(|(at, _)| at)
        };
        let named = named();
        named.map(|at| self.actions.remove(at)).is_some()
    }
}

/// A plan of a chain of so many layers, whose stages have so many replicas.
pub(super) fn plan(layers: usize, replicas: &[usize], sampler: &mut Sampler) -> Drawn {
    let stages = replicas.len();
    let sizes = sampler.sizes(layers, stages);
    let mut actions = Vec::new();
    let mut first = 0;
    for (stage, size) in sizes.iter().enumerate() {
        for layer in first..first + size {
            of_micro_batches(stage, layer, stages, sampler, &mut actions);
            for block in ["optimizer", "gradients", "weights"] {
                if sampler.below(4) == 0 {
                    actions.push(format!("{stage}/{layer}={block}:{}", place(stage, stages, sampler)));
                }
            }
        }
        first += size;
    }
    let stage = |(size, replicas): (&usize, &usize)| match replicas {
        1 => size.to_string(),
        several => format!("{size}d{several}"),
    };
    let partition = sizes.iter().zip(replicas).map(stage).collect::<Vec<_>>().join("-");
    Drawn { partition, actions }
}

/// What becomes of what a layer saved: it is kept, computed again, or leaves.
fn of_micro_batches(
    stage: usize,
    layer: usize,
    stages: usize,
    sampler: &mut Sampler,
    actions: &mut Vec<String>,
) {
    // Every stage but the last has that many in flight.
    let has_slots = stage + 1 < stages && sampler.below(3) == 0;
    let slots = if has_slots { format!("@{}", sampler.below(SLOTS)) } else { String::new() };
    match sampler.below(4) {
        0 => {
            actions.push(format!("{stage}/{layer}{slots}=recompute"));
            if sampler.below(2) == 0 {
                actions.push(format!("{stage}/{layer}{slots}=inputs:{}", place(stage, stages, sampler)));
            }
        }
        1 | 2 => {
            actions.push(format!("{stage}/{layer}{slots}=activations:{}", place(stage, stages, sampler)))
        }
        _ => {}
    }
}

/// Where to, with the steps to leave and to come back: the host, a peer, or stripes over two of them.
fn place(stage: usize, stages: usize, sampler: &mut Sampler) -> String {
    let peers: Vec<usize> = (0..stages).filter(|&other| other != stage).collect();
    let to = match (sampler.below(4), peers.as_slice()) {
        (0, [.., _, _]) => {
            let (one, share) = (sampler.below(peers.len() - 1), 10 + sampler.below(80));
            format!("{}@{share}%,{}@{}%", peers[one], peers[one + 1], 100 - share)
        }
        (0 | 1, _) => peers[sampler.below(peers.len())].to_string(),
        _ => "host".to_owned(),
    };
    format!("{to}:{},{}", sampler.below(STEPS), sampler.below(STEPS))
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::training::actions::StagedAction;

    use super::*;

    /// What a refusal names is left out, and nothing else.
    #[test]
    fn what_is_refused_by_name_is_left_out() {
        let actions = ["0/1=recompute", "1/3=recompute", "1/4=weights:host"].map(str::to_owned).to_vec();
        let mut drawn = Drawn { partition: "3-3".to_owned(), actions };
        assert!(!drawn.leave_out("3-3 does not fit: device 0 needs more"));
        assert!(!drawn.leave_out("--action: stage 1: actions[2].swap.block: is not there"));
        assert!(drawn.leave_out("--action: stage 1: actions[1].swap.block: is weights of layer 4"));
        assert_eq!(drawn.actions, ["0/1=recompute", "1/3=recompute"]);
    }

    /// What is drawn is written as users write it, and every kind is drawn.
    #[test]
    fn what_is_drawn_is_read_as_an_action() {
        let mut sampler = Sampler::new(1);
        let mut all = Vec::new();
        for count in 0..50 {
            let replicas: &[usize] = [&[1, 1][..], &[1, 1, 1, 1], &[2, 1, 1]][count % 3];
            let drawn = plan(9, replicas, &mut sampler);
            let sizes = drawn.partition.split('-').map(|stage| stage.strip_suffix("d2").unwrap_or(stage));
            assert_eq!(sizes.map(|size| size.parse::<usize>().unwrap()).sum::<usize>(), 9);
            assert_eq!(drawn.partition.contains("d2-"), count % 3 == 2);
            all.extend(drawn.actions);
        }
        for action in &all {
            let read: Result<StagedAction, _> = action.parse();
            assert!(read.is_ok(), "{action}");
        }
        for kind in [
            "recompute",
            "inputs:host",
            "=activations:host",
            "optimizer",
            "gradients",
            "weights",
            "%,",
            "@1=",
        ] {
            assert!(all.iter().any(|action| action.contains(kind)), "{kind}");
        }
    }
}
