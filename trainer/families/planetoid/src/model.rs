//! The networks, in the order of Yang 2019, §3.3.3.

use segue_kernels::{Init, ParameterSpec, Parameters};
use tch::{Kind, Reduction, Tensor};

use super::config::{Contexts, Hidden, PlanetoidConfig};
use super::features::Bags;
use super::variant::Variant;

/// Names of parameters.
const LABELS: &str = "labels";
const CONTEXT_WEIGHT: &str = "contexts.weight";
const CONTEXT_BIAS: &str = "contexts.bias";
/// Bias of the embedding that contexts are predicted from, where it is computed of features: the public program shares the weights alone.
const CONTEXT_EMBEDDING_BIAS: &str = "embedding.context_bias";

/// Nodes whose classes are asked for.
pub struct Nodes {
    /// Their numbers, `[nodes]`, i64; nobody looks at them where classes are predicted by features alone.
    pub numbers: Tensor,
    /// Their features, for those who read any.
    pub features: Option<Bags>,
}

/// Scores of classes, `[nodes, classes]` each.
pub struct Scores {
    /// Those that classes are predicted by.
    pub classes: Tensor,
    /// Those of the layers before, where these are softmaxes over classes.
    pub layers: Vec<Tensor>,
}

/// A model of any variant.
pub struct Network {
    /// What it is.
    pub config: PlanetoidConfig,
    /// Its weights.
    pub parameters: Parameters,
}

/// Uniform in ±√(6 / (in + out)) (Glorot and Bengio 2010).
fn glorot(name: &str, shape: [usize; 2]) -> ParameterSpec {
    let range = (6.0 / (shape[0] + shape[1]).max(1) as f64).sqrt();
    spec(name, &shape, Init::Uniform { range })
}

fn zeros(name: &str, size: usize) -> ParameterSpec {
    spec(name, &[size], Init::Zeros)
}

fn spec(name: &str, shape: &[usize], init: Init) -> ParameterSpec {
    ParameterSpec { name: name.into(), shape: shape.iter().map(|n| *n as i64).collect(), init }
}

/// No number stands for no row.
const NO_PADDING: i64 = -1;
/// A gradient is a list of rows: in a large graph a step touches few.
const AS_LIST: bool = true;

impl Network {
    /// With fresh weights.
    pub fn new(own: &PlanetoidConfig, seed: u64) -> Self {
        Self::with(own.clone(), Parameters::initialise(Self::specs(own), seed, Kind::Float))
    }

    /// With these weights.
    pub fn with(config: PlanetoidConfig, parameters: Parameters) -> Self {
        Self { config, parameters }
    }

    /// Its parameters, without making them. Tables that features are multiplied with are `[in, out]`, others `[out, in]`.
    pub fn specs(config: &PlanetoidConfig) -> Vec<ParameterSpec> {
        let PlanetoidConfig { variant, nodes, features, classes, d_embed, context_nodes, .. } = *config;
        let width = config.hidden_width();
        if variant.spreads() {
            return vec![spec(LABELS, &[nodes, classes], Init::Zeros)];
        }
        let mut specs = Vec::new();
        if variant.has_embedding() {
            let init = Init::Normal { mean: 0.0, std: config.embed_std };
            specs.push(spec("embedding.weight", &[nodes, d_embed], init));
        } else if variant.has_hidden() {
            specs.extend([glorot("embedding.weight", [features, d_embed]), zeros("embedding.bias", d_embed)]);
        }
        if variant.has_contexts() {
            if !variant.has_embedding() {
                specs.push(zeros(CONTEXT_EMBEDDING_BIAS, d_embed));
            }
            // As in the public program: those of a softmax like a layer, those among negative ones like embeddings.
            match config.contexts {
                Contexts::Softmax => specs.extend([
                    glorot(CONTEXT_WEIGHT, [context_nodes, d_embed]),
                    zeros(CONTEXT_BIAS, context_nodes),
                ]),
                Contexts::Negative => {
                    let init = Init::Normal { mean: 0.0, std: config.embed_std };
                    specs.push(spec(CONTEXT_WEIGHT, &[context_nodes, d_embed], init));
                }
            }
        }
        if variant.has_hidden() {
            specs.extend([
                glorot("hidden.features.weight", [features, width]),
                zeros("hidden.features.bias", width),
                glorot("hidden.embedding.weight", [width, d_embed]),
                zeros("hidden.embedding.bias", width),
            ]);
        }
        let output = match variant {
            Variant::Features | Variant::Manireg => [features, classes],
            _ if variant.has_hidden() => [classes, 2 * width],
            _ => [classes, d_embed],
        };
        specs.extend([glorot("output.weight", output), zeros("output.bias", classes)]);
        specs
    }

    /// A mask of the parameters that a supervised step updates, and one of those that steps of contexts or penalties update.
    pub fn reached(&self) -> [Vec<bool>; 2] {
        let variant = self.config.variant;
        let of_contexts = |name: &str| name.starts_with("contexts.") || name == CONTEXT_EMBEDDING_BIAS;
        let of_embedding = |name: &str| name.starts_with("embedding.") && name != CONTEXT_EMBEDDING_BIAS;
        let keeps = !self.moves_embedding();
        let supervised = |name: &str| !(of_contexts(name) || keeps && of_embedding(name));
        let contexts = |name: &str| match variant {
            Variant::Manireg => true,
            Variant::Semiemb => of_embedding(name),
            // The public program gives contexts a bias of their own.
            Variant::Inductive => of_contexts(name) || name == "embedding.weight",
            _ => of_contexts(name) || of_embedding(name),
        };
        let mask =
            |of: &dyn Fn(&str) -> bool| self.parameters.specs().iter().map(|spec| of(&spec.name)).collect();
        [mask(&supervised), mask(&contexts)]
    }

    /// Whether supervised steps change the embedding.
    fn moves_embedding(&self) -> bool {
        self.config.update_embedding && self.config.variant != Variant::GraphEmbedding
    }

    /// e as classes are predicted from it: `[nodes, d_embed]`.
    fn of_classes(&self, nodes: &Nodes) -> Tensor {
        let embedding = self.embedding(nodes);
        if self.moves_embedding() { embedding } else { embedding.detach() }
    }

    /// `x W + b` for sparse rows x.
    fn of_features(&self, features: &Bags, layer: &str, bias: &str) -> Tensor {
        features.times(&self.parameters.get(&format!("{layer}.weight"))) + self.parameters.get(bias)
    }

    fn dense(&self, x: &Tensor, layer: &str) -> Tensor {
        let [weight, bias] = ["weight", "bias"].map(|part| self.parameters.get(&format!("{layer}.{part}")));
        self.parameters.kernels().linear(x, &weight, Some(&bias))
    }

    fn features<'a>(&self, nodes: &'a Nodes) -> &'a Bags {
        match &nodes.features {
            Some(features) => features,
            None => unreachable!("whoever asks a model that reads features gives them"),
        }
    }

    /// e: the embedding of each node, or what is computed of its features: `[nodes, d_embed]`.
    pub fn embedding(&self, nodes: &Nodes) -> Tensor {
        match self.config.variant.has_embedding() {
            true => self.embedding_rows(&nodes.numbers),
            false => self.of_features(self.features(nodes), "embedding", "embedding.bias").relu(),
        }
    }

    fn embedding_rows(&self, numbers: &Tensor) -> Tensor {
        self.rows("embedding.weight", numbers)
    }

    /// Rows of a table, of which no others get a gradient: `[numbers, d_embed]`.
    fn rows(&self, table: &str, numbers: &Tensor) -> Tensor {
        Tensor::embedding(&self.parameters.get(table), numbers, NO_PADDING, false, AS_LIST)
    }

    /// e as contexts are predicted from it: `[nodes, d_embed]`.
    pub fn anchors(&self, nodes: &Nodes) -> Tensor {
        match self.config.variant.has_embedding() {
            true => self.embedding_rows(&nodes.numbers),
            false => self.of_features(self.features(nodes), "embedding", CONTEXT_EMBEDDING_BIAS).relu(),
        }
    }

    /// w and b of all contexts, `[context_nodes, d_embed]` and `[context_nodes]`; no b where contexts are told from drawn ones.
    pub fn contexts(&self) -> (Tensor, Option<Tensor>) {
        (self.parameters.get(CONTEXT_WEIGHT), self.parameters.find(CONTEXT_BIAS))
    }

    /// w of some contexts: `[numbers, d_embed]`.
    pub fn context_rows(&self, numbers: &Tensor) -> Tensor {
        self.rows(CONTEXT_WEIGHT, numbers)
    }

    /// Scores of the classes of nodes, eq. 3.13 and 3.14.
    pub fn scores(&self, nodes: &Nodes) -> Scores {
        let config = &self.config;
        match config.variant {
            Variant::LabelPropagation | Variant::LabelSpreading => {
                unreachable!("labels that spread are no scores")
            }
            Variant::Features | Variant::Manireg => {
                let classes = self.of_features(self.features(nodes), "output", "output.bias");
                Scores { classes, layers: Vec::new() }
            }
            Variant::Graph | Variant::GraphEmbedding => {
                Scores { classes: self.dense(&self.of_classes(nodes), "output"), layers: Vec::new() }
            }
            Variant::Transductive | Variant::Inductive | Variant::Semiemb => {
                let of_x = self.of_features(self.features(nodes), "hidden.features", "hidden.features.bias");
                let of_e = self.dense(&self.of_classes(nodes), "hidden.embedding");
                let layers = match config.hidden {
                    Hidden::Softmax => [&of_x, &of_e].map(|scores| scores.softmax(-1, None::<Kind>)),
                    Hidden::Relu => [&of_x, &of_e].map(Tensor::relu),
                };
                let classes = self.dense(&Tensor::cat(&layers, 1), "output");
                Scores { classes, layers: if config.layer_losses { vec![of_x, of_e] } else { Vec::new() } }
            }
        }
    }

    /// L_s times the number of nodes: cross-entropies of their classes, `labels`, `[nodes]`, i64. The first is that of the model, the second
    /// the sum of those of its layers, 0 where these have none; scalars.
    pub fn supervised(&self, nodes: &Nodes, labels: &Tensor) -> (Tensor, Tensor) {
        let Scores { classes, layers } = self.scores(nodes);
        let loss =
            |scores: &Tensor| scores.cross_entropy_loss::<&Tensor>(labels, None, Reduction::Sum, -100, 0.0);
        let own = loss(&classes);
        let of_layers = layers.iter().map(loss).fold(own.zeros_like(), |sum, loss| sum + loss);
        (own, of_layers)
    }

    /// What is to agree along edges: outputs, `[nodes, classes]`, or the embedding, `[nodes, d_embed]`.
    pub fn agreeing(&self, nodes: &Nodes) -> Tensor {
        match self.config.variant {
            Variant::Semiemb => self.embedding(nodes),
            _ => self.scores(nodes).classes.softmax(-1, None::<Kind>),
        }
    }

    /// Labels as they have spread: `[nodes, classes]`.
    pub fn labels(&self) -> Tensor {
        self.parameters.get(LABELS)
    }

    /// Probabilities of the classes of nodes, `[nodes, classes]`, without a graph. Of labels that spread, the part of each of what has reached
    /// a node; `prior`, `[classes]`, where nothing has.
    pub fn probabilities(&self, nodes: &Nodes, prior: &Tensor) -> Tensor {
        tch::no_grad(|| {
            if !self.config.variant.spreads() {
                return self.scores(nodes).classes.softmax(-1, None::<Kind>);
            }
            let reached = self.labels().index_select(0, &nodes.numbers);
            let total = reached.sum_dim_intlist(1, true, None::<Kind>); // [nodes, 1]
            prior.where_self(&total.le(0.0), &(&reached / &total))
        })
    }
}

#[cfg(test)]
mod tests {
    use segue_graph::SparseRows;

    use super::super::toy;
    use super::*;

    fn matrix(rows: i32, columns: i32, f: impl Fn(i32, i32) -> f64) -> Tensor {
        let values: Vec<f64> =
            (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))).map(|(i, j)| f(i, j)).collect();
        Tensor::from_slice(&values).view([i64::from(rows), i64::from(columns)])
    }

    fn toy_network() -> Network {
        let config = PlanetoidConfig {
            hidden: Hidden::Relu,
            layer_losses: false,
            d_hidden: 2,
            d_embed: 2,
            nodes: 5,
            features: 3,
            classes: 2,
            context_nodes: 5,
            ..Default::default()
        };
        let specs = Network::specs(&config);
        let tensors = specs.iter().map(|spec| match spec.name.as_str() {
            "embedding.weight" => toy::tables().0,
            // Wx, of which features are multiplied with the transposed.
            "hidden.features.weight" => matrix(3, 2, |j, i| f64::from(i - j).sin()),
            "hidden.embedding.weight" => matrix(2, 2, |i, j| f64::from(i + j).cos()),
            "output.weight" => matrix(2, 4, |k, j| f64::from(1 + 4 * k + j).sin()),
            _ => Tensor::zeros(&spec.shape, (Kind::Double, tch::Device::Cpu)),
        });
        let tensors = tensors.collect();
        Network::with(config, Parameters::from_tensors(specs, tensors, Kind::Double))
    }

    fn toy_nodes() -> Nodes {
        let mut rows = SparseRows::new(3);
        for i in 0..5u32 {
            rows.push((0..3).filter(|j| (i + j) % 3 == 0).map(|j| (j, 1.0))).unwrap();
        }
        Nodes {
            numbers: Tensor::from_slice(&[0i64, 1, 2, 3]),
            features: Some(Bags::of(&rows, &[0, 1, 2, 3])),
        }
    }

    /// Row P7.
    #[test]
    fn the_supervised_loss_of_the_toy_is_golden() {
        let labels = Tensor::from_slice(&[0i64, 0, 0, 1]);
        let (loss, of_layers) = toy_network().supervised(&toy_nodes(), &labels);
        assert!(
            (loss.double_value(&[]) / 4.0 - 1.280_792_469).abs() < 1e-9,
            "{}",
            loss.double_value(&[]) / 4.0
        );
        assert_eq!(of_layers.double_value(&[]), 0.0);
    }

    /// Layer losses are the cross-entropies of the two softmax layers themselves.
    /// Row P7.
    #[test]
    fn softmax_layers_are_classifiers_of_their_own() {
        let mut network = toy_network();
        (network.config.hidden, network.config.layer_losses) = (Hidden::Softmax, true);
        let labels = Tensor::from_slice(&[0i64, 0, 0, 1]);
        let (_, of_layers) = network.supervised(&toy_nodes(), &labels);
        let x = matrix(4, 3, |i, j| f64::from(u8::from((i + j) % 3 == 0)));
        let e = toy::tables().0.narrow(0, 0, 4);
        let expected: f64 = [
            x.matmul(&matrix(3, 2, |j, i| f64::from(i - j).sin())),
            e.matmul(&matrix(2, 2, |i, j| f64::from(i + j).cos()).tr()),
        ]
        .iter()
        .map(|scores| {
            -scores
                .log_softmax(1, None::<Kind>)
                .gather(1, &labels.unsqueeze(1), false)
                .sum(None::<Kind>)
                .double_value(&[])
        })
        .sum();
        assert!((of_layers.double_value(&[]) - expected).abs() < 1e-12);
    }

    /// Row P9.
    #[test]
    fn steps_of_contexts_and_supervised_ones_share_the_embedding_alone() {
        for (variant, update_embedding, expected) in [
            (Variant::Transductive, true, vec!["embedding.weight"]),
            (Variant::Transductive, false, vec![]),
            (Variant::Graph, true, vec!["embedding.weight"]),
            (Variant::Graph, false, vec![]),
            (Variant::Inductive, true, vec!["embedding.weight"]),
            (Variant::GraphEmbedding, true, vec![]),
            (Variant::Semiemb, true, vec!["embedding.weight", "embedding.bias"]),
            (Variant::Manireg, true, vec!["output.weight", "output.bias"]),
        ] {
            let config = PlanetoidConfig {
                variant,
                update_embedding,
                nodes: 5,
                features: 3,
                classes: 2,
                context_nodes: 4,
                ..Default::default()
            };
            let specs = Network::specs(&config);
            let network = Network::with(config, Parameters::initialise(specs, 1, Kind::Float));
            let [supervised, contexts] = network.reached();
            let names = network.parameters.specs().iter().map(|spec| spec.name.as_str());
            let both: Vec<&str> = names
                .zip(supervised.iter().zip(&contexts))
                .filter(|(_, (a, b))| **a && **b)
                .map(|(name, _)| name)
                .collect();
            assert_eq!(both, expected, "{variant:?}");
            assert!(supervised.iter().zip(&contexts).all(|(a, b)| *a || *b), "{variant:?}");
        }
    }
}
