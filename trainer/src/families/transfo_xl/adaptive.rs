//! Adaptive input and adaptive softmax (Grave et al. 2017; Baevski and Auli 2019) as Transformer-XL
//! uses them.

use super::config::TransfoXlConfig;
use tch::{Device, Kind, Tensor};

use crate::Kernels;
use crate::layers::cross_entropy::Words;
use crate::layers::{AdaptiveSoftmax, Cluster, Ids, places_by_cluster};
use crate::parameters::{Init, ParameterSpec, Parameters};

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
        let kind = self.tables[0].kind();
        let mut out = Tensor::zeros([flat.size()[0], self.d_model], (kind, ids.device()));
        let places = places_by_cluster(&known, &self.ends);
        for ((i, table), at) in self.tables.iter().enumerate().zip(&places) {
            if at.size()[0] > 0 {
                let rows = flat.index_select(0, at) - self.ends[i];
                out = out.index_copy(
                    0,
                    at,
                    &self.project(i, &Tensor::embedding(table, &rows, -1, false, false)),
                );
            }
        }
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
