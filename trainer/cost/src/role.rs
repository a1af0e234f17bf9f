//! What parameters are for: how they are counted, when their gradients are complete, and when they are read.

use segue_kernels::ParameterSpec;
use serde::Serialize;

/// What a parameter is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A table that tokens are read with.
    Embedding,
    /// From the width of a cluster of words to that of the model.
    InputProjection,
    /// Of one layer, numbered from 0.
    Layer(usize),
    /// What all layers share.
    Shared,
    /// From the width of the model to that of a cluster of words.
    OutputProjection,
    /// What tokens are predicted with.
    Output,
    /// Trained beside the model: the head of a second loss.
    Head,
    /// Of a model that is not of words.
    Other,
}

impl Role {
    /// The layer of a parameter whose name is `stem`, a number, a dot, and more.
    pub fn of_layer(name: &str, stem: &str) -> Option<Self> {
        let (number, _) = name.strip_prefix(stem)?.split_once('.')?;
        number.parse().ok().map(Self::Layer)
    }

    /// When its gradient is complete, as a fraction of backward, which begins with the output layer and takes the fraction `output`
    /// for it, then goes from the last of `layers` to the first; what all layers share and what reads the input is complete at its end.
    pub fn ready(self, output: f64, layers: f64) -> f64 {
        match self {
            Self::Output | Self::OutputProjection | Self::Head => output,
            Self::Layer(layer) => {
                output + (1.0 - output) * ((layers - layer as f64) / layers).clamp(0.0, 1.0)
            }
            Self::Embedding | Self::InputProjection | Self::Shared | Self::Other => 1.0,
        }
    }

    /// When a forward pass reads it first, as a fraction of the pass, which ends with the output layer and takes the fraction `output` for it.
    pub fn read(self, output: f64, layers: f64) -> f64 {
        match self {
            Self::Output | Self::OutputProjection | Self::Head => 1.0 - output,
            Self::Layer(layer) => (1.0 - output) * (layer as f64 / layers).clamp(0.0, 1.0),
            Self::Embedding | Self::InputProjection | Self::Shared | Self::Other => 0.0,
        }
    }
}

/// Parameters by part of the model. A tensor that serves twice counts once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ParameterParts {
    /// Tables of the input.
    pub embedding: u64,
    /// Projections between the widths of clusters and the model, of input and output.
    pub projections: u64,
    /// Attention, recurrent cells and feed-forward, with biases u, v and b, learned positions and codes of segments.
    pub layers: u64,
    /// Biases and cluster rows of the output, and its tables where they are not the input's.
    pub softmax: u64,
    /// What is trained beside the model: the head of the next-sentence loss. All of a model that is not of words.
    pub head: u64,
}

impl ParameterParts {
    /// Counts parameters, of each of which `roles` says what it is for.
    pub fn of(specs: &[ParameterSpec], roles: &[Role]) -> Self {
        let mut counts = Self::default();
        for (spec, role) in specs.iter().zip(roles) {
            let count = match role {
                Role::Embedding => &mut counts.embedding,
                Role::InputProjection | Role::OutputProjection => &mut counts.projections,
                Role::Layer(_) | Role::Shared => &mut counts.layers,
                Role::Output => &mut counts.softmax,
                Role::Head | Role::Other => &mut counts.head,
            };
            *count += spec.numel() as u64;
        }
        counts
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.embedding + self.projections + self.layers + self.softmax + self.head
    }
}
