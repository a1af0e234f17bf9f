//! Rows P2 and P3: walks and contexts, against numbers that a program of Python's standard library printed.

use segue_graph::{
    ContextOptions, Contexts, Covered, Graph, LabelPairs, Pair, PairLaw, PairsPerWalk, Starts, walk,
};
use segue_random::{Draws, Purpose};

/// Nodes of the example: a triangle 0, 1, 2 with the tail 2, 3, 4; node 4 has no label.
const NODES: usize = 5;
const LABELS: [(u32, u32); 4] = [(0, 0), (1, 0), (2, 0), (3, 1)];

fn example() -> Graph {
    let edges = [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4)];
    Graph::from_edges(NODES, edges.map(|(from, to)| (from, to, 1.0))).unwrap()
}

/// The law of positive pairs within `|j − k| < 3` on 10 nodes of a walk.
const NEAR: [f64; NODES * NODES] = [
    0.072562101,
    0.050678881,
    0.056433475,
    0.012287151,
    0.0, //
    0.050678881,
    0.072562101,
    0.056433475,
    0.012287151,
    0.0, //
    0.056433475,
    0.056433475,
    0.117186842,
    0.041314184,
    0.019464173, //
    0.012287151,
    0.012287151,
    0.041314184,
    0.100302066,
    0.045818866, //
    0.0,
    0.0,
    0.019464173,
    0.045818866,
    0.047952178,
];
const MARGINAL: [f64; NODES] = [0.191961608, 0.191961608, 0.290832150, 0.212009417, 0.113235217];

/// Half a unit of the last printed digit.
const PRINTED: f64 = 5.1e-10;

fn contexts(graph: &Graph, change: impl FnOnce(&mut ContextOptions)) -> Contexts<'_> {
    let mut options = ContextOptions::paper();
    change(&mut options);
    Contexts::new(graph, &LABELS, None, options, 7).unwrap()
}

fn close(found: &[f64], expected: &[f64], within: f64) {
    assert_eq!(found.len(), expected.len());
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() < within, "{at}: {found}, expected {expected}");
    }
}

/// Row P3.
#[test]
fn the_law_of_graph_pairs_is_the_printed_one() {
    let graph = example();
    let law = contexts(&graph, |options| options.positive = 1.0).graph_law();
    close(&law.positive, &NEAR, PRINTED);
    close(&law.marginal(), &MARGINAL, PRINTED);
    let self_mass = |law: &PairLaw| (0..NODES).map(|node| law.positive[node * (NODES + 1)]).sum::<f64>();
    close(&[self_mass(&law)], &[0.410565288], PRINTED);
    let mut options = ContextOptions::public_program();
    assert_eq!((ContextOptions::paper().places().len(), options.places().len()), (44, 65));
    let law = Contexts::new(&graph, &LABELS, None, options.clone(), 7).unwrap().graph_law();
    close(&[self_mass(&law)], &[0.335992254], PRINTED);
    // Without places paired with themselves a node is still its own context: two steps may lead back.
    options.within = false;
    let places = options.places();
    assert!(places.len() == 65 - 11 && places.iter().all(|(first, second)| first != second));
}

/// Row P3.
#[test]
fn negative_pairs_take_the_marginal_of_nodes_and_any_context() {
    let graph = example();
    let law = contexts(&graph, |options| options.positive = 0.25).graph_law();
    let expected: Vec<f64> =
        (0..NODES * NODES).map(|at| 0.75 * MARGINAL[at / NODES] / NODES as f64).collect();
    close(&law.negative, &expected, PRINTED);
    close(&law.positive, &NEAR.map(|chance| 0.25 * chance), PRINTED);
}

/// Row P3.
#[test]
fn label_pairs_follow_their_two_laws() {
    let graph = example();
    for (how, inside, alone) in
        [(LabelPairs::UniformPairs, 0.1, 0.1), (LabelPairs::AnchorFirst, 1.0 / 12.0, 0.25)]
    {
        let sampler = contexts(&graph, |options| (options.labels, options.positive) = (how, 0.5));
        let law = sampler.label_law();
        for node in 0..NODES {
            for context in 0..NODES {
                let expected = match (node, context) {
                    (3, 3) => 0.5 * alone,
                    (0..3, 0..3) => 0.5 * inside,
                    _ => 0.0,
                };
                assert!((law.positive[node * NODES + context] - expected).abs() < 1e-15, "{node} {context}");
            }
        }
        // Six ordered pairs differ: three of 0, 1, 2 with 3, three of 3 with them.
        let negative = match how {
            LabelPairs::UniformPairs => [1.0 / 12.0, 1.0 / 12.0],
            LabelPairs::AnchorFirst => [1.0 / 8.0, 1.0 / 24.0],
        };
        close(&[law.negative[3], law.negative[3 * NODES]], &negative, 1e-15);
    }
}

/// Pearson's statistic of draws against a law whose probabilities sum to one, and its degrees of freedom.
fn chi_squared(pairs: &[Pair], law: &PairLaw) -> (f64, f64) {
    let mut counts = vec![0f64; 2 * NODES * NODES];
    for pair in pairs {
        let half = if pair.positive { 0 } else { NODES * NODES };
        counts[half + pair.node as usize * NODES + pair.context as usize] += 1.0;
    }
    let (mut statistic, mut cells) = (0.0, 0.0);
    for (count, chance) in counts.iter().zip(law.positive.iter().chain(&law.negative)) {
        if *chance == 0.0 {
            assert_eq!(*count, 0.0, "a pair that cannot be");
            continue;
        }
        let expected = chance * pairs.len() as f64;
        statistic += (count - expected).powi(2) / expected;
        cells += 1.0;
    }
    (statistic, cells - 1.0)
}

/// A statistic that one sampler in about 30,000 that is right exceeds: four deviations above the mean.
fn fits((statistic, freedom): (f64, f64)) {
    assert!(
        statistic < freedom + 4.0 * (2.0 * freedom).sqrt(),
        "{statistic} with {freedom} degrees of freedom"
    );
}

/// Row P2.
#[test]
fn a_million_pairs_follow_the_printed_law() {
    let graph = example();
    let pairs = contexts(&graph, |options| options.positive = 1.0).graph_pairs(0..1_000_000);
    let law = PairLaw { nodes: NODES, positive: NEAR.to_vec(), negative: vec![0.0; NODES * NODES] };
    fits(chi_squared(&pairs, &law));
}

/// Row P3.
#[test]
fn a_million_mixed_pairs_follow_their_law() {
    let graph = example();
    for labels in [LabelPairs::UniformPairs, LabelPairs::AnchorFirst] {
        let sampler = contexts(&graph, |options| options.labels = labels);
        let law = sampler.law();
        let total: f64 = law.positive.iter().chain(&law.negative).sum();
        assert!((total - 1.0).abs() < 1e-12);
        let pairs = sampler.pairs(0..1_000_000);
        let positive = pairs.iter().filter(|pair| pair.positive).count() as f64;
        // Five standard deviations of a share of a million draws.
        assert!((positive / 1e6 - 5.0 / 6.0).abs() < 5.0 * (5.0f64 / 36.0 / 1e6).sqrt());
        fits(chi_squared(&pairs, &law));
    }
}

/// The naive second way: every walk of `nodes` nodes with its probability.
fn all_walks(graph: &Graph, nodes: usize) -> Vec<(Vec<u32>, f64)> {
    let total = graph.nodes();
    let mut walks: Vec<_> = (0..total as u32).map(|start| (vec![start], 1.0 / total as f64)).collect();
    for _ in 1..nodes {
        walks = walks
            .into_iter()
            .flat_map(|(nodes, chance)| {
                let last = nodes[nodes.len() - 1];
                let degree = graph.degree(last);
                let weights = graph.weights(last);
                let next = graph.neighbours(last).iter().enumerate();
                next.map(move |(entry, neighbour)| {
                    let mut longer = nodes.clone();
                    longer.push(*neighbour);
                    (longer, chance * weights.map_or(1.0, |weights| f64::from(weights[entry])) / degree)
                })
                .collect::<Vec<_>>()
            })
            .collect();
    }
    walks
}

/// Row P3.
#[test]
fn the_law_is_that_of_every_walk_counted_out() {
    // Weights, a self-loop, and an isolated node that gives nothing.
    let edges = [(0, 1, 1.0), (0, 2, 2.0), (1, 2, 0.5), (2, 3, 4.0), (3, 3, 1.5)];
    let graph = Graph::from_edges(NODES, edges).unwrap();
    let covered = [true, true, false, true, true];
    for (covered, within) in [(None, true), (None, false), (Some(&covered[..]), true)] {
        let mut options = ContextOptions::paper();
        (options.walk, options.window, options.within, options.positive) = (5, 3, within, 1.0);
        let places = options.places();
        let held = |node: u32| covered.is_none_or(|covered| covered[node as usize]);
        // Walks start at nodes that pairs may hold.
        let starts = (0..NODES as u32).filter(|node| held(*node)).count();
        let mut expected = vec![0.0; NODES * NODES];
        for (nodes, chance) in all_walks(&graph, 5).into_iter().filter(|(nodes, _)| held(nodes[0])) {
            let chance = chance * NODES as f64 / starts as f64;
            for (first, second) in &places {
                let (node, context) = (nodes[*first], nodes[*second]);
                if held(node) && held(context) {
                    expected[node as usize * NODES + context as usize] += chance / places.len() as f64;
                }
            }
        }
        let covers = covered.map(|flags| Covered::new(flags.iter().copied()));
        let sampler = Contexts::new(&graph, &LABELS, covers.as_ref(), options, 3).unwrap();
        close(&sampler.graph_law().positive, &expected, 1e-12);
        let drawn = sampler.graph_pairs(0..50_000);
        let share = drawn.len() as f64 / 50_000.0;
        let total = expected.iter().sum::<f64>();
        assert!((share - total).abs() < 0.01, "{share}");
        // The law of those draws that give a pair.
        let positive = expected.iter().map(|chance| chance / total).collect();
        let law = PairLaw { nodes: NODES, positive, negative: vec![0.0; NODES * NODES] };
        fits(chi_squared(&drawn, &law));
    }
}

/// Inductively the public program permutes the nodes that training sees, not all.
/// Row P9.
#[test]
fn walks_start_at_each_node_that_pairs_may_hold_before_at_any_again() {
    let graph = Graph::from_edges(NODES, (0..NODES as u32).map(|node| (node, node, 1.0))).unwrap();
    let covered = Covered::new([true, false, true, true, false]);
    let mut options = ContextOptions::public_program();
    (options.walk, options.window) = (1, 0);
    let sampler = Contexts::new(&graph, &[], Some(&covered), options, 3).unwrap();
    for pass in 0..4 {
        let pairs = sampler.graph_pairs(3 * pass..3 * pass + 3);
        let mut starts: Vec<u32> = pairs.iter().map(|pair| pair.node).collect();
        starts.sort_unstable();
        assert_eq!(starts, [0, 2, 3]);
    }
}

/// Draws on a graph with weights against the law of every walk counted out.
/// Row P2.
#[test]
fn a_million_pairs_of_a_graph_with_weights_follow_the_law_of_its_walks() {
    let edges = [(0, 1, 1.0), (0, 2, 2.0), (1, 2, 0.5), (2, 3, 4.0), (3, 3, 1.5), (3, 4, 0.25)];
    let graph = Graph::from_edges(NODES, edges).unwrap();
    let sampler = contexts(&graph, |options| (options.walk, options.positive) = (5, 1.0));
    let places = sampler.options().places();
    let mut positive = vec![0.0; NODES * NODES];
    for (nodes, chance) in all_walks(&graph, 5) {
        for (first, second) in &places {
            positive[nodes[*first] as usize * NODES + nodes[*second] as usize] +=
                chance / places.len() as f64;
        }
    }
    let law = PairLaw { nodes: NODES, positive, negative: vec![0.0; NODES * NODES] };
    let pairs = sampler.graph_pairs(0..1_000_000);
    fits(chi_squared(&pairs, &law));
    // The same walks without weights are another law.
    let plain = Graph::from_edges(NODES, edges.map(|(from, to, _)| (from, to, 1.0))).unwrap();
    let others =
        contexts(&plain, |options| (options.walk, options.positive) = (5, 1.0)).graph_pairs(0..1_000_000);
    assert!(chi_squared(&others, &law).0 > 1000.0);
}

/// Row P2.
#[test]
fn steps_follow_weights_and_duplicates() {
    let lists = vec![vec![1, 1, 1, 2], vec![0, 0, 0], vec![0]];
    let listed = Graph::from_lists(lists, Default::default()).unwrap();
    let weighted = Graph::from_edges(3, [(0, 1, 3.0), (0, 2, 1.0)]).unwrap();
    for graph in [listed, weighted] {
        let mut draws = Draws::new(1, Purpose::Contexts, &[]);
        let hits = (0..100_000).filter(|_| graph.step(0, draws.uniform()) == Some(1)).count();
        assert!((hits as f64 / 1e5 - 0.75).abs() < 5.0 * (0.75f64 * 0.25 / 1e5).sqrt(), "{hits}");
    }
}

/// Row P2.
#[test]
fn walks_go_along_edges_and_end_where_there_are_none() {
    let graph = Graph::from_edges(6, example().edges()).unwrap();
    let mut draws = Draws::new(1, Purpose::Contexts, &[]);
    let nodes = walk(&graph, 4, 50, &mut draws);
    assert_eq!(nodes.len(), 51);
    assert!(nodes.windows(2).all(|step| graph.neighbours(step[0]).contains(&step[1])));
    assert_eq!(walk(&graph, 5, 50, &mut draws), [5]);
}

/// Row P3.
#[test]
fn what_a_number_gives_does_not_depend_on_who_draws_it() {
    let graph = example();
    for per_walk in [PairsPerWalk::One, PairsPerWalk::All] {
        let sampler = contexts(&graph, |options| (options.per_walk, options.negatives) = (per_walk, 2));
        for draw in [Contexts::graph_pairs, Contexts::label_pairs, Contexts::pairs] {
            let whole = draw(&sampler, 0..40);
            let parts = [draw(&sampler, 0..13), draw(&sampler, 13..14), draw(&sampler, 14..40)].concat();
            assert_eq!(whole, parts);
            let other = Contexts::new(&graph, &LABELS, None, sampler.options().clone(), 8).unwrap();
            assert_ne!(whole, draw(&other, 0..40));
        }
    }
}

/// Row P3.
#[test]
fn the_public_programs_walks_start_everywhere_and_give_all_pairs() {
    let graph = example();
    let mut options = ContextOptions::public_program();
    options.starts = Starts::Permuted;
    options.negatives = 5;
    let sampler = Contexts::new(&graph, &LABELS, None, options, 1).unwrap();
    for pass in 0..3 {
        // 65 pairs a walk, each with five negatives behind it; the first place is the start.
        let pairs = sampler.graph_pairs(pass * 5..(pass + 1) * 5);
        assert_eq!(pairs.len(), 5 * 65 * 6);
        let mut starts: Vec<u32> = pairs.chunks(65 * 6).map(|pairs| pairs[0].node).collect();
        starts.sort_unstable();
        assert_eq!(starts, [0, 1, 2, 3, 4]);
        for group in pairs.chunks(6) {
            assert!(group[0].positive && group[1..].iter().all(|pair| !pair.positive));
            assert!(group.iter().all(|pair| pair.node == group[0].node));
        }
    }
    for group in sampler.label_pairs(0..1000).chunks(6) {
        let class = |node: u32| LABELS[node as usize].1;
        assert_eq!(class(group[0].node), class(group[0].context));
        assert!(group[1..].iter().all(|pair| class(pair.node) != class(pair.context)));
    }
}

/// Row P3.
#[test]
fn where_there_is_no_pair_there_is_none() {
    let graph = example();
    let sampler = |labels: &[(u32, u32)], positive| {
        for how in [LabelPairs::AnchorFirst, LabelPairs::UniformPairs] {
            let mut options = ContextOptions::paper();
            (options.labels, options.positive) = (how, positive);
            let sampler = Contexts::new(&graph, labels, None, options, 1).unwrap();
            let pairs = sampler.label_pairs(0..100);
            let total: f64 = sampler.label_law().positive.iter().sum();
            match (labels.len(), positive == 1.0) {
                (0, _) => assert!(pairs.is_empty() && total == 0.0),
                (_, true) => assert!(pairs.len() == 100 && (total - 1.0).abs() < 1e-12),
                // One class: no pair differs.
                (_, false) => assert!(pairs.is_empty()),
            }
        }
    };
    sampler(&[], 1.0);
    sampler(&[(0, 4), (2, 4)], 1.0);
    sampler(&[(0, 4), (2, 4)], 0.0);
}

#[test]
fn options_without_a_pair_are_refused() {
    let graph = example();
    let refused = |change: &dyn Fn(&mut ContextOptions)| {
        let mut options = ContextOptions::paper();
        change(&mut options);
        Contexts::new(&graph, &LABELS, None, options, 1).err().unwrap().to_string()
    };
    assert_eq!(refused(&|o| o.positive = 1.5), "the probability `positive` is 1.5, expected 0 to 1");
    assert_eq!(refused(&|o| o.graph = f64::NAN), "the probability `graph` is NaN, expected 0 to 1");
    assert_eq!(refused(&|o| o.walk = 0), "a walk of 0 nodes, expected 1 to 4096");
    let alone = refused(&|o| (o.walk, o.within) = (1, false));
    assert_eq!(alone, "a walk of 1 nodes with a window of 2 has no pair");
    let bad = Contexts::new(&graph, &[(5, 0)], None, ContextOptions::paper(), 1).err().unwrap();
    assert_eq!(
        (bad.to_string().as_str(), bad.exit_code()),
        ("a label of node 5 of a graph with 5 nodes", 64)
    );
}
