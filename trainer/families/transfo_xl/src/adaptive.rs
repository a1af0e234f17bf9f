//! Adaptive input and adaptive softmax (Grave et al. 2017; Baevski and Auli 2019) as Transformer-XL
//! uses them.

use segue_kernels::libtorch::function;
use segue_kernels::{Init, Kernels, ParameterSpec, Parameters};
use segue_layers::cross_entropy::Words;
use segue_layers::{AdaptiveSoftmax, ByCluster, Cluster, Ids};
use tch::{Device, Kind, Tensor};

use super::config::TransfoXlConfig;

const EMBEDDING: &str = "transformer.word_emb";
const SOFTMAX: &str = "crit";

/// Tables and projections of one model, seen from both ends.
struct Layout<'a> {
    config: &'a TransfoXlConfig,
}

impl Layout<'_> {
    fn clusters(&self) -> usize {
        self.config.cutoffs.len() + 1
    }

    /// One table for all clusters (`div_val` 1), or one for each.
    fn tables(&self) -> usize {
        if self.config.div_val == 1 { 1 } else { self.clusters() }
    }

    /// Embedding width of cluster `i`.
    fn width(&self, i: usize) -> i64 {
        (self.config.embed_width() / self.config.div_val.pow(i as u32)) as i64
    }

    fn rows(&self, table: usize) -> i64 {
        let ends = self.config.cluster_ends();
        if self.config.div_val == 1 {
            self.config.vocab_size as i64
        } else {
            (ends[table + 1] - ends[table]) as i64
        }
    }

    /// Whether cluster `i` is projected between its width and the model's.
    fn projects(&self, i: usize) -> bool {
        let same = self.width(i) == self.config.d_model as i64;
        if self.config.div_val == 1 { !same } else { !same || self.config.proj_same_dim }
    }

    /// Name of the output projection of cluster `i`, which may be the input's.
    fn output_projection(&self, i: usize) -> String {
        let table = if self.config.div_val == 1 { 0 } else { i };
        if self.config.ties_projection(i) {
            format!("{EMBEDDING}.emb_projs.{table}")
        } else {
            format!("{SOFTMAX}.out_projs.{i}")
        }
    }

    fn output_table(&self, table: usize) -> String {
        if self.config.tie_word_embeddings {
            format!("{EMBEDDING}.emb_layers.{table}.weight")
        } else {
            format!("{SOFTMAX}.out_layers.{table}.weight")
        }
    }
}

/// Specs of both modules.
pub fn specs(config: &TransfoXlConfig, weight: Init) -> Vec<ParameterSpec> {
    let layout = Layout { config };
    let d_model = config.d_model as i64;
    let projection = Init::Normal { mean: 0.0, std: config.proj_init_std };
    let mut out = Vec::new();
    let mut add =
        |name: String, shape: &[i64], init| out.push(ParameterSpec { name, shape: shape.to_vec(), init });
    for table in 0..layout.tables() {
        add(
            format!("{EMBEDDING}.emb_layers.{table}.weight"),
            &[layout.rows(table), layout.width(table)],
            weight,
        );
    }
    for table in (0..layout.tables()).filter(|&t| layout.projects(t)) {
        add(format!("{EMBEDDING}.emb_projs.{table}"), &[d_model, layout.width(table)], projection);
    }
    if layout.clusters() > 1 {
        let tails = layout.clusters() as i64 - 1;
        add(format!("{SOFTMAX}.cluster_weight"), &[tails, layout.width(0)], weight);
        add(format!("{SOFTMAX}.cluster_bias"), &[tails], Init::Zeros);
    }
    for table in 0..layout.tables() {
        if !config.tie_word_embeddings {
            add(layout.output_table(table), &[layout.rows(table), layout.width(table)], weight);
        }
        add(format!("{SOFTMAX}.out_layers.{table}.bias"), &[layout.rows(table)], Init::Zeros);
    }
    for i in (0..layout.clusters()).filter(|&i| layout.projects(i) && !config.ties_projection(i)) {
        add(layout.output_projection(i), &[d_model, layout.width(i)], projection);
    }
    out
}

/// Names of the tables that score words: one, or one for each cluster.
pub fn output_tables(config: &TransfoXlConfig) -> Vec<String> {
    let layout = Layout { config };
    (0..layout.tables()).map(|table| layout.output_table(table)).collect()
}

/// Words, embedding width, and whether there is a projection, of each cluster of the vocabulary.
pub fn cluster_shapes(config: &TransfoXlConfig) -> Vec<(u64, u64, bool)> {
    let layout = Layout { config };
    let ends = config.cluster_ends();
    let shape = |i: usize| ((ends[i + 1] - ends[i]) as u64, layout.width(i) as u64, layout.projects(i));
    (0..layout.clusters()).map(shape).collect()
}

/// Names under which Hugging Face also stores a tied parameter: `(its name, ours)`.
pub fn aliases(config: &TransfoXlConfig) -> Vec<(String, String)> {
    let layout = Layout { config };
    let tables = (0..layout.tables())
        .filter(|_| config.tie_word_embeddings)
        .map(|t| (format!("{SOFTMAX}.out_layers.{t}.weight"), layout.output_table(t)));
    let projections = (0..layout.clusters())
        .filter(|&i| layout.projects(i) && config.ties_projection(i))
        .map(|i| (format!("{SOFTMAX}.out_projs.{i}"), layout.output_projection(i)));
    tables.chain(projections).collect()
}

/// Projections that the model leaves out (`proj_same_dim` false) and Hugging Face always has.
pub fn identity_projections(config: &TransfoXlConfig) -> Vec<(String, Tensor)> {
    let layout = Layout { config };
    let eye = || Tensor::eye(config.d_model as i64, (Kind::Float, Device::Cpu));
    (0..layout.clusters())
        .filter(|&i| config.div_val > 1 && !layout.projects(i))
        .flat_map(|i| {
            [(format!("{EMBEDDING}.emb_projs.{i}"), eye()), (format!("{SOFTMAX}.out_projs.{i}"), eye())]
        })
        .collect()
}

/// Token ids to vectors of the model's width.
pub struct AdaptiveEmbedding {
    tables: Vec<Tensor>,
    projections: Vec<Option<Tensor>>,
    ends: Vec<i64>,
    d_model: i64,
    kernels: Kernels,
}

impl AdaptiveEmbedding {
    /// Takes its parameters by name.
    pub fn new(config: &TransfoXlConfig, parameters: &Parameters) -> Self {
        let layout = Layout { config };
        let tables = 0..layout.tables();
        Self {
            tables: tables
                .clone()
                .map(|t| parameters.get(&format!("{EMBEDDING}.emb_layers.{t}.weight")))
                .collect(),
            projections: tables
                .map(|t| layout.projects(t).then(|| parameters.get(&format!("{EMBEDDING}.emb_projs.{t}"))))
                .collect(),
            ends: config.cluster_ends().iter().map(|&e| e as i64).collect(),
            d_model: config.d_model as i64,
            kernels: parameters.kernels(),
        }
    }

    /// `ids`: `[batch, segment]`; returns `[batch, segment, d_model]`, scaled by √d_model.
    pub fn forward(&self, ids: impl Into<Ids>) -> Tensor {
        let known = ids.into();
        let ids = known.here();
        let size = ids.size();
        let scale = (self.d_model as f64).sqrt();
        if let [table] = &self.tables[..] {
            return self.project(0, &Tensor::embedding(table, ids, -1, false, false)) * scale;
        }
        let flat = ids.reshape([-1]);
        let by_cluster = ByCluster::new(&known, &self.ends);
        let read = self.tables.iter().enumerate().zip(by_cluster.places.iter().zip(&by_cluster.numbers));
        let read = read.filter(|(_, (at, _))| at.size()[0] > 0).map(|((i, table), (at, numbers))| {
            (at, self.project(i, &Tensor::embedding(table, numbers, -1, false, false)))
        });
        let none = || Tensor::zeros([flat.size()[0], self.d_model], (self.tables[0].kind(), ids.device()));
        let out = match self.kernels.chunk(&self.tables[0]) && flat.numel() > 0 {
            true => in_order(&read.map(|(_, vectors)| vectors).collect::<Vec<_>>(), &by_cluster),
            false => read.fold(none(), |out, (at, vectors)| out.index_copy(0, at, &vectors)),
        };
        out.view([size[0], size[1], self.d_model]) * scale
    }

    fn project(&self, i: usize, embedded: &Tensor) -> Tensor {
        match &self.projections[i] {
            // Of the tables' type: layers add to it.
            Some(projection) => self.kernels.linear(embedded, projection, None).to_kind(embedded.kind()),
            None => embedded.shallow_clone(),
        }
    }
}

/// Rows of `clusters`, one after another, each where its id lies: `[n, width]`. One copy each way, where a card is started for two or three a cluster.
fn in_order(clusters: &[Tensor], by_cluster: &ByCluster) -> Tensor {
    let rows = Tensor::cat(clusters, 0);
    let (order, y) = (by_cluster.order.shallow_clone(), rows.detach().index_select(0, &by_cluster.ranks));
    function(c"rows in order", &[&rows], y, move |grad| vec![Some(grad.index_select(0, &order))])
}

/// The softmax over its parameters, which are taken by name.
pub fn softmax(config: &TransfoXlConfig, parameters: &Parameters) -> AdaptiveSoftmax {
    let layout = Layout { config };
    let cluster = |i: usize| {
        let table = if config.div_val == 1 { 0 } else { i };
        let weight = parameters.get(&layout.output_table(table));
        let bias = parameters.get(&format!("{SOFTMAX}.out_layers.{table}.bias"));
        let projection = layout.projects(i).then(|| parameters.get(&layout.output_projection(i)));
        Cluster { weight, bias, projection, kernels: parameters.kernels() }
    };
    let tails = (layout.clusters() > 1).then(|| Words {
        weight: parameters.get(&format!("{SOFTMAX}.cluster_weight")),
        bias: Some(parameters.get(&format!("{SOFTMAX}.cluster_bias"))),
    });
    let ends = config.cluster_ends().iter().map(|&end| end as i64).collect();
    AdaptiveSoftmax::new((0..layout.clusters()).map(cluster).collect(), tails, ends)
}

#[cfg(test)]
mod tests {
    use segue_testing::emulated::{self, Order};

    use super::*;

    /// Losses of words in four clusters that their own vectors predict, one of them without a target, and all gradients.
    fn found(kind: Kind, kernels: Kernels, div_val: usize) -> Vec<Tensor> {
        let config = TransfoXlConfig {
            vocab_size: 41,
            d_model: 24,
            d_embed: 24,
            cutoffs: vec![8, 19, 30],
            div_val,
            ..Default::default()
        };
        let weight = Init::Normal { mean: 0.0, std: 0.3 };
        let parameters = Parameters::initialise(specs(&config, weight), 3, kind).with_kernels(kernels);
        let (embedding, softmax) =
            (AdaptiveEmbedding::new(&config, &parameters), super::softmax(&config, &parameters));
        let ids = Tensor::arange(3 * 20, (Kind::Int64, Device::Cpu)).view([3, 20]) * 7;
        let hidden = embedding.forward(&ids.remainder(41));
        let targets = (&ids * 3 + 5).remainder(41);
        // The third cluster is no target's.
        let targets = targets.where_self(&targets.lt(19).logical_or(&targets.ge(30)), &ids.zeros_like());
        let nll = softmax.nll(&hidden.reshape([-1, 24]), &targets.reshape([-1]), None).trained;
        (&nll * Tensor::linspace(0.1, 2.0, 60, (kind, Device::Cpu))).sum(None::<Kind>).backward();
        let grads = parameters.tensors().iter().map(Tensor::grad).filter(Tensor::defined);
        [hidden.detach(), nll.detach()].into_iter().chain(grads).collect()
    }

    #[test]
    fn clusters_on_cards_are_those_of_double_precision() {
        for div_val in [1, 2] {
            let exact = found(Kind::Double, Kernels::Plain, div_val);
            let on_card = |order| emulated::during(order, || found(Kind::Float, Kernels::Fused, div_val));
            let ours = on_card(Order::Forwards);
            assert!(ours.len() == exact.len() && ours.len() > 5);
            for (i, (ours, exact)) in ours.iter().zip(&exact).enumerate() {
                let error = ((ours - exact).abs().max() / (exact.abs().max() + 0.1)).double_value(&[]);
                assert!(error < 1e-5, "{div_val}: tensor {i} is off by {error}");
            }
        }
    }
}
