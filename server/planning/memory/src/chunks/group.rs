//! Choices that differ in visits alone.

use loadmaster_proto::chunks::host::HostCopy;

use super::layout_evaluation::LayoutEvaluation;
use super::question::ChunkQuestion;

/// Choices that differ in visits alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChoiceGroup<'a> {
    pub(super) laid: &'a LayoutEvaluation<'a>,
    pub(super) host_copy: HostCopy,
    pub(super) on_device: usize,
    /// Whether none of those that differ in nothing else has fewer on the device.
    pub(super) is_first: bool,
}

impl<'a> ChoiceGroup<'a> {
    /// All that there is room for.
    pub(super) fn all(laid: &'a [LayoutEvaluation<'a>]) -> Vec<Self> {
        let mut groups = Vec::new();
        for laid in laid {
            let Some(most) = laid.most_that_fit() else { continue };
            for &host_copy in &laid.question.choices.host_copies {
                let Some(fewest) = laid.fewest_for_host(host_copy) else { continue };
                let counts = counts(laid.question, (fewest, most)).into_iter().enumerate();
                groups.extend(counts.map(|(index, on_device)| Self {
                    laid,
                    host_copy,
                    on_device,
                    is_first: index == 0,
                }));
            }
        }
        groups
    }

    /// No visits take fewer seconds.
    pub(super) fn bound(&self) -> f64 {
        self.laid.bound(self.on_device)
    }

    /// The same without what micro-batches have on the host.
    pub(super) fn chunk_bound(&self) -> f64 {
        self.laid.chunk_bound(self.on_device)
    }
}

/// How many chunks' state may be on the device: the fewest and the most that there is room for, and powers of two between.
fn counts(question: &ChunkQuestion, (fewest, most): (usize, usize)) -> Vec<usize> {
    if fewest > most {
        return Vec::new();
    }
    if question.choices.on_device.is_some() {
        return vec![most];
    }
    let powers = (0..usize::BITS).map(|power| 1 << power).take_while(|&count: &usize| count < most);
    let powers = powers.filter(|&count| count > fewest);
    let mut counts: Vec<usize> = [fewest].into_iter().chain(powers).chain([most]).collect();
    counts.dedup();
    counts
}
