//! T1 to T5 and T10: the position encodings, each against a naive second way.

use segue_kernels::Parameters;
use segue_layers::{Memory, relative_shift};
use segue_transfo_xl::{AttnType, Encoding, Positions, TransfoXl, TransfoXlConfig};
use tch::{Device, Kind, Tensor};

use crate::naive::{Pair, embed, four_terms, layer, sinusoid};
use crate::tiny::{difference, model, parameters, run, tiny, tokens};

const D: i64 = 8;
const MEM: i64 = 3;
const QUERY: i64 = 4;

/// States of one layer over a memory of [`MEM`] positions and a segment of [`QUERY`] tokens, the model's and the naive
/// ones. `added` is what the encoding adds to position `i` of memory and segment.
fn both_ways(
    config: &TransfoXlConfig,
    added: impl Fn(&Parameters, i64) -> Tensor,
    score: impl Fn(Pair) -> Tensor,
) -> (Tensor, Tensor) {
    let parameters = parameters(config);
    // What starts at zero would hide what it does.
    for spec in parameters.specs().iter().filter(|spec| spec.name.ends_with("r_bias")) {
        tch::no_grad(|| {
            parameters.get(&spec.name).copy_(&Tensor::randn(&spec.shape, (Kind::Double, Device::Cpu)))
        });
    }
    let mut model = TransfoXl::new(config, &parameters);
    model.context.clamp_len = config.clamp_len;
    let layers = vec![Tensor::arange(MEM * D, (Kind::Double, Device::Cpu)).sin().view([1, MEM, D])];
    let memory = Memory { layers, documents: None };
    let ids = tokens(QUERY);
    let found = tch::no_grad(|| model.forward(&ids, &memory, None)).hidden.get(0);
    let positions: Vec<Tensor> = (0..MEM + QUERY).map(|i| added(&parameters, i)).collect();
    let positions = Tensor::stack(&positions, 0);
    let mem = memory.layers[0].get(0) + positions.narrow(0, 0, MEM);
    let hidden = embed(&parameters, &ids) + positions.narrow(0, MEM, QUERY);
    (found, layer(config, &parameters, &mem, &hidden, score))
}

fn one_layer(attn_type: AttnType) -> TransfoXlConfig {
    TransfoXlConfig { n_layer: 1, attn_type, ..tiny() }
}

fn nothing(_: &Parameters, _: i64) -> Tensor {
    Tensor::zeros([D], (Kind::Double, Device::Cpu))
}

fn content(pair: Pair) -> Tensor {
    pair.q.dot(pair.k)
}

/// Row T1.
#[test]
fn absolute_sinusoids_equal_a_vanilla_layer() {
    let (found, expected) = both_ways(&one_layer(AttnType::Absolute), |_, i| sinusoid(i, D), content);
    assert!(difference(&found, &expected) < 1e-12);
}

/// With W_{k,R}, u and v zero, the relative model is a vanilla one whose words carry their position.
/// Row T1.
#[test]
fn absolute_sinusoids_equal_the_relative_path_with_its_terms_off() {
    let length = 9;
    let ids = Tensor::arange(length, (Kind::Int64, Device::Cpu)).view([1, length]);
    let absolute = TransfoXlConfig { attn_type: AttnType::Absolute, mem_len: 0, ..tiny() };
    let relative = TransfoXlConfig { attn_type: AttnType::Relative, ..absolute.clone() };
    let (own, other) = (parameters(&absolute), parameters(&relative));
    tch::no_grad(|| {
        for spec in other.specs() {
            let mut target = other.get(&spec.name);
            if ["r_net", "r_w_bias", "r_r_bias"].iter().any(|name| spec.name.contains(name)) {
                let _ = target.zero_();
            } else {
                target.copy_(&own.get(&spec.name));
            }
        }
        let table = other.get("transformer.word_emb.emb_layers.0.weight");
        let positions: Vec<Tensor> = (0..length).map(|i| sinusoid(i, D) / (D as f64).sqrt()).collect();
        let _ = table.narrow(0, 0, length).g_add_(&Tensor::stack(&positions, 0));
    });
    let found = run(&TransfoXl::new(&absolute, &own), &ids, length);
    assert!(difference(&found, &run(&TransfoXl::new(&relative, &other), &ids, length)) < 1e-12);
}

fn learned(parameters: &Parameters, row: i64) -> Tensor {
    parameters.get("transformer.layers.0.r_emb").detach().get(row)
}

/// Row T2.
#[test]
fn learned_positions_are_added_to_the_layers_input() {
    let (found, expected) = both_ways(&one_layer(AttnType::Learned), learned, content);
    assert!(difference(&found, &expected) < 1e-12);
}

/// Row T2.
#[test]
fn learned_positions_beyond_the_trained_length_are_those_at_its_end() {
    let config = TransfoXlConfig { max_klen: 5, ..one_layer(AttnType::Learned) };
    let (found, expected) = both_ways(&config, |p, i| learned(p, i.min(4)), content);
    assert!(difference(&found, &expected) < 1e-12);
}

/// Row T2.
#[test]
fn every_layer_has_its_table_and_trains_it() {
    let config = TransfoXlConfig { attn_type: AttnType::Learned, max_klen: 6, ..tiny() };
    let parameters = parameters(&config);
    let model = TransfoXl::new(&config, &parameters);
    let output = model.forward(&tokens(6), &model.memory_start(1), None);
    model.nll(&output.hidden, &tokens(6).flip([1])).sum(None::<Kind>).backward();
    for layer in 0..3 {
        let table = parameters.get(&format!("transformer.layers.{layer}.r_emb"));
        assert_eq!(table.size(), [6, D]);
        let norms = table.grad().square().sum_dim_intlist(1, false, Kind::Double);
        assert_eq!(norms.gt(0.0).sum(Kind::Int64).int64_value(&[]), 6, "layer {layer}");
    }
}

/// q·k + q·R̂_distance, and with the reference's extras u·k and a bias for the distance.
fn shaw(pair: Pair, rows: i64, extras: bool) -> Tensor {
    let row = pair.distance.min(rows - 1);
    let mut score = pair.q.dot(pair.k) + pair.q.dot(&(pair.get)("dec_attn.r_emb").get(row).get(pair.head));
    if extras {
        score += (pair.get)("dec_attn.r_w_bias").get(pair.head).dot(pair.k);
        score += (pair.get)("dec_attn.r_bias").get(row).get(pair.head);
    }
    score
}

/// Row T3.
#[test]
fn shaws_table_equals_the_pairs_and_its_farthest_entry_pads_it() {
    for (max_klen, shaw_extras) in [(64, false), (64, true), (4, false), (4, true)] {
        let config = TransfoXlConfig { max_klen, shaw_extras, ..one_layer(AttnType::Shaw) };
        let (found, expected) = both_ways(&config, nothing, |pair| shaw(pair, max_klen as i64, shaw_extras));
        assert!(difference(&found, &expected) < 1e-12, "{max_klen} rows, extras {shaw_extras}");
    }
}

/// The reference draws Shaw's table and u, and starts the biases of distances at zero.
/// Row T3.
#[test]
fn biases_of_distances_start_at_zero() {
    let config = TransfoXlConfig { shaw_extras: true, ..one_layer(AttnType::Shaw) };
    let parameters = parameters(&config);
    let largest = |name: &str| {
        parameters.get(&format!("transformer.layers.0.dec_attn.{name}")).abs().max().double_value(&[])
    };
    assert_eq!(largest("r_bias"), 0.0);
    assert!(largest("r_emb") > 0.1 && largest("r_w_bias") > 0.1);
}

/// Row T4.
#[test]
fn four_terms_pair_by_pair_give_the_same_states() {
    let (found, expected) =
        both_ways(&one_layer(AttnType::Relative), nothing, |pair| four_terms(&pair, pair.distance, D));
    assert!(difference(&found, &expected) < 1e-12);
}

/// Without u and v, ours is Shaw's with the projected sinusoids in the table.
/// Row T4.
#[test]
fn without_u_and_v_terms_a_and_b_are_left() {
    let ours = TransfoXlConfig { init_std: 0.3, ..tiny() };
    let shaws = TransfoXlConfig { attn_type: AttnType::Shaw, max_klen: 16, ..ours.clone() };
    let (own, other) = (parameters(&ours), parameters(&shaws));
    let table: Vec<Tensor> = (0..16).map(|distance| sinusoid(distance, D)).collect();
    let table = Tensor::stack(&table, 0);
    tch::no_grad(|| {
        for layer in 0..3 {
            let name = |name: &str| format!("transformer.layers.{layer}.dec_attn.{name}");
            let _ = own.get(&name("r_w_bias")).zero_();
            let _ = own.get(&name("r_r_bias")).zero_();
            let projected = table.matmul(&own.get(&name("r_net.weight")).transpose(0, 1));
            other.get(&name("r_emb")).copy_(&projected.view([16, 2, 4]));
        }
    });
    for spec in other.specs().iter().filter(|spec| !spec.name.contains("r_emb")) {
        tch::no_grad(|| other.get(&spec.name).copy_(&own.get(&spec.name)));
    }
    let ids = tokens(13);
    let found = run(&TransfoXl::new(&ours, &own), &ids, 5);
    assert!(difference(&found, &run(&TransfoXl::new(&shaws, &other), &ids, 5)) < 1e-12);
}

/// The shift's vectors of docs/book/src/contributing/expected-values.md: score of row x at distance p as the number 10 x + p, −1 for the padding.
/// Row T5.
#[test]
fn the_shift_gives_the_golden_vectors() {
    let shifted = |query: i64, key: i64| {
        let row = |x: i64| std::iter::once(-1).chain((0..key).map(move |k| 10 * x + key - 1 - k));
        let rows: Vec<i64> = (1..=query).flat_map(row).collect();
        Vec::<i64>::try_from(
            relative_shift(&Tensor::from_slice(&rows).view([1, query, key + 1])).reshape([-1]),
        )
        .unwrap()
    };
    assert_eq!(shifted(2, 4), [12, 11, 10, -1, 23, 22, 21, 20]);
    assert_eq!(shifted(3, 4), [11, 10, -1, 23, 22, 21, 20, -1, 33, 32, 31, 30]);
}

/// The position keys that attention multiplies with are one for each of the mem + query distances, not one for each pair
/// of query and key.
/// Row T5.
#[test]
fn distances_are_projected_once_not_once_a_pair() {
    let config = tiny();
    let model = model(&config);
    for (mem, query) in [(6, 2), (4, 4), (0, 8)] {
        let positions =
            Positions::new(&config, &model.context, mem + query, (Kind::Double, Device::Cpu), |x| x);
        for layer in 0..3 {
            let keys = Encoding::new(&config, &parameters(&config), layer).position_keys(&positions).unwrap();
            assert_eq!(keys.size(), [8, 2, 4]);
        }
    }
}

/// Row T10.
#[test]
fn distances_above_the_clamp_score_as_those_at_it() {
    let config = TransfoXlConfig { clamp_len: 2, ..one_layer(AttnType::Relative) };
    let (found, expected) = both_ways(&config, nothing, |pair| four_terms(&pair, pair.distance.min(2), D));
    assert!(difference(&found, &expected) < 1e-12);
    let (unclamped, _) =
        both_ways(&one_layer(AttnType::Relative), nothing, |pair| four_terms(&pair, pair.distance, D));
    assert!(difference(&found, &unclamped) > 1e-6);
}
