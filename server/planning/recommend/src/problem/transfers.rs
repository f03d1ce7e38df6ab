//! Whether devices compute while they exchange activations and gradients, and why.
//!
//! What the request says counts, then what its framework does; without one the software that was profiled, and
//! in the end the kind of device. NCCL moves data in a stream of its own, so that nothing keeps a GPU from
//! computing meanwhile: whether it does is the pipeline engine's doing. Most engines wait for what they sent and
//! asked for before the next pass, because its kernels are queued behind it.

use loadmaster_launchers::{framework_named, rules};
use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::training::overlap::Overlap;

/// Whether transfers overlap computing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfers {
    /// Whether they do.
    pub overlap: Overlap,
    /// Why, human-readable: `blocking: …`.
    pub reason: String,
}

impl Transfers {
    fn because(overlap: Overlap, why: &str) -> Self {
        Self { overlap, reason: format!("{overlap}: {why}") }
    }
}

/// Whether transfers overlap computing where devices of these kinds train so many stages each.
pub fn transfers(
    asked: Option<Overlap>,
    framework: Option<Framework>,
    profiled: &str,
    kinds: &[&str],
    virtual_stages: u32,
) -> Transfers {
    if let Some(overlap) = asked {
        return Transfers::because(overlap, "as requested");
    }
    let engine = |framework: Option<Framework>| {
        let engine = rules(framework?).engine?;
        Some(engine.overlap(virtual_stages))
    };
    if let Some((overlap, why)) = engine(framework) {
        return Transfers::because(overlap, why);
    }
    if let Some((overlap, why)) = engine(framework_named(profiled)) {
        return Transfers::because(overlap, &format!("profiled with {profiled}; {why}"));
    }
    of_kinds(kinds)
}

/// What fits runs that were measured on a kind of device better. Where devices of one kind wait, those of the
/// others wait for them; of kinds without such runs nothing is assumed.
fn of_kinds(kinds: &[&str]) -> Transfers {
    let waits = |kind: &&str| GRACE_HOPPER.iter().any(|name| kind.to_lowercase().contains(name));
    if let Some(kind) = kinds.iter().find(|kind| waits(kind)) {
        let why = format!(
            "predictions without communication overlap are more accurate than predictions with overlap, for 14 \
             measured runs of Megatron-DeepSpeed on {kind}"
        );
        return Transfers::because(Overlap::Nothing, &why);
    }
    if let Some(kind) = kinds.iter().find(|kind| !kind.eq_ignore_ascii_case(CPU_KIND)) {
        let why = format!(
            "assumed, because no trial or report on {kind} shows whether communication overlaps with computation. In \
             most frameworks there is no overlap. Set `problem.framework` to use the behavior of the framework"
        );
        return Transfers::because(Overlap::Computing, &why);
    }
    Transfers::because(
        Overlap::Computing,
        "ranks on CPU slots send and receive in separate threads while they compute",
    )
}

/// What drivers and papers call GH200, in lower case.
const GRACE_HOPPER: [&str; 4] = ["gh200", "gh-96", "grace hopper", "grace-hopper"];

#[cfg(test)]
mod tests {
    use super::*;

    fn overlap(framework: Option<Framework>, profiled: &str, kinds: &[&str]) -> Overlap {
        transfers(None, framework, profiled, kinds, 1).overlap
    }

    /// The more is known of what will run, the less is assumed.
    #[test]
    fn request_framework_framework_and_kind_count_in_this_order() {
        let gpipe = Some(Framework::Torchgpipe);
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
        let of = |framework, profiled, kind| transfers(None, framework, profiled, &[kind], 1).reason;
        assert!(
            of(Some(Framework::Deepspeed), "", "cpu").starts_with("blocking: DeepSpeed's pipeline engine")
        );
        let profiled = of(None, "Megatron-DeepSpeed", "A100");
        assert!(
            profiled.starts_with("blocking: profiled with Megatron-DeepSpeed; DeepSpeed's"),
            "{profiled}"
        );
        let unknown = of(None, "", "A100");
        assert!(unknown.starts_with("overlapping: ") && unknown.contains("report on A100"), "{unknown}");
        assert!(of(None, "", "GH200 96 GB").ends_with("runs of Megatron-DeepSpeed on GH200 96 GB"));
        assert!(of(None, "", "cpu").starts_with("overlapping: ranks on CPU slots"));
        let asked = transfers(Some(Overlap::Computing), Some(Framework::Megatron), "", &["A100"], 1);
        assert_eq!(asked.reason, "overlapping: as requested");
    }

    /// Megatron computes meanwhile where stages take turns, and there alone.
    #[test]
    fn megatrons_stages_send_beside_their_turns() {
        let in_turn = |asked, framework, profiled| transfers(asked, framework, profiled, &["A100"], 2);
        for framework in [Framework::Megatron, Framework::MegatronBridge] {
            assert_eq!(overlap(Some(framework), "", &["A100"]), Overlap::Nothing, "{framework}");
            let Transfers { overlap, reason } = in_turn(None, Some(framework), "");
            assert_eq!(overlap, Overlap::Computing, "{framework}");
            assert!(reason.starts_with("overlapping: Megatron's interleaved 1F1B"), "{reason}");
        }
        let profiled = in_turn(None, None, "Megatron-LM").reason;
        assert!(profiled.starts_with("overlapping: profiled with Megatron-LM; Megatron's"), "{profiled}");
        assert_eq!(in_turn(None, Some(Framework::Deepspeed), "").overlap, Overlap::Nothing);
        let asked = in_turn(Some(Overlap::Nothing), Some(Framework::Megatron), "");
        assert_eq!(asked.overlap, Overlap::Nothing);
    }
}
