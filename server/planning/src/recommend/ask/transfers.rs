//! Whether devices compute while they exchange activations and gradients, and why.
//!
//! What the request says counts, then what its launcher does; without one the framework that was profiled, and
//! in the end the kind of device. NCCL moves data in a stream of its own, so that nothing keeps a GPU from
//! computing meanwhile: whether it does is the pipeline engine's doing. Most engines wait for what they sent and
//! asked for before the next pass, because its kernels are queued behind it.

use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::plan::objective::Launcher;
use loadmaster_proto::training::overlap::Overlap;

/// Whether transfers overlap computing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfers {
    /// Whether they do.
    pub overlap: Overlap,
    /// Why, for people: `blocking: …`.
    pub reason: String,
}

impl Transfers {
    fn because(overlap: Overlap, why: &str) -> Self {
        Self { overlap, reason: format!("{overlap}: {why}") }
    }
}

/// What a launcher's pipeline engine does, under the schedules that its plans have here.
struct PipelineEngine {
    launcher: Launcher,
    /// How frameworks that run it call themselves, in lower case; empty where no profile names it.
    framework: &'static str,
    overlap: Overlap,
    why: &'static str,
    /// Why it computes meanwhile where devices have several stages in turn; none where that changes nothing.
    in_turn: Option<&'static str>,
}

const MEGATRON: &str = "Megatron's 1F1B waits for each batch of sends and receives, and synchronises the device \
                        (its p2p overlap is of interleaved schedules alone)";
const MEGATRON_IN_TURN: &str = "Megatron's interleaved 1F1B sends and receives beside what it computes, but for the passes before its first \
                                backward and behind its last forward one";
const TORCH: &str = "torch.distributed.pipelining waits for sends and receives before the next pass";

const fn engine(
    launcher: Launcher,
    framework: &'static str,
    overlap: Overlap,
    why: &'static str,
) -> PipelineEngine {
    PipelineEngine { launcher, framework, overlap, why, in_turn: None }
}

/// Megatron's own, by whomever it is started.
const fn megatron(launcher: Launcher, framework: &'static str) -> PipelineEngine {
    PipelineEngine {
        in_turn: Some(MEGATRON_IN_TURN),
        ..engine(launcher, framework, Overlap::Nothing, MEGATRON)
    }
}

impl PipelineEngine {
    /// What it does where devices have so many stages each.
    fn does(&self, virtual_stages: u32) -> (Overlap, &'static str) {
        match self.in_turn.filter(|_| virtual_stages > 1) {
            Some(why) => (Overlap::Computing, why),
            None => (self.overlap, self.why),
        }
    }
}

/// The table, a row per launcher that is known. Of frameworks the first row counts that names one: Megatron-DeepSpeed trains
/// with DeepSpeed's engine.
const ENGINES: [PipelineEngine; 10] = [
    engine(
        Launcher::Deepspeed,
        "deepspeed",
        Overlap::Nothing,
        "DeepSpeed's pipeline engine sends and receives synchronously, between its passes",
    ),
    engine(Launcher::Galvatron, "galvatron", Overlap::Nothing, "Galvatron's engine waits as Megatron's does"),
    megatron(Launcher::MegatronBridge, "nemo"),
    engine(Launcher::Accelerate, "accelerate", Overlap::Nothing, MEGATRON),
    megatron(Launcher::Megatron, "megatron"),
    engine(Launcher::Torchtitan, "torchtitan", Overlap::Nothing, TORCH),
    engine(Launcher::TorchPipelining, "torch.distributed.pipelining", Overlap::Nothing, TORCH),
    engine(
        Launcher::ColossalAi,
        "colossal",
        Overlap::Nothing,
        "Colossal-AI waits for sends and receives before the next pass",
    ),
    engine(
        Launcher::Torchgpipe,
        "torchgpipe",
        Overlap::Computing,
        "torchgpipe copies between devices in streams of their own",
    ),
    engine(
        Launcher::Trainer,
        "trainer",
        Overlap::Nothing,
        "Trainer has no stages that would exchange anything",
    ),
];

/// Whether transfers overlap computing where devices of these kinds train so many stages each.
pub fn transfers(
    asked: Option<Overlap>,
    launcher: Option<Launcher>,
    framework: &str,
    kinds: &[&str],
    virtual_stages: u32,
) -> Transfers {
    if let Some(overlap) = asked {
        return Transfers::because(overlap, "as the request says");
    }
    if let Some(engine) = ENGINES.iter().find(|engine| Some(engine.launcher) == launcher) {
        let (overlap, why) = engine.does(virtual_stages);
        return Transfers::because(overlap, why);
    }
    if let Some(engine) = engine_of(framework) {
        let (overlap, why) = engine.does(virtual_stages);
        return Transfers::because(overlap, &format!("profiled with {framework}; {why}"));
    }
    of_kinds(kinds)
}

/// The engine that a profile's framework trains with; none where it is not known.
fn engine_of(framework: &str) -> Option<&'static PipelineEngine> {
    let named = framework.to_lowercase();
    ENGINES.iter().find(|engine| named.contains(engine.framework))
}

/// Returns the launcher of a profile's framework, as documents name it; none where it is not known.
pub(in crate::recommend) fn launcher_of(framework: &str) -> Option<Launcher> {
    engine_of(framework).map(|engine| engine.launcher)
}

/// What fits runs that were measured on a kind of device better. Where devices of one kind wait, those of the
/// others wait for them; of kinds without such runs nothing is assumed.
fn of_kinds(kinds: &[&str]) -> Transfers {
    let waits = |kind: &&str| GRACE_HOPPER.iter().any(|name| kind.to_lowercase().contains(name));
    if let Some(kind) = kinds.iter().find(|kind| waits(kind)) {
        let why = format!(
            "on {kind} it is nearer to the times of 14 runs that were measured, of Megatron-DeepSpeed"
        );
        return Transfers::because(Overlap::Nothing, &why);
    }
    if let Some(kind) = kinds.iter().find(|kind| !kind.eq_ignore_ascii_case(CPU_KIND)) {
        let why = format!(
            "no runs are known that were measured on {kind}; Megatron, DeepSpeed and most others block: name the \
             launcher"
        );
        return Transfers::because(Overlap::Computing, &why);
    }
    Transfers::because(Overlap::Computing, "ranks on CPU slots send and receive in threads of their own")
}

/// What drivers and papers call GH200, in lower case.
const GRACE_HOPPER: [&str; 4] = ["gh200", "gh-96", "grace hopper", "grace-hopper"];

#[cfg(test)]
mod tests {
    use super::*;

    fn overlap(launcher: Option<Launcher>, framework: &str, kinds: &[&str]) -> Overlap {
        transfers(None, launcher, framework, kinds, 1).overlap
    }

    /// The more is known of what will run, the less is assumed.
    #[test]
    fn request_launcher_framework_and_kind_count_in_this_order() {
        let gpipe = Some(Launcher::Torchgpipe);
        assert_eq!(transfers(Some(Overlap::Nothing), gpipe, "", &["cpu"], 1).overlap, Overlap::Nothing);
        assert_eq!(overlap(gpipe, "DeepSpeed", &["GH200 96 GB"]), Overlap::Computing);
        assert_eq!(overlap(None, "Megatron-DeepSpeed", &["cpu"]), Overlap::Nothing);
        assert_eq!(overlap(None, "libtorch", &["cpu", "cpu"]), Overlap::Computing);
        assert_eq!(overlap(None, "", &["NVIDIA GH200 480GB"]), Overlap::Nothing);
        assert_eq!(overlap(None, "", &["cpu", "GH-96"]), Overlap::Nothing);
        assert_eq!(overlap(None, "torch", &["cpu", "NVIDIA H100 80GB HBM3"]), Overlap::Computing);
    }

    /// An answer says which it is and why; a kind of which nothing is known is named.
    #[test]
    fn every_choice_has_its_reason() {
        let of = |launcher, framework, kind| transfers(None, launcher, framework, &[kind], 1).reason;
        assert!(
            of(Some(Launcher::Deepspeed), "", "cpu").starts_with("blocking: DeepSpeed's pipeline engine")
        );
        let framework = of(None, "Megatron-DeepSpeed", "A100");
        assert!(
            framework.starts_with("blocking: profiled with Megatron-DeepSpeed; DeepSpeed's"),
            "{framework}"
        );
        let unknown = of(None, "", "A100");
        assert!(unknown.starts_with("overlapping: ") && unknown.contains("measured on A100"), "{unknown}");
        assert!(of(None, "", "GH200 96 GB").starts_with("blocking: on GH200 96 GB"));
        assert!(of(None, "", "cpu").starts_with("overlapping: ranks on CPU slots"));
        let asked = transfers(Some(Overlap::Computing), Some(Launcher::Megatron), "", &["A100"], 1);
        assert_eq!(asked.reason, "overlapping: as the request says");
    }

    /// Megatron computes meanwhile where stages take turns, and there alone.
    #[test]
    fn megatrons_stages_send_beside_their_turns() {
        let in_turn = |asked, launcher, framework| transfers(asked, launcher, framework, &["A100"], 2);
        for launcher in [Launcher::Megatron, Launcher::MegatronBridge] {
            assert_eq!(overlap(Some(launcher), "", &["A100"]), Overlap::Nothing, "{launcher}");
            let Transfers { overlap, reason } = in_turn(None, Some(launcher), "");
            assert_eq!(overlap, Overlap::Computing, "{launcher}");
            assert!(reason.starts_with("overlapping: Megatron's interleaved 1F1B"), "{reason}");
        }
        let profiled = in_turn(None, None, "Megatron-LM").reason;
        assert!(profiled.starts_with("overlapping: profiled with Megatron-LM; Megatron's"), "{profiled}");
        assert_eq!(in_turn(None, Some(Launcher::Deepspeed), "").overlap, Overlap::Nothing);
        let asked = in_turn(Some(Overlap::Nothing), Some(Launcher::Megatron), "");
        assert_eq!(asked.overlap, Overlap::Nothing);
    }

    /// Every launcher has one row, whose name no earlier row takes.
    #[test]
    fn the_table_has_every_launcher_once() {
        let launchers: std::collections::BTreeSet<String> =
            ENGINES.iter().map(|engine| engine.launcher.to_string()).collect();
        assert_eq!(launchers.len(), ENGINES.len());
        for engine in &ENGINES {
            let first = ENGINES.iter().find(|other| engine.framework.contains(other.framework));
            assert_eq!(first.map(|first| first.launcher), Some(engine.launcher), "{}", engine.framework);
        }
    }
}
