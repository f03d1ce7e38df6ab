//! The tensors of a stage, grouped into parameter groups.

use std::ops::Range;

use crate::error::Invalid;
use crate::model::Model;
use crate::training::shard::ShardParameter;
use crate::training::stage::StageConfig;

/// Tensors in the order in which they are laid out. Those of one *parameter group* are never in two chunks.
///
/// ```
/// use loadmaster_proto::chunks::sequence::Sequence;
/// use loadmaster_proto::model::zoo::{Gpt2, Zoo};
///
/// let model = Zoo::Gpt2(Gpt2::default()).build()?;
/// let sequence = Sequence::of_model(&model);
/// assert_eq!(sequence.elements(), model.parameter_count());
/// // Tokens and positions are parameter groups by themselves, weight and bias of a normalisation are one.
/// let groups: Vec<&[u64]> = sequence.atoms().take(3).collect();
/// assert_eq!(groups, [&[50_257 * 768][..], &[1024 * 768], &[768, 768]]);
/// # Ok::<(), loadmaster_proto::error::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Elements of each tensor.
    tensors: Vec<u64>,
    /// Positions of the tensors of each parameter group.
    atoms: Vec<Range<usize>>,
    elements: u64,
}

impl Sequence {
    /// Parameter groups, each with the elements of its tensors.
    ///
    /// # Errors
    /// More elements than can be counted.
    pub fn of_atoms(atoms: impl IntoIterator<Item = Vec<u64>>) -> Result<Self, Invalid> {
        let mut sequence = Self { tensors: Vec::new(), atoms: Vec::new(), elements: 0 };
        for atom in atoms {
            let sum = atom.iter().try_fold(sequence.elements, |sum, &elements| sum.checked_add(elements));
            sequence.elements = sum.ok_or_else(|| {
                Invalid::field("", "has more parameters than a 64-bit number can hold. Use a smaller model")
            })?;
            let first = sequence.tensors.len();
            sequence.tensors.extend(atom);
            sequence.atoms.push(first..sequence.tensors.len());
        }
        Ok(sequence)
    }

    /// What device number `index` of a stage holds: [`Model::rank_parameters`] in their order. A parameter group is
    /// what a layer has of one [module](crate::model::layer::Parameter::module); the copy of a tied weight is one by
    /// itself.
    pub fn of_stage(model: &Model, stage: &StageConfig, index: u32) -> Self {
        let mut sequence = Self { tensors: Vec::new(), atoms: Vec::new(), elements: 0 };
        for layer in model.rank_layers(stage, index) {
            let mut last = None;
            for parameter in &layer {
                let module = parameter.whole.module();
                sequence.push(parameter, last != Some(module));
                last = Some(module);
            }
        }
        sequence
    }

    /// All of a model on one device.
    pub fn of_model(model: &Model) -> Self {
        Self::of_stage(model, &StageConfig::single(0, model.layers().len().saturating_sub(1)), 0)
    }

    fn push(&mut self, parameter: &ShardParameter, opens_atom: bool) {
        let elements = parameter.elements();
        self.tensors.push(elements);
        // A model has at most 10,000 layers of tens of tensors of 2^40 elements.
        self.elements = self.elements.saturating_add(elements);
        match self.atoms.last_mut() {
            Some(atom) if !opens_atom => atom.end = self.tensors.len(),
            _ => self.atoms.push(self.tensors.len() - 1..self.tensors.len()),
        }
    }

    /// Elements of each tensor.
    pub fn tensors(&self) -> &[u64] {
        &self.tensors
    }

    /// Elements of the tensors of each parameter group.
    pub fn atoms(&self) -> impl ExactSizeIterator<Item = &[u64]> {
        self.atoms.iter().map(|atom| &self.tensors[atom.clone()])
    }

    /// Positions of the tensors of some parameter groups that follow each other.
    pub(super) fn tensors_of(&self, atoms: Range<usize>) -> Range<usize> {
        let first = self.atoms.get(atoms.start).map_or(self.tensors.len(), |atom| atom.start);
        let end =
            atoms.end.checked_sub(1).and_then(|last| self.atoms.get(last)).map_or(first, |atom| atom.end);
        first..end.max(first)
    }

    /// Elements of all tensors.
    pub fn elements(&self) -> u64 {
        self.elements
    }
}
