//! Adaptive input and adaptive softmax (Grave et al. 2017; Baevski and Auli 2019) as Transformer-XL
//! uses them. Tail i takes head entry `cutoffs[0] + i`, the order of Hugging Face and of the
//! TensorFlow reference; the PyTorch reference counts tails from the other end.

use super::config::TransfoXlConfig;
use tch::{Device, Kind, Tensor};

use crate::Kernels;
use crate::layers::cross_entropy::{self, Words};
use crate::libtorch::precise;
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
    pub fn forward(&self, ids: &Tensor) -> Tensor {
        let size = ids.size();
        let scale = (self.d_model as f64).sqrt();
        if let [table] = &self.tables[..] {
            return self.project(0, &Tensor::embedding(table, ids, -1, false, false)) * scale;
        }
        let flat = ids.reshape([-1]);
        let kind = self.tables[0].kind();
        let mut out = Tensor::zeros([flat.size()[0], self.d_model], (kind, ids.device()));
        let places = places_by_cluster(&flat, &self.ends);
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

/// Where `ids`, `[n]`, lie in each cluster, rising: `[count]` each. One wait for a card, however many clusters there are.
fn places_by_cluster(ids: &Tensor, ends: &[i64]) -> Vec<Tensor> {
    let inner = Tensor::from_slice(&ends[1..ends.len() - 1]).to_device(ids.device());
    // An id that an end is equal to belongs to the cluster that begins there.
    let clusters = ids.unsqueeze(1).ge_tensor(&inner).sum_dim_intlist(1, false, Kind::Int64);
    let numbers = Tensor::arange(ends.len() as i64 - 1, (Kind::Int64, ids.device()));
    let counts = clusters.unsqueeze(1).eq_tensor(&numbers).sum_dim_intlist(0, false, Kind::Int64);
    // Stable: ids of one cluster stay in their order.
    let order = clusters.argsort_stable(true, 0, false);
    let counts = counts.to_device(Device::Cpu);
    let mut start = 0;
    let places = (0..ends.len() as i64 - 1).map(|i| {
        let count = counts.int64_value(&[i]);
        start += count;
        order.narrow(0, start - count, count)
    });
    places.collect()
}

struct Cluster {
    /// `[words, width]`
    weight: Tensor,
    /// `[words]`
    bias: Tensor,
    /// `[d_model, width]`
    projection: Option<Tensor>,
    kernels: Kernels,
}

impl Cluster {
    /// `[n, d_model]` to `[n, width]`.
    fn project(&self, hidden: &Tensor) -> Tensor {
        self.projection.as_ref().map_or_else(|| hidden.shallow_clone(), |p| hidden.matmul(p))
    }

    fn words(&self) -> Words {
        Words { weight: self.weight.shallow_clone(), bias: Some(self.bias.shallow_clone()) }
    }

    /// `[n, d_model]` to scores of the words of this cluster, `[n, words]`.
    fn logits(&self, hidden: &Tensor) -> Tensor {
        self.kernels.linear(&self.project(hidden), &self.weight, Some(&self.bias))
    }

    /// `[n, d_model]` to log-probabilities inside this cluster, `[n, words]`.
    fn log_probs(&self, hidden: &Tensor) -> Tensor {
        let logits = self.logits(hidden);
        logits.log_softmax(-1, precise(logits.kind()))
    }
}

/// Hidden states to probabilities of the next token.
///
/// P(w) = P_head(w) in the first cluster, P_head(tail i) · P_tail_i(w) beyond it. Without cutoffs this is
/// the ordinary softmax.
pub struct AdaptiveSoftmax {
    clusters: Vec<Cluster>,
    /// Row and bias of each tail in the head softmax.
    tails: Option<(Tensor, Tensor)>,
    ends: Vec<i64>,
}

impl AdaptiveSoftmax {
    /// Takes its parameters by name. The tables are re-read at each step, so that slices of a shared
    /// table follow its updates.
    pub fn new(config: &TransfoXlConfig, parameters: &Parameters) -> Self {
        let layout = Layout { config };
        let ends: Vec<i64> = config.cluster_ends().iter().map(|&e| e as i64).collect();
        let cluster = |i: usize| {
            let table = if config.div_val == 1 { 0 } else { i };
            let weight = parameters.get(&layout.output_table(table));
            let bias = parameters.get(&format!("{SOFTMAX}.out_layers.{table}.bias"));
            let projection = layout.projects(i).then(|| parameters.get(&layout.output_projection(i)));
            Cluster { weight, bias, projection, kernels: parameters.kernels() }
        };
        let tails = (layout.clusters() > 1).then(|| {
            (
                parameters.get(&format!("{SOFTMAX}.cluster_weight")),
                parameters.get(&format!("{SOFTMAX}.cluster_bias")),
            )
        });
        Self { clusters: (0..layout.clusters()).map(cluster).collect(), tails, ends }
    }

    /// Cluster `i` with its own rows where all clusters share one table.
    fn cluster(&self, i: usize) -> Cluster {
        let c = &self.clusters[i];
        let (low, rows) = (self.ends[i], self.ends[i + 1] - self.ends[i]);
        let shared = c.bias.size()[0] != rows;
        let cut = |t: &Tensor| if shared { t.narrow(0, low, rows) } else { t.shallow_clone() };
        Cluster {
            weight: cut(&c.weight),
            bias: cut(&c.bias),
            projection: c.projection.as_ref().map(Tensor::shallow_clone),
            kernels: c.kernels,
        }
    }

    /// Log-probabilities of shortlist and tails, `[n, cutoffs[0] + tails]`.
    fn head(&self, hidden: &Tensor) -> Tensor {
        let head = self.cluster(0);
        let hidden = head.project(hidden);
        let scores = |part: &Words| head.kernels.linear(&hidden, &part.weight, part.bias.as_ref());
        let scores: Vec<Tensor> = self.entries().iter().map(scores).collect();
        let scores = Tensor::cat(&scores, 1);
        scores.log_softmax(-1, precise(scores.kind()))
    }

    /// The rows of the head softmax: the shortlist's, then one for each tail.
    fn entries(&self) -> Vec<Words> {
        let tails = self
            .tails
            .as_ref()
            .map(|(weight, bias)| Words { weight: weight.shallow_clone(), bias: Some(bias.shallow_clone()) });
        [self.cluster(0).words()].into_iter().chain(tails).collect()
    }

    /// −log P(target), in nats. `hidden`: `[n, d_model]`, `targets`: `[n]`; returns `[n]`, in order.
    pub fn nll(&self, hidden: &Tensor, targets: &Tensor) -> Tensor {
        let head = self.cluster(0);
        let shortlist = self.ends[1];
        // Targets beyond the shortlist stand for their tail's head entry.
        let mut entries = targets.shallow_clone();
        for i in 1..self.clusters.len() {
            entries = entries.masked_fill(&self.holds(i, targets), shortlist + i as i64 - 1);
        }
        let mut nll = cross_entropy::nll(head.kernels, &head.project(hidden), &self.entries(), &entries);
        if self.clusters.len() == 1 {
            return nll;
        }
        for (i, at) in places_by_cluster(targets, &self.ends).iter().enumerate().skip(1) {
            if at.size()[0] > 0 {
                let rows = targets.index_select(0, at) - self.ends[i];
                let tail = self.cluster(i);
                let states = tail.project(&hidden.index_select(0, at));
                nll =
                    nll.index_add(0, at, &cross_entropy::nll(tail.kernels, &states, &[tail.words()], &rows));
            }
        }
        nll
    }

    /// Where `targets` lie in cluster `i`, original ids.
    fn holds(&self, i: usize, targets: &Tensor) -> Tensor {
        targets.ge(self.ends[i]).logical_and(&targets.lt(self.ends[i + 1]))
    }

    /// Log-probabilities of the whole vocabulary, `[n, vocab_size]`, for `hidden` of `[n, d_model]`.
    pub fn log_probs(&self, hidden: &Tensor) -> Tensor {
        let head = self.head(hidden);
        let shortlist = self.ends[1];
        let mut parts = vec![head.narrow(1, 0, shortlist)];
        for i in 1..self.clusters.len() {
            let of_tail = head.narrow(1, shortlist + i as i64 - 1, 1);
            parts.push(self.cluster(i).log_probs(hidden) + of_tail);
        }
        Tensor::cat(&parts, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_by_cluster_are_those_of_a_look_at_each_cluster() {
        let ends = [0, 4, 4, 9, 20];
        let ids = Tensor::from_slice(&[19i64, 3, 4, 0, 8, 9, 3, 5, 4, 0]);
        let places = places_by_cluster(&ids, &ends);
        for (i, at) in places.iter().enumerate() {
            let expected = ids.ge(ends[i]).logical_and(&ids.lt(ends[i + 1])).nonzero().squeeze_dim(1);
            assert_eq!(*at, expected, "cluster {i}");
        }
        assert_eq!(places.iter().map(|at| at.size()[0]).collect::<Vec<_>>(), [4, 0, 4, 2]);
    }
}
