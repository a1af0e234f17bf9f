use segue_configs::TrainConfig;
use segue_cost::{
    Bounds, DROPPED_SCORE_PASSES, LAYER_OPERATIONS, LINEAR_PASSES, LOGIT_PASSES, MicroStep, PER_MULTIPLY_ADD,
    Parts, SCORE_PASSES, STATE_PASSES, TABLE_PASSES, saturated, share_of_words,
};
use segue_dataloader::sections::SegmentConfig;

use super::config::{AttnType, TransfoXlConfig};

/// What a micro-step of Transformer-XL costs.
pub fn micro_step(train: &TrainConfig, model: &TransfoXlConfig, segments: &SegmentConfig) -> MicroStep {
    let segment = segments.segment;
    let shape = Shape {
        query: segments.ext_len as u128 + segment as u128,
        memory: model.mem_len as u128,
        targets: segments.loss.targets(segment) as u128,
        ..Shape::new(model, train.recompute, train.micro_batch, segment)
    };
    shape.micro_step()
}

/// What it costs to encode `sequences` of `length` tokens as a whole, without memory.
pub fn encoding_step(model: &TransfoXlConfig, recompute: bool, sequences: usize, length: usize) -> MicroStep {
    Shape::new(model, recompute, sequences, length).micro_step()
}

/// A cluster of the vocabulary.
struct Cluster {
    words: u128,
    width: u128,
    projected: bool,
}

/// Sizes of one micro-step.
struct Shape {
    lanes: u128,
    segment: u128,
    /// Positions that are queries: the segment and what is read again before it.
    query: u128,
    /// Positions of memory.
    memory: u128,
    /// Targets of a lane that count.
    targets: u128,
    layers: u128,
    d_model: u128,
    d_inner: u128,
    heads: u128,
    /// Width of all heads together.
    attention: u128,
    /// Distances are projected for the whole micro-step (relative positions).
    projects_positions: bool,
    /// Queries meet positions apart from keys.
    scores_positions: bool,
    recomputes: bool,
    keeps_dropped_attention: bool,
    clusters: Vec<Cluster>,
    /// All clusters are cut from one table.
    shares_table: bool,
}

impl Shape {
    /// Of `lanes` lanes of `segment` positions that are all there is: nothing is remembered, and nothing predicted.
    fn new(model: &TransfoXlConfig, recompute: bool, lanes: usize, segment: usize) -> Self {
        let wide = |n: usize| n as u128;
        Self {
            lanes: wide(lanes),
            segment: wide(segment),
            query: wide(segment),
            memory: 0,
            targets: 0,
            layers: wide(model.n_layer),
            d_model: wide(model.d_model),
            d_inner: wide(model.d_inner),
            heads: wide(model.n_head),
            attention: wide(model.n_head) * wide(model.head_width()),
            projects_positions: model.attn_type == AttnType::Relative,
            scores_positions: matches!(model.attn_type, AttnType::Relative | AttnType::Shaw),
            recomputes: recompute,
            keeps_dropped_attention: model.dropatt > 0.0,
            clusters: super::adaptive::cluster_shapes(model)
                .into_iter()
                .map(|(words, width, projected)| Cluster {
                    words: words.into(),
                    width: width.into(),
                    projected,
                })
                .collect(),
            shares_table: model.div_val == 1,
        }
    }

    fn micro_step(&self) -> MicroStep {
        MicroStep {
            tokens: saturated(self.lanes * self.segment),
            targets_per_lane: saturated(self.targets),
            memory_per_lane: saturated(self.layers * self.memory * self.d_model),
            forward: self.forward_flops(),
            recomputed: self.recomputed_flops(),
            forward_only: 0.0,
            activations: self.activations(),
            parts: self.parts(),
        }
    }

    /// Keys of one lane.
    fn keys(&self) -> u128 {
        self.memory + self.query
    }

    /// Operations of a forward pass of the whole micro-step, with a memory that is full:
    /// 2·(embedding + layers·layer + softmax).
    fn forward_flops(&self) -> Bounds {
        let layers = self.layers * self.layer_products();
        let (embedding, softmax) = (self.embedding_products(), self.softmax_products());
        let flops =
            |[embedding, softmax]: [u128; 2]| (PER_MULTIPLY_ADD * (embedding + layers + softmax)) as f64;
        Bounds { least: flops([embedding.0, softmax.0]), most: flops([embedding.1, softmax.1]) }
    }

    /// Of these, the ones that the backward pass makes again: those of all layers but the last, where they are recomputed.
    fn recomputed_flops(&self) -> f64 {
        let layers = if self.recomputes { self.layers - 1 } else { 0 };
        (PER_MULTIPLY_ADD * layers * self.layer_products()) as f64
    }

    /// Multiply-adds of one layer (Yang 2019, §2.1.3), with B lanes, Q queries, K keys, d = `d_model`,
    /// a = heads · width, f = `d_inner`: queries BQda, keys and values 2BKda, distances Kda once for all
    /// lanes, scores by content and by position BQKa each, reading BQKa, output BQad, feed-forward 2BQdf.
    fn layer_products(&self) -> u128 {
        self.linear_products() + self.attention_products()
    }

    /// Of them, those of linear layers.
    fn linear_products(&self) -> u128 {
        let (d, a) = (self.d_model, self.attention);
        let (queries, keys) = (self.lanes * self.query, self.lanes * self.keys());
        let positions = if self.projects_positions { self.keys() * d * a } else { 0 };
        2 * queries * d * a + 2 * keys * d * a + positions + 2 * queries * d * self.d_inner
    }

    /// And those of every query with every key.
    fn attention_products(&self) -> u128 {
        let scores = if self.scores_positions { 3 } else { 2 };
        scores * self.pairs() * self.attention
    }

    /// Queries times keys, of all lanes.
    fn pairs(&self) -> u128 {
        self.lanes * self.query * self.keys()
    }

    /// Multiply-adds that bring embeddings to the model's width: least and most.
    fn embedding_products(&self) -> (u128, u128) {
        let of = |c: &Cluster| if c.projected { self.lanes * self.query * self.d_model * c.width } else { 0 };
        (of(&self.clusters[0]), self.clusters.iter().map(of).max().unwrap_or(0))
    }

    /// Multiply-adds of the output: the head for every target, and for the upper bound the costliest tail
    /// for every target too.
    fn softmax_products(&self) -> (u128, u128) {
        let head = self.scoring(&self.clusters[0], self.head_entries());
        let tail = self.clusters[1..].iter().map(|c| self.scoring(c, c.words)).max().unwrap_or(0);
        (head, head + tail)
    }

    /// Multiply-adds that score so many `entries` of a cluster for every target.
    fn scoring(&self, cluster: &Cluster, entries: u128) -> u128 {
        let projection = if cluster.projected { self.d_model * cluster.width } else { 0 };
        self.lanes * self.targets * (projection + cluster.width * entries)
    }

    /// Tails, each with the fraction of a text's targets that lie in it.
    fn tails(&self) -> impl Iterator<Item = (&Cluster, f64)> {
        let all: u128 = self.clusters.iter().map(|c| c.words).sum();
        let mut begin = self.clusters[0].words;
        self.clusters[1..].iter().map(move |cluster| {
            let words = begin..begin + cluster.words;
            begin = words.end;
            (cluster, share_of_words(saturated(words.start)..saturated(words.end), saturated(all)))
        })
    }

    /// What it does by kind of kernel.
    fn parts(&self) -> Parts {
        let layers = self.layers as f64;
        let flops = |products: f64| PER_MULTIPLY_ADD as f64 * products;
        let tails: f64 = self.tails().map(|(c, share)| share * self.scoring(c, c.words) as f64).sum();
        let rare: f64 = self.tails().map(|(cluster, share)| share * cluster.words as f64).sum();
        let logits = (self.lanes * self.targets) as f64 * (self.head_entries() as f64 + rare);
        let table: f64 = self.clusters.iter().map(|c| (c.words * c.width) as f64).sum();
        // The input's gradient, and where clusters are cut from one table that of each cut.
        let cuts = if self.shares_table && self.clusters.len() > 1 { self.clusters.len() } else { 0 };
        let scores = (self.heads * self.pairs()) as f64;
        let dropped = if self.keeps_dropped_attention { DROPPED_SCORE_PASSES } else { 0.0 };
        let inside = layers * self.layer_activations() as f64;
        let matrices = layers * self.kept_scores() as f64;
        // What linear layers read and write: of a query four of the model's width, two of attention's, two of feed-forward's; of a key two
        // and two.
        let (d, a) = (self.d_model, self.attention);
        let rows = self.query * (4 * d + 2 * a + 2 * self.d_inner) + self.keys() * 2 * (d + a);
        Parts {
            products: flops(layers * self.linear_products() as f64 + self.embedding_products().0 as f64),
            products_moved: LINEAR_PASSES * layers * (self.lanes * rows) as f64,
            attention: flops(layers * self.attention_products() as f64),
            softmax: flops(self.softmax_products().0 as f64 + tails),
            scores: layers * scores,
            score_passes: SCORE_PASSES + dropped,
            states_moved: STATE_PASSES * (inside - matrices),
            logits_moved: LOGIT_PASSES * logits + TABLE_PASSES * table * (1 + cuts) as f64,
            layers,
            layer_inputs: layers * (self.lanes * self.keys() * self.d_model) as f64,
            layer_activations: inside,
            logits: 2.0 * logits,
            operations: LAYER_OPERATIONS * (layers + 1.0),
        }
    }

    /// Words of the first cluster, and one entry for each tail.
    fn head_entries(&self) -> u128 {
        self.clusters[0].words + self.clusters.len() as u128 - 1
    }

    /// Values that the backward pass needs. In each layer: the input, with memory before it, queries
    /// twice, keys, values and what was read, attention weights (twice under dropout), the inner states
    /// before and after dropout, and six tensors of the model's width around the residuals and norms. Where
    /// layers are recomputed, all of that for one of them, and of each its input. At the output, logits and
    /// their softmax.
    fn activations(&self) -> Bounds {
        let layer = self.layer_activations();
        let scored = self.lanes * self.targets;
        let head = 2 * scored * self.head_entries();
        let tail = self.clusters[1..].iter().map(|c| 2 * scored * c.words).max().unwrap_or(0);
        let inside = match self.recomputes {
            true => self.layers * self.lanes * self.query * self.d_model + layer,
            false => self.layers * layer,
        } as f64;
        Bounds { least: inside + head as f64, most: inside + (head + tail) as f64 }
    }

    /// Of one layer.
    fn layer_activations(&self) -> u128 {
        let (queries, keys) = (self.lanes * self.query, self.lanes * self.keys());
        keys * (self.d_model + 2 * self.attention)
            + queries * (6 * self.d_model + 3 * self.attention + 2 * self.d_inner)
            + self.kept_scores()
    }

    /// Attention's matrices among them.
    fn kept_scores(&self) -> u128 {
        (1 + u128::from(self.keeps_dropped_attention)) * self.heads * self.pairs()
    }
}

#[cfg(test)]
mod tests {
    use segue_cost::Bounds;
    use segue_family::{cost, work};
    use segue_testing::{config, flops};

    #[test]
    fn operations_are_those_of_the_products_written_out() {
        let config = config::<crate::TransfoXlConfig>(&[
            "model.vocab_size=11",
            "model.cutoffs=[5]",
            "model.div_val=2",
            "model.d_model=6",
            "model.n_head=2",
            "model.d_head=4",
            "model.d_inner=10",
            "model.n_layer=1",
            "model.mem_len=3",
            "train.segment=5",
            "train.lanes=2",
            "train.micro_batch=2",
        ]);
        let mut layer = Vec::new();
        for _lane in 0..2 {
            layer.push((5, 8, 6)); // queries
            layer.extend([(8, 8, 6), (8, 8, 6)]); // keys, values of memory and segment
            for _head in 0..2 {
                layer.extend([(5, 8, 4), (5, 8, 4), (5, 4, 8)]); // content, position, reading
            }
            layer.push((5, 6, 8)); // output
            layer.extend([(5, 10, 6), (5, 6, 10)]); // feed-forward
        }
        layer.push((8, 8, 6)); // distances, once for both lanes
        let frequent = [(10, 6, 6), (10, 6, 6), (10, 6, 6)]; // in, out, head of 5 words and a tail
        let rare = [(10, 6, 6), (10, 6, 6), (10, 6, 6), (10, 3, 6), (10, 6, 3)];
        let cost = cost(&config, 1).unwrap();
        let [least, most] =
            [&frequent[..], &rare[..]].map(|softmax| flops(&[&layer, softmax].concat()) / 10.0);
        assert_eq!(cost.forward_flops_per_token, Bounds { least, most });
        assert_eq!(cost.training_flops_per_token, Bounds { least: 3.0 * least, most: 3.0 * most });
        assert_eq!(cost.flops.least, 3.0 * least * 10.0 * 1000.0);
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let keys = ["model.vocab_size=30000", "train.lanes=4", "train.micro_batch=2"];
        let plain = work(&config::<crate::TransfoXlConfig>(&keys)).unwrap().turns.remove(0).micro_step;
        assert_eq!(plain.parts.forward(), plain.forward.least);
        assert_eq!(plain.parts.activations(false), plain.activations.least);
        // 6 layers of 4 heads and 2 lanes: each of 128 queries sees 256 keys.
        let scores = (6 * 2 * 4 * 128 * 256) as f64;
        assert_eq!((plain.parts.scores, plain.parts.score_passes), (scores, 21.0));
        let dropped = work(&config::<crate::TransfoXlConfig>(&[&keys[..], &["model.dropatt=0.1"]].concat()))
            .unwrap()
            .turns
            .remove(0)
            .micro_step
            .parts;
        assert_eq!((dropped.scores, dropped.score_passes), (scores, 25.0));
        assert_eq!(dropped.states_moved, plain.parts.states_moved);
        // Rare words lie between none and all of them in the tails.
        let tails =
            work(&config::<crate::TransfoXlConfig>(&[&keys[..], &["model.cutoffs=[5000,20000]"]].concat()))
                .unwrap()
                .turns
                .remove(0)
                .micro_step;
        assert!(tails.parts.forward() > tails.forward.least && tails.parts.forward() < tails.forward.most);
        assert!(tails.parts.activations(false) < tails.activations.most);
    }

    #[test]
    fn context_half_loss_and_other_encodings_change_their_products_alone() {
        let keys = [
            "model.vocab_size=9",
            "model.d_model=4",
            "model.n_head=1",
            "model.d_inner=8",
            "model.n_layer=1",
            "model.mem_len=0",
            "train.segment=6",
            "train.lanes=1",
            "train.micro_batch=1",
        ];
        let micro_step = |more: &[&str]| {
            let cost = cost(&config::<crate::TransfoXlConfig>(&[&keys[..], more].concat()), 1).unwrap();
            cost.forward_flops_per_token.most * 6.0
        };
        let layer = [(6, 4, 4), (6, 4, 4), (6, 4, 4), (6, 6, 4), (6, 4, 6), (6, 4, 4), (6, 8, 4), (6, 4, 8)];
        let relative = [(6, 4, 4), (6, 6, 4)]; // distances, position scores
        let base = flops(&layer) + flops(&relative) + flops(&[(6, 9, 4)]);
        assert_eq!(micro_step(&[]), base);
        assert_eq!(micro_step(&["train.loss=half"]), base - flops(&[(3, 9, 4)]));
        assert_eq!(micro_step(&["model.attn_type=shaw"]), base - flops(&relative[..1]));
        assert_eq!(micro_step(&["model.attn_type=absolute"]), base - flops(&relative));
        assert_eq!(micro_step(&["model.attn_type=learned"]), base - flops(&relative));
        // Six more queries and keys, no more targets.
        let longer = |(m, n, k): &(u64, u64, u64)| {
            (2 * m, if *n == 6 { 12 } else { *n }, if *k == 6 { 12 } else { *k })
        };
        let all: Vec<_> = layer.iter().chain(&relative).map(longer).chain([(6, 9, 4)]).collect();
        assert_eq!(micro_step(&["train.ext_len=6"]), flops(&all));
    }
}
