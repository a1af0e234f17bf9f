//! What update rules have in common: tables of state for pieces of parameters, counts of updates, and which pieces are updated alike.

use segue_configs::{LayerDecay, OptimConfig};
use segue_kernels::{ParameterSpec, Parameters};
use tch::Tensor;

use super::counts::Counts;
use super::piece::Piece;
use super::update::Update;

/// What an update rule keeps of what it updates.
pub struct State {
    pieces: Vec<Piece>,
    /// By name, each of one tensor a piece.
    tables: Vec<(&'static str, Vec<Tensor>)>,
    groups: Vec<Group>,
    counts: Counts,
}

/// Parameters, or pieces of them, that are updated alike.
pub(super) struct Group {
    pub(super) members: Vec<usize>,
    /// Whether weights decay.
    pub(super) decays: bool,
    /// What layer-wise decay leaves of the rate, or of the gradient.
    pub(super) share: f64,
}

/// Brings parameters that are updated alike together.
pub(super) fn groups(config: &OptimConfig, specs: &[ParameterSpec]) -> Vec<Group> {
    let layers = specs.iter().filter_map(ParameterSpec::layer).max().map_or(0, |last| last + 1);
    let mut groups: Vec<Group> = Vec::new();
    for (i, spec) in specs.iter().enumerate() {
        let decays = !config.no_decay.iter().any(|part| spec.name.contains(part.as_str()));
        let below_last = spec.layer().map_or(0, |layer| (layers - 1 - layer) as i32);
        let share = config.layer_decay.powi(below_last);
        match groups.iter_mut().find(|group| (group.decays, group.share) == (decays, share)) {
            Some(group) => group.members.push(i),
            None => groups.push(Group { members: vec![i], decays, share }),
        }
    }
    groups
}

/// Pieces that one update treats alike.
pub(super) struct Alike {
    /// Their numbers.
    pub members: Vec<usize>,
    /// Learning rate.
    pub lr: f64,
    /// Their gradients are divided by it.
    pub divisor: f64,
    /// Strength of weight decay.
    pub weight_decay: f64,
}

impl State {
    /// Tables of zeros with these names for these pieces of `parameters`, and no update yet.
    pub(super) fn new(
        config: &OptimConfig,
        parameters: &Parameters,
        pieces: Vec<Piece>,
        tables: &[&'static str],
    ) -> Self {
        let zeros = |piece: &Piece| piece.of(&parameters.tensors()[piece.parameter]).detach().zeros_like();
        let tables = tables.iter().map(|name| (*name, pieces.iter().map(zeros).collect())).collect();
        // What is alike is a matter of the whole network: layers count from the last one.
        let mut groups = groups(config, parameters.specs());
        for group in &mut groups {
            let of_group = |i: &usize| group.members.contains(&pieces[*i].parameter);
            group.members = (0..pieces.len()).filter(of_group).collect();
        }
        Self { pieces, tables, groups, counts: Counts::default() }
    }

    /// What is updated.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Tables by name, each of one tensor a piece, in the pieces' order.
    pub fn tables(&self) -> Vec<(&'static str, &[Tensor])> {
        self.tables.iter().map(|(name, tensors)| (*name, tensors.as_slice())).collect()
    }

    /// Table `number`, one tensor a piece.
    pub(super) fn table(&self, number: usize) -> &[Tensor] {
        &self.tables[number].1
    }

    /// Updates made so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Goes on from counts of a checkpoint.
    pub fn restore(&mut self, counts: Counts) {
        self.counts = counts;
    }

    /// Counts an update, before it is made.
    pub(super) fn count(&mut self, parameters: &Parameters, update: &Update) {
        self.counts.advance(parameters.tensors().len(), update.reached);
    }

    /// Updates of piece `i`.
    pub(super) fn updates_of(&self, i: usize) -> u64 {
        self.counts.of(self.pieces[i].parameter)
    }

    /// What an update reaches, and how.
    pub(super) fn parts(&self, config: &OptimConfig, update: &Update) -> Vec<Alike> {
        let is_reached = |&i: &usize| update.reached.is_none_or(|r| r[self.pieces[i].parameter]);
        let part = |group: &Group| {
            let (rate, gradient) = match config.layer_decay_of {
                LayerDecay::Rate => (group.share, 1.0),
                LayerDecay::Gradient => (1.0, group.share),
            };
            Alike {
                members: group.members.iter().copied().filter(is_reached).collect(),
                lr: update.lr * rate,
                divisor: update.divisor / gradient,
                weight_decay: if group.decays { config.weight_decay } else { 0.0 },
            }
        };
        self.groups.iter().map(part).filter(|part| !part.members.is_empty()).collect()
    }

    /// The pieces `members` of `parameters`.
    pub(super) fn weights(&self, parameters: &Parameters, members: &[usize]) -> Vec<Tensor> {
        let piece = |&i: &usize| self.pieces[i].of(&parameters.tensors()[self.pieces[i].parameter]);
        members.iter().map(piece).collect()
    }
}
