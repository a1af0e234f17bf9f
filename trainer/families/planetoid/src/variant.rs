//! The methods that classify nodes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What predicts the class of a node (Yang, Cohen and Salakhutdinov 2016; Yang 2019, §3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// Features and an embedding of each node, which contexts train too (Planetoid-T); without any feature, `graph`.
    Transductive,
    /// Features alone; contexts train the embedding that is computed of them (Planetoid-I).
    Inductive,
    /// The embedding alone (Planetoid-G).
    Graph,
    /// A linear softmax of the features, without the graph.
    Features,
    /// The embedding as contexts leave it, with a linear softmax on top.
    GraphEmbedding,
    /// Labels that spread over edges, clamped where they are known (Zhu et al. 2003).
    LabelPropagation,
    /// Labels that spread over edges, with normalised weights and without clamps (Zhou et al. 2004).
    LabelSpreading,
    /// A linear softmax of the features whose outputs are to agree along edges (Belkin et al. 2006).
    Manireg,
    /// A network of the features with an embedding that is to agree along edges (Weston et al. 2012).
    Semiemb,
}

impl Variant {
    /// Whether nodes have embeddings of their own, as parameters.
    pub fn has_embedding(self) -> bool {
        matches!(self, Self::Transductive | Self::Graph | Self::GraphEmbedding)
    }

    /// Whether contexts train it.
    pub fn has_contexts(self) -> bool {
        self.has_embedding() || self == Self::Inductive
    }

    /// Whether it pays for differences along edges.
    pub fn has_penalty(self) -> bool {
        matches!(self, Self::Manireg | Self::Semiemb)
    }

    /// Whether it spreads labels and trains nothing.
    pub fn spreads(self) -> bool {
        matches!(self, Self::LabelPropagation | Self::LabelSpreading)
    }

    /// Whether classes are predicted from features.
    pub fn reads_features(self) -> bool {
        !self.spreads() && !matches!(self, Self::Graph | Self::GraphEmbedding)
    }

    /// Whether it predicts classes of nodes by their features alone, of unseen ones too.
    pub fn is_inductive(self) -> bool {
        self.reads_features() && !self.has_embedding()
    }

    /// Whether it has layers between embedding or features and the classes.
    pub fn has_hidden(self) -> bool {
        matches!(self, Self::Transductive | Self::Inductive | Self::Semiemb)
    }
}
