use segue_configs::{OwnSections, TrainConfig};
use segue_cost::{
    Bounds, DROPPED_SCORE_PASSES, LAYER_OPERATIONS, LINEAR_PASSES, LOGIT_PASSES, MicroStep, PER_MULTIPLY_ADD,
    Parts, SCORE_PASSES, STATE_PASSES, TABLE_PASSES, saturated,
};
use segue_dataloader::sections::{
    DataConfig, ObjectiveConfig, ObjectiveKind, PairsConfig, SegmentConfig, targets_per_lane,
};

use super::config::XlnetConfig;
use super::plan::BLOCK_ROWS;

/// Segments of a sequence of pairs: A, B and `<cls>`.
const PAIR_SEGMENTS: u128 = 3;
/// Classes of the next-sentence head.
const CLASSES: u128 = 2;

/// What a micro-step of XLNet costs.
pub fn micro_step(train: &TrainConfig, model: &XlnetConfig, own: &OwnSections) -> MicroStep {
    let wide = |n: usize| n as u128;
    let pairs = own.get::<DataConfig>().order.in_pairs();
    let (objective, segment) = (own.get::<ObjectiveConfig>(), own.get::<SegmentConfig>().segment);
    let two_streams = objective.kind == ObjectiveKind::Permutation;
    let next_sentence = objective.next_sentence > 0.0;
    // Nobody reads the last content where only predictions count.
    let idle = u128::from(two_streams && !next_sentence);
    let shape = Shape {
        directions: if pairs && own.get::<PairsConfig>().bidirectional { 2 } else { 1 },
        memory: wide(model.mem_len),
        targets: wide(targets_per_lane(own)),
        two_streams,
        halves_at: wide(if pairs { model.reuse_len } else { segment }),
        content_layers: wide(model.n_layer) - idle,
        segments: if pairs { PAIR_SEGMENTS } else { 0 },
        next_sentence,
        vocabulary: wide(model.vocab_size),
        ..Shape::new(model, train.recompute, train.micro_batch, segment)
    };
    shape.micro_step()
}

/// What it costs to encode `sequences` of `length` tokens as a whole: one stream, without memory.
pub fn encoding_step(model: &XlnetConfig, recompute: bool, sequences: usize, length: usize) -> MicroStep {
    Shape::new(model, recompute, sequences, length).micro_step()
}

/// Sizes of one micro-step.
struct Shape {
    lanes: u128,
    /// Reading directions, which have tables of distances of their own.
    directions: u128,
    segment: u128,
    memory: u128,
    targets: u128,
    /// Whether targets have a stream of their own.
    two_streams: bool,
    /// Where the sequence's halves meet: before it nobody sees what is after it. The length where there are none.
    halves_at: u128,
    /// Layers whose content stream is computed; the others' only serves as keys.
    content_layers: u128,
    segments: u128,
    next_sentence: bool,
    layers: u128,
    d_model: u128,
    d_inner: u128,
    heads: u128,
    /// Width of all heads together.
    attention: u128,
    recomputes: bool,
    keeps_dropped_attention: bool,
    vocabulary: u128,
}

impl Shape {
    /// Of `lanes` sequences of `segment` positions that are encoded as a whole: one stream, without memory.
    fn new(model: &XlnetConfig, recompute: bool, lanes: usize, segment: usize) -> Self {
        let wide = |n: usize| n as u128;
        Self {
            lanes: wide(lanes),
            directions: 1,
            segment: wide(segment),
            memory: 0,
            targets: 0,
            two_streams: false,
            halves_at: wide(segment),
            content_layers: wide(model.n_layer),
            segments: PAIR_SEGMENTS,
            next_sentence: false,
            layers: wide(model.n_layer),
            d_model: wide(model.d_model),
            d_inner: wide(model.d_inner),
            heads: wide(model.n_head),
            attention: wide(model.n_head) * wide(model.head_width()),
            recomputes: recompute,
            keeps_dropped_attention: model.dropatt > 0.0,
            vocabulary: 0,
        }
    }

    fn micro_step(&self) -> MicroStep {
        let whole = |value: u128| Bounds { least: value as f64, most: value as f64 };
        MicroStep {
            tokens: saturated(self.lanes * self.segment),
            targets_per_lane: saturated(self.targets),
            memory_per_lane: saturated(self.layers * self.memory * self.d_model),
            forward: whole(PER_MULTIPLY_ADD * self.products()),
            recomputed: (PER_MULTIPLY_ADD * self.recomputed_products()) as f64,
            forward_only: 0.0,
            activations: whole(self.activations()),
            parts: self.parts(),
        }
    }

    /// Keys of one lane.
    fn keys(&self) -> u128 {
        self.memory + self.segment
    }

    /// Distances between any two places: to the oldest memory, and to the end of the segment.
    fn distances(&self) -> u128 {
        self.keys() + self.segment - 1
    }

    /// Rows and keys of the blocks that a lane's content goes through attention in.
    fn blocks(&self) -> Vec<(u128, u128)> {
        let mut blocks = Vec::new();
        for (start, end) in [(0, self.halves_at), (self.halves_at, self.segment)] {
            let mut left = end - start;
            while left > 0 {
                let rows = left.min(BLOCK_ROWS as u128);
                blocks.push((rows, self.memory + end));
                left -= rows;
            }
        }
        blocks
    }

    /// Multiply-adds of a forward pass: every layer's keys, the streams where they are computed, every target's
    /// scores of the vocabulary, and the head.
    fn products(&self) -> u128 {
        let head = self.lanes * self.d_model * (self.d_model + CLASSES);
        self.layers * (self.key_products() + self.predicting_products())
            + self.content_layers * self.content_products()
            + self.lanes * self.targets * self.d_model * self.vocabulary
            + if self.next_sentence { head } else { 0 }
    }

    /// Of these, the ones that the backward pass makes again: those of all layers but the last, where they are recomputed.
    fn recomputed_products(&self) -> u128 {
        let layers = if self.recomputes { self.layers - 1 } else { 0 };
        layers * (self.key_products() + self.content_products() + self.predicting_products())
    }

    /// The query stream of a layer, where there is one.
    fn predicting_products(&self) -> u128 {
        if self.two_streams { self.prediction_products() } else { 0 }
    }

    /// What both streams of a layer read, with B lanes, K keys, d = `d_model`, a = heads · width: keys and values
    /// 2BKda; distances, once for all lanes of a direction.
    fn key_products(&self) -> u128 {
        (2 * self.lanes * self.keys() + self.directions * self.distances()) * self.d_model * self.attention
    }

    /// The content stream of a layer: rows of a block meet its keys, and the distances that they span.
    fn content_products(&self) -> u128 {
        let pairs: u128 = self.blocks().iter().map(|(rows, keys)| rows * keys).sum();
        let distant: u128 = self.blocks().iter().map(|(rows, keys)| rows * (keys + rows - 1)).sum();
        self.stream_products(self.segment, pairs, distant)
    }

    /// The query stream of a layer: targets meet all keys and all distances.
    fn prediction_products(&self) -> u128 {
        self.stream_products(self.targets, self.targets * self.keys(), self.targets * self.distances())
    }

    /// Of `rows` of each of B lanes, f = `d_inner`: queries and output 2·rows·da, scores by content and
    /// reading 2·pairs·a, by position distant·a, by segment rows·a and pairs · heads · segments, feed-forward
    /// 2·rows·df.
    fn stream_products(&self, rows: u128, pairs: u128, distant: u128) -> u128 {
        let by_segment = match self.segments {
            0 => 0,
            n => rows * self.attention + pairs * self.heads * n,
        };
        self.lanes
            * (self.linear_products(rows)
                + 2 * pairs * self.attention
                + distant * self.attention
                + by_segment)
    }

    /// Of them, those of linear layers, of one lane.
    fn linear_products(&self, rows: u128) -> u128 {
        2 * rows * self.d_model * self.attention + 2 * rows * self.d_model * self.d_inner
    }

    /// Rows of all streams and layers of a lane, and places where they meet keys.
    fn rows_and_pairs(&self) -> (u128, u128) {
        let blocks: u128 = self.blocks().iter().map(|(rows, keys)| rows * keys).sum();
        let predicted = if self.two_streams { self.layers * self.targets } else { 0 };
        (
            self.content_layers * self.segment + predicted,
            self.content_layers * blocks + predicted * self.keys(),
        )
    }

    /// What it does by kind of kernel.
    fn parts(&self) -> Parts {
        let (rows, pairs) = self.rows_and_pairs();
        let layers = self.layers as f64;
        let flops = |products: u128| (PER_MULTIPLY_ADD * products) as f64;
        let scored = self.lanes * self.targets;
        let softmax = scored * self.d_model * self.vocabulary;
        let head = if self.next_sentence { self.lanes * self.d_model * (self.d_model + CLASSES) } else { 0 };
        let linear = self.layers * self.key_products() + self.lanes * self.linear_products(rows) + head;
        let logits = (scored * self.vocabulary) as f64;
        let inside = self.activations() as f64 - 2.0 * logits;
        let scores = (self.lanes * self.heads * pairs) as f64;
        let (kept, dropped) =
            if self.keeps_dropped_attention { (2.0, DROPPED_SCORE_PASSES) } else { (1.0, 0.0) };
        // What linear layers read and write: of a row four of the model's width, two of attention's, two of feed-forward's; of a key two and two.
        let (d, a) = (self.d_model, self.attention);
        let moved = rows * (4 * d + 2 * a + 2 * self.d_inner) + self.layers * self.keys() * 2 * (d + a);
        Parts {
            products: flops(linear),
            products_moved: LINEAR_PASSES * (self.lanes * moved) as f64,
            attention: flops(self.products() - linear - softmax),
            softmax: flops(softmax),
            scores,
            score_passes: SCORE_PASSES + dropped,
            states_moved: STATE_PASSES * (inside - kept * scores),
            logits_moved: LOGIT_PASSES * logits + TABLE_PASSES * (self.vocabulary * self.d_model) as f64,
            layers,
            layer_inputs: layers * (self.lanes * (self.keys() + self.targets) * self.d_model) as f64,
            layer_activations: inside,
            logits: 2.0 * logits,
            operations: LAYER_OPERATIONS * (layers + 1.0) * if self.two_streams { 2.0 } else { 1.0 },
        }
    }

    /// Values that the backward pass needs. In each layer: the input with memory before it, keys with the codes of
    /// segments beside them, values, distances. In each stream: queries three times, by content with the codes, what
    /// was read, attention weights (twice under dropout), the inner states before and after their non-linearity
    /// and dropout, six tensors of the model's width. Where layers are recomputed, all of that for one of them, and of
    /// each its inputs. At the output, logits and their softmax.
    fn activations(&self) -> u128 {
        let coded = self.attention + self.heads * self.segments;
        let keys = self.lanes * self.keys() * (self.d_model + 2 * self.attention + coded)
            + self.directions * self.distances() * (self.d_model + self.attention);
        let weights = 1 + u128::from(self.keeps_dropped_attention);
        let stream = |rows: u128, pairs: u128| {
            let each = 6 * self.d_model + 3 * self.attention + coded + 3 * self.d_inner;
            self.lanes * (rows * each + weights * self.heads * pairs)
        };
        let pairs: u128 = self.blocks().iter().map(|(rows, keys)| rows * keys).sum();
        let content = stream(self.segment, pairs);
        let (predictions, predicted) = match self.two_streams {
            true => (stream(self.targets, self.targets * self.keys()), self.targets),
            false => (0, 0),
        };
        let inside = match self.recomputes {
            true => {
                let inputs = self.lanes * (self.segment + predicted) * self.d_model;
                self.layers * inputs + keys + content + predictions
            }
            false => self.layers * (keys + predictions) + self.content_layers * content,
        };
        inside + 2 * self.lanes * self.targets * self.vocabulary
    }
}

#[cfg(test)]
mod tests {
    use segue_testing::{config, flops};

    const TINY: [&str; 13] = [
        "model.model_type=xlnet",
        "model.vocab_size=11",
        "model.d_model=6",
        "model.n_head=2",
        "model.d_head=4",
        "model.d_inner=10",
        "model.n_layer=2",
        "model.mem_len=3",
        "model.reuse_len=4",
        "pairs.num_predict=3",
        "train.segment=8",
        "train.lanes=2",
        "train.micro_batch=2",
    ];

    fn forward(more: &[&str]) -> f64 {
        let cost = segue_family::cost(&config::<crate::XlnetConfig>(&[&TINY[..], more].concat()), 1).unwrap();
        assert_eq!(cost.forward_flops_per_token.least, cost.forward_flops_per_token.most);
        cost.forward_flops_per_token.most * 16.0
    }

    /// One forward and one backward lane of 8 tokens, 4 of them reused, after 3 of memory.
    fn keys() -> Vec<(u64, u64, u64)> {
        // Per lane keys and values of 11 places, and distances 10 to -7.
        [(11, 8, 6), (11, 8, 6), (18, 8, 6)].repeat(2)
    }

    fn content() -> Vec<(u64, u64, u64)> {
        let mut products = vec![(8, 8, 6), (8, 6, 8), (8, 10, 6), (8, 6, 10)]; // queries, output, feed-forward
        for _head in 0..2 {
            products.push((8, 1, 4)); // by segment
            // First half: 4 rows see 7 keys at 10 distances; second half: 11 keys at 14.
            for (keys, distances) in [(7, 10), (11, 14)] {
                products.extend([(4, keys, 4 + 3), (4, distances, 4), (4, 4, keys)]);
            }
        }
        products.repeat(2)
    }

    fn predictions() -> Vec<(u64, u64, u64)> {
        let mut products = vec![(3, 8, 6), (3, 6, 8), (3, 10, 6), (3, 6, 10)];
        for _head in 0..2 {
            products.extend([(3, 1, 4), (3, 11, 4 + 3), (3, 18, 4), (3, 4, 11)]);
        }
        products.repeat(2)
    }

    #[test]
    fn operations_of_two_streams_are_those_of_the_products_written_out() {
        let softmax = [(3, 11, 6), (3, 11, 6)];
        let two_layers = [keys(), keys(), predictions(), predictions()].concat();
        // The last layer's content is not computed.
        let permutation = flops(&[&two_layers[..], &content(), &softmax].concat());
        assert_eq!(forward(&[]), permutation);
        let head = [(2, 6, 6), (2, 2, 6)];
        let with_head = permutation + flops(&content()) + flops(&head);
        assert_eq!(forward(&["objective.next_sentence=1"]), with_head);
        let one_stream = [keys(), keys(), content(), content()].concat();
        let denoising = flops(&[&one_stream[..], &softmax].concat());
        assert_eq!(forward(&["objective.kind=denoising"]), denoising);
        // Both lanes share one table of distances.
        let table = flops(&[(18, 8, 6), (18, 8, 6)]);
        assert_eq!(forward(&["pairs.bidirectional=false"]), permutation - table);
    }

    /// Three sequences of 5 tokens: keys and values of 5 places, distances 4 to -4, and 5 rows that see 5 keys at 9 distances, by three segments.
    #[test]
    fn operations_of_an_encoder_are_those_of_the_products_written_out() {
        let config = config::<crate::XlnetConfig>(&TINY);
        let step = super::encoding_step(segue_family::own(&config.model), config.train.recompute, 3, 5);
        let mut layer = vec![(9, 8, 6)];
        for _sequence in 0..3 {
            layer.extend([(5, 8, 6), (5, 8, 6), (5, 8, 6), (5, 6, 8), (5, 10, 6), (5, 6, 10)]);
            for _head in 0..2 {
                layer.extend([(5, 1, 4), (5, 5, 4 + 3), (5, 9, 4), (5, 4, 5)]);
            }
        }
        assert_eq!(step.forward.most, flops(&layer.repeat(2)));
        assert_eq!((step.tokens, step.memory_per_lane, step.targets_per_lane), (15, 0, 0));
    }

    #[test]
    fn memory_and_parameters_are_those_of_the_configuration() {
        let cost = segue_family::cost(&config::<crate::XlnetConfig>(&TINY), 1).unwrap();
        assert_eq!(cost.memory_per_rank.segment_memory, 2 * (2 * 2 * 3 * 6 * 4));
        assert_eq!((cost.tokens_per_step, cost.targets_per_step), (16, 6));
        // docs/book/src/contributing/expected-values.md: 5 d H dh + 2d + (2 d f + f + d) + 2d a layer, 3 H dh for u, v, b and 2 H dh for s.
        let layer = 5 * 6 * 8 + 4 * 6 + 2 * 6 * 10 + 10 + 6 + 5 * 8;
        let parts = cost.parameters_by_part;
        assert_eq!((parts.embedding, parts.layers, parts.softmax), (11 * 6 + 6, 2 * layer, 11));
        let head = segue_family::cost(
            &config::<crate::XlnetConfig>(&[&TINY[..], &["objective.next_sentence=1"]].concat()),
            1,
        )
        .unwrap();
        assert_eq!(head.parameters, cost.parameters + 6 * 6 + 6 + 2 * 6 + 2);
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        for more in
            [&[][..], &["objective.next_sentence=1"], &["objective.kind=denoising"], &["model.dropatt=0.1"]]
        {
            let micro_step = segue_family::work(&config::<crate::XlnetConfig>(&[&TINY[..], more].concat()))
                .unwrap()
                .turns
                .remove(0)
                .micro_step;
            assert_eq!(micro_step.parts.forward(), micro_step.forward.most, "{more:?}");
            assert_eq!(micro_step.parts.activations(false), micro_step.activations.most, "{more:?}");
        }
        let parts = segue_family::work(&config::<crate::XlnetConfig>(&TINY))
            .unwrap()
            .turns
            .remove(0)
            .micro_step
            .parts;
        // Without the linear layers: content once, predictions twice, of the products written out above.
        let linear = |rows| [(rows, 8, 6), (rows, 6, 8), (rows, 10, 6), (rows, 6, 10)].repeat(2);
        let of_linear = flops(&linear(8)) + 2.0 * flops(&linear(3));
        let attention = flops(&content()) + 2.0 * flops(&predictions()) - of_linear;
        assert_eq!(parts.attention, attention);
        assert_eq!(parts.softmax, flops(&[(3, 11, 6), (3, 11, 6)]));
    }

    /// Counts of docs/book/src/contributing/expected-values.md, and the account of the Chinese release.
    /// Row T26.
    #[test]
    fn sizes_are_the_published_ones() {
        for (layers, d_model, heads, inner, count) in [
            (24, 1024, 16, 4096, 360_300_800),
            (12, 768, 12, 3072, 116_750_336),
            (24, 768, 12, 3072, 208_891_904),
        ] {
            let sizes = [
                ("n_layer", layers),
                ("d_model", d_model),
                ("n_head", heads),
                ("d_inner", inner),
                ("vocab_size", 32_000),
            ];
            let sizes = sizes.map(|(key, value)| format!("model.{key}={value}"));
            let keys: Vec<&str> =
                ["model.model_type=xlnet"].into_iter().chain(sizes.iter().map(String::as_str)).collect();
            assert_eq!(
                segue_family::cost(&config::<crate::XlnetConfig>(&keys), 1).unwrap().parameters,
                count
            );
        }
    }
}
