//! Losses of contexts and penalties, as sums. Equations are those of Yang 2019, §3.3.

use segue_kernels::Kernels;
use segue_layers::cross_entropy::{Words, nll};
use tch::{Kind, Tensor};

/// Pairs of an anchor and its context, counted: what the softmax over contexts needs to know of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct PairCounts {
    /// The anchors, each once: `[anchors]`.
    pub anchors: Vec<i64>,
    /// Pairs of each anchor: `[anchors]`.
    pub totals: Vec<f32>,
    /// One context of each anchor: `[anchors]`.
    pub firsts: Vec<i64>,
    /// Different pairs, as the anchor's place among the anchors and the context: `[entries]`.
    pub entries: Vec<(i64, i64)>,
    /// How often each of them comes: `[entries]`.
    pub counts: Vec<f32>,
}

impl PairCounts {
    /// Counts `pairs` of (anchor, context). In the order of their numbers, whatever that of the pairs is.
    pub fn of(pairs: &[(u32, u32)]) -> Self {
        let mut sorted = pairs.to_vec();
        sorted.sort_unstable();
        let mut counted =
            Self { anchors: vec![], totals: vec![], firsts: vec![], entries: vec![], counts: vec![] };
        for same_anchor in sorted.chunk_by(|a, b| a.0 == b.0) {
            let place = counted.anchors.len() as i64;
            counted.anchors.push(i64::from(same_anchor[0].0));
            counted.firsts.push(i64::from(same_anchor[0].1));
            counted.totals.push(same_anchor.len() as f32);
            for same in same_anchor.chunk_by(|a, b| a.1 == b.1) {
                counted.entries.push((place, i64::from(same[0].1)));
                counted.counts.push(same.len() as f32);
            }
        }
        counted
    }
}

/// Eq. 3.11, `−Σ_(i,c) [w_c·e_i + b_c − ln Σ_c' exp(w_c'·e_i + b_c')]`, over all pairs that were counted; scalar.
///
/// `anchors`: e of the anchors, `[anchors, d_embed]`; `weight`: `[nodes, d_embed]`; `bias`: `[nodes]`. Scores are made once for an anchor,
/// however many pairs it has: with n_i pairs, n_i times the loss of its first context, plus what the scores of the others differ from that.
pub fn softmax_contexts(
    kernels: Kernels,
    anchors: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    pairs: &PairCounts,
) -> Tensor {
    let like = |values: &[f32]| Tensor::from_slice(values).to_kind(anchors.kind());
    let words = Words { weight: weight.shallow_clone(), bias: Some(bias.shallow_clone()) };
    let of_first = nll(kernels, anchors, &[words], &Tensor::from_slice(&pairs.firsts), None); // [anchors]
    let places: Vec<i64> = pairs.entries.iter().map(|entry| entry.0).collect();
    let contexts: Vec<i64> = pairs.entries.iter().map(|entry| entry.1).collect();
    let beside = |((place, context), count): (&(i64, i64), &f32)| {
        let i = *place as usize;
        let taken = if pairs.firsts[i] == *context { pairs.totals[i] } else { 0.0 };
        taken - count
    };
    let beside: Vec<f32> = pairs.entries.iter().zip(&pairs.counts).map(beside).collect();
    let contexts = Tensor::from_slice(&contexts);
    let products = anchors.index_select(0, &Tensor::from_slice(&places)) * weight.index_select(0, &contexts);
    let scores = products.sum_dim_intlist(1, false, None::<Kind>) + bias.index_select(0, &contexts); // [entries]
    (of_first * like(&pairs.totals)).sum(None::<Kind>) + (scores * like(&beside)).sum(None::<Kind>)
}

/// Eq. 3.12, `−Σ ln σ(γ w_c·e_i)`; scalar. `anchors` and `contexts`: e and w of each pair, `[pairs, d_embed]`; `signs`: γ, `[pairs]`.
pub fn negative_contexts(anchors: &Tensor, contexts: &Tensor, signs: &Tensor) -> Tensor {
    let scores = (anchors * contexts).sum_dim_intlist(1, false, None::<Kind>);
    -(scores * signs).log_sigmoid().sum(None::<Kind>)
}

/// Eq. 3.10, `Σ a_ij |f_i − f_j|²` over edges; scalar. `from` and `to`: f of both ends, `[edges, width]`; `weights`: a, `[edges]`.
pub fn disagreement(from: &Tensor, to: &Tensor, weights: &Tensor) -> Tensor {
    ((from - to).square().sum_dim_intlist(1, false, None::<Kind>) * weights).sum(None::<Kind>)
}

#[cfg(test)]
mod tests {
    use segue_graph::{ContextOptions, Contexts, Graph, Pair};
    use tch::Device;

    use super::super::toy;
    use super::*;

    /// Makes counts of probabilities: the law of pairs in units of so small a part that rounding does not show.
    fn law(weights: &[[f64; 5]; 5]) -> PairCounts {
        let pairs: Vec<(u32, u32)> = (0..5)
            .flat_map(|i| (0..5).map(move |c| (i, c)))
            .filter(|&(i, c)| weights[i as usize][c as usize] > 0.0)
            .collect();
        let mut counted = PairCounts::of(&pairs);
        let at = |i: i64, c: i64| weights[i as usize][c as usize];
        counted.counts =
            counted.entries.iter().map(|&(i, c)| at(counted.anchors[i as usize], c) as f32).collect();
        counted.totals =
            counted.anchors.iter().map(|&i| weights[i as usize].iter().sum::<f64>() as f32).collect();
        counted
    }

    /// Row P5.
    #[test]
    fn softmax_contexts_have_the_golden_loss() {
        let (e, w) = toy::tables();
        let bias = Tensor::zeros([5], (Kind::Double, Device::Cpu));
        let counted = law(&toy::POSITIVE);
        let anchors = e.index_select(0, &Tensor::from_slice(&counted.anchors));
        let loss = softmax_contexts(Kernels::default(), &anchors, &w, &bias, &counted).double_value(&[]);
        // The law is printed to nine digits and counts are f32.
        assert!((loss - 1.915_428_652).abs() < 1e-6, "{loss:.9}");
    }

    /// In both precisions: the kernel of our own and libtorch's.
    /// Row P5.
    #[test]
    fn softmax_contexts_equal_the_sum_over_pairs() {
        let pairs = [(3, 1), (0, 2), (3, 3), (0, 2), (3, 1), (4, 0), (0, 0), (3, 2), (3, 1)];
        let (e, w) = toy::tables();
        let bias = Tensor::from_slice(&[0.3, -0.2, 0.5, 0.0, -1.0f64]);
        for (kind, tolerance) in [(Kind::Double, 1e-12), (Kind::Float, 1e-5)] {
            let leaves = [&e, &w, &bias].map(|t| t.to_kind(kind).copy().set_requires_grad(true));
            let [e, w, b] = &leaves;
            let counted = PairCounts::of(&pairs);
            let anchors = e.index_select(0, &Tensor::from_slice(&counted.anchors));
            let by_anchor = softmax_contexts(Kernels::default(), &anchors, w, b, &counted);
            let one = |&(i, c): &(u32, u32)| {
                let scores = w.matmul(&e.get(i64::from(i))) + b;
                scores.logsumexp([0], false) - scores.get(i64::from(c))
            };
            let by_pair = pairs.iter().map(one).reduce(|a, b| a + b).unwrap();
            assert!((&by_anchor - &by_pair).abs().double_value(&[]) < tolerance);
            let gradients = |loss: Tensor| Tensor::run_backward(&[loss], &leaves, false, false);
            for (a, b) in gradients(by_anchor).iter().zip(gradients(by_pair)) {
                assert!((a - b).abs().max().double_value(&[]) < tolerance, "{kind:?}");
            }
        }
    }

    fn rows(table: &Tensor, rows: &[i64]) -> Tensor {
        table.index_select(0, &Tensor::from_slice(rows))
    }

    /// Expected losses of the toy's four laws, and both signs of one pair.
    /// Row P4.
    #[test]
    fn negative_contexts_have_the_golden_losses() {
        let (e, w) = toy::tables();
        let loss = |i: i64, c: i64, sign: f64| {
            negative_contexts(&rows(&e, &[i]), &rows(&w, &[c]), &Tensor::from_slice(&[sign]))
                .double_value(&[])
        };
        assert!((loss(0, 1, 1.0) - 1.259_200_813).abs() < 1e-9);
        assert!((loss(0, 1, -1.0) - 0.333_908_659).abs() < 1e-9);
        let expected = |law: &[[f64; 5]; 5], sign: f64| {
            (0..5)
                .flat_map(|i| (0..5).map(move |c| (i, c)))
                .map(|(i, c)| law[i][c] * loss(i as i64, c as i64, sign))
                .sum::<f64>()
        };
        let label = |same: bool| {
            let class = |i: usize| usize::from(i == 3);
            let pair = |i: usize, c: usize| i < 4 && c < 4 && (class(i) == class(c)) == same;
            let count = (0..25).filter(|n| pair(n / 5, n % 5)).count() as f64;
            std::array::from_fn(|i| std::array::from_fn(|c| f64::from(pair(i, c)) / count))
        };
        let negative: [[f64; 5]; 5] =
            std::array::from_fn(|i| [toy::POSITIVE[i].iter().sum::<f64>() / 5.0; 5]);
        let found = [
            expected(&toy::POSITIVE, 1.0),
            expected(&negative, -1.0),
            expected(&label(true), 1.0),
            expected(&label(false), -1.0),
        ];
        // The law is printed to nine digits.
        for (found, golden) in found.iter().zip([0.769_610_996, 0.779_713_781, 0.772_023_629, 0.890_024_783])
        {
            assert!((found - golden).abs() < 1e-8, "{found:.9}, not {golden:.9}");
        }
        let r1 = 5.0 / 6.0;
        let all =
            0.5 * (r1 * found[0] + (1.0 - r1) * found[1]) + 0.5 * (r1 * found[2] + (1.0 - r1) * found[3]);
        assert!((all - 0.781_492_641).abs() < 1e-8, "{all:.9}");
    }

    /// Row P4.
    #[test]
    fn gradients_of_negative_contexts_are_finite_differences() {
        let (e, w) = toy::tables();
        let signs = Tensor::from_slice(&[1.0, -1.0, 1.0, -1.0]);
        let loss = |e: &Tensor| negative_contexts(&rows(e, &[0, 1, 1, 4]), &rows(&w, &[2, 1, 3, 0]), &signs);
        let leaf = e.copy().set_requires_grad(true);
        let gradient = Tensor::run_backward(&[loss(&leaf)], &[&leaf], false, false).remove(0);
        for place in 0..10i64 {
            let moved = |by: f64| {
                let step = Tensor::zeros([10], (Kind::Double, Device::Cpu));
                let _ = step.get(place).fill_(by);
                loss(&(&e + step.view([5, 2]))).double_value(&[])
            };
            let difference = (moved(1e-6) - moved(-1e-6)) / 2e-6;
            assert!((gradient.view([-1]).double_value(&[place]) - difference).abs() < 1e-8);
        }
    }

    /// Scores far out of the range where a sigmoid is above 0 in f32.
    /// Row P4.
    #[test]
    fn negative_contexts_are_stable() {
        let one = |score: f32, sign: f32| {
            let [a, b, s] = [score, 1.0, sign].map(|x| Tensor::from_slice(&[x]));
            negative_contexts(&a.view([1, 1]), &b.view([1, 1]), &s).double_value(&[])
        };
        assert_eq!((one(200.0, -1.0), one(-200.0, 1.0), one(200.0, 1.0)), (200.0, 200.0, 0.0));
    }

    /// Where the loss is lowest, the score of a pair is `ln[r1 p⁺ / ((1 − r1) p⁻)]`, where p⁺ > 0: the toy with embeddings as wide as it has
    /// nodes, trained on pairs as they are drawn.
    /// Row P4.
    #[test]
    fn scores_of_the_toy_approach_the_shifted_pmi() {
        let r1 = 5.0 / 6.0;
        let graph = Graph::from_edges(5, toy::EDGES.map(|(a, b)| (a, b, 1.0)).to_vec()).unwrap();
        let options = ContextOptions { graph: 1.0, ..ContextOptions::paper() };
        let pairs = Contexts::new(&graph, &[], None, options, 7).unwrap().graph_pairs(0..12_000);
        let numbers = |of: fn(&Pair) -> u32| {
            Tensor::from_slice(&pairs.iter().map(|pair| i64::from(of(pair))).collect::<Vec<_>>())
        };
        let (nodes, contexts) = (numbers(|pair| pair.node), numbers(|pair| pair.context));
        let signs: Vec<f64> = pairs.iter().map(|pair| if pair.positive { 1.0 } else { -1.0 }).collect();
        let signs = Tensor::from_slice(&signs);
        let start = |seed: u64| {
            let stream = segue_random::Stream::new(seed, segue_random::Purpose::Weights, &[]);
            let values: Vec<f64> = (0..25).map(|i| 0.3 * stream.normal(i)).collect();
            Tensor::from_slice(&values).view([5, 5]).set_requires_grad(true)
        };
        let (e, w) = (start(1), start(2));
        let velocities = [&e, &w].map(|leaf| leaf.zeros_like().detach());
        for _ in 0..300 {
            let rows = [(&e, &nodes), (&w, &contexts)].map(|(table, numbers)| table.index_select(0, numbers));
            let loss = negative_contexts(&rows[0], &rows[1], &signs) / pairs.len() as f64;
            let gradients = Tensor::run_backward(&[loss], &[&e, &w], false, false);
            tch::no_grad(|| {
                for ((leaf, gradient), velocity) in [&e, &w].iter().zip(gradients).zip(&velocities) {
                    let velocity = velocity.shallow_clone().g_mul_scalar_(0.9).g_add_(&gradient);
                    let _ = leaf.shallow_clone().g_sub_(&(velocity * 2.0));
                }
            });
        }
        let scores = e.matmul(&w.tr()).detach();
        let drawn = |i: u32, c: u32, positive: bool| {
            pairs.iter().filter(|pair| **pair == Pair { node: i, context: c, positive }).count() as f64
        };
        for i in 0..5u32 {
            let marginal = toy::POSITIVE[i as usize].iter().sum::<f64>() / 5.0;
            for c in (0..5u32).filter(|&c| toy::POSITIVE[i as usize][c as usize] > 0.0) {
                let score = scores.double_value(&[i64::from(i), i64::from(c)]);
                let of_draws = (drawn(i, c, true) / drawn(i, c, false)).ln();
                let pmi = (r1 * toy::POSITIVE[i as usize][c as usize] / ((1.0 - r1) * marginal)).ln();
                // Pairs that never come draw all scores on for ever, ever more slowly.
                assert!((score - of_draws).abs() < 0.02, "({i}, {c}): {score:.3}, not {of_draws:.3}");
                // Of the rarest pair some 50 are drawn.
                assert!((score - pmi).abs() < 0.5, "({i}, {c}): {score:.3}, not {pmi:.3}");
            }
        }
    }

    /// Row P13.
    #[test]
    fn disagreement_of_the_toy_is_golden_and_twice_that_of_the_laplacian() {
        let f: Vec<f64> = (0..5).map(|i| f64::from(1 + i).sin()).collect();
        let edges: Vec<(i64, i64)> = toy::EDGES
            .iter()
            .flat_map(|&(a, b)| [(i64::from(a), i64::from(b)), (i64::from(b), i64::from(a))])
            .collect();
        let ends = |end: &dyn Fn(&(i64, i64)) -> i64| {
            let places: Vec<i64> = edges.iter().map(end).collect();
            Tensor::from_slice(&f).index_select(0, &Tensor::from_slice(&places)).unsqueeze(1)
        };
        let ones = Tensor::ones([edges.len() as i64], (Kind::Double, Device::Cpu));
        let all = disagreement(&ends(&|e| e.0), &ends(&|e| e.1), &ones).double_value(&[]);
        let product = |i: i64, j: i64| f[i as usize] * f[j as usize];
        let laplacian: f64 = edges.iter().map(|&(i, j)| product(i, i) - product(i, j)).sum();
        assert!((all - 3.864_612_999).abs() < 1e-9 && (laplacian - 1.932_306_499).abs() < 1e-9, "{all:.9}");
        assert!((all - 2.0 * laplacian).abs() < 1e-12);
        // With weights, `2 f'(D − A)f` as a product of matrices.
        let weight = |(a, b): &(i64, i64)| 0.5 + (a + b) as f64;
        let weights: Vec<f64> = edges.iter().map(weight).collect();
        let all = disagreement(&ends(&|e| e.0), &ends(&|e| e.1), &Tensor::from_slice(&weights));
        let mut matrix = [[0.0; 5]; 5];
        for edge in &edges {
            matrix[edge.0 as usize][edge.0 as usize] += weight(edge);
            matrix[edge.0 as usize][edge.1 as usize] -= weight(edge);
        }
        let product: f64 = (0..25).map(|at| f[at / 5] * matrix[at / 5][at % 5] * f[at % 5]).sum();
        assert!((all.double_value(&[]) - 2.0 * product).abs() < 1e-12);
    }
}
