//! Transformer-XL against reference numbers, and the invariants of its specification in double
//! precision (spec section 7).

use std::path::Path;

use segue_configs::{MemoryStart, ModelConfig, TransfoXlConfig};
use segue_trainer::Parameters;
use segue_trainer::model::{Memory, TransfoXl, specs};
use tch::{Device, Kind, Tensor};

const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared");

#[test]
fn reference_numbers_hold_in_every_group() {
    let folder = Path::new(SHARED).join("fixtures/transfoxl_tiny");
    if !folder.exists() {
        println!("skipped: no reference files at {}", folder.display());
        return;
    }
    let groups = segue_trainer::parity::parity(&folder, &folder.join("cases.safetensors")).unwrap();
    assert_eq!(groups.len(), 3 * 5);
    for group in groups {
        println!("{:24} {:3} tensors  {:.2e}", group.name, group.tensors, group.error);
        assert!(group.holds(), "{group:?}");
    }
}

fn tiny() -> TransfoXlConfig {
    TransfoXlConfig {
        vocab_size: 17,
        d_model: 8,
        n_head: 2,
        d_inner: 12,
        n_layer: 3,
        mem_len: 64,
        dropout: 0.0,
        init_std: 0.5,
        memory_start: MemoryStart::Empty,
        ..Default::default()
    }
}

fn model(config: &TransfoXlConfig) -> TransfoXl {
    TransfoXl::new(config, &Parameters::initialise(TransfoXl::specs(config), 5, Kind::Double))
}

fn tokens(length: i64) -> Tensor {
    let ids: Vec<i64> = (0..length).map(|i| (i * i * 7 + 3 * i + 1) % 17).collect();
    Tensor::from_slice(&ids).view([1, length])
}

/// Hidden states of `ids` fed in segments of `chunk`, memory carried.
fn run(model: &TransfoXl, ids: &Tensor, chunk: i64) -> Tensor {
    let mut memory = model.memory_start(1);
    let mut out = Vec::new();
    let mut start = 0;
    while start < ids.size()[1] {
        let length = chunk.min(ids.size()[1] - start);
        let output = tch::no_grad(|| model.forward(&ids.narrow(1, start, length), &memory, None));
        out.push(output.hidden);
        memory = output.memory;
        start += length;
    }
    Tensor::cat(&out, 1)
}

fn difference(a: &Tensor, b: &Tensor) -> f64 {
    (a - b).abs().max().double_value(&[])
}

#[test]
fn chunks_with_long_memory_equal_one_pass() {
    for pre_lnorm in [false, true] {
        let model = model(&TransfoXlConfig { pre_lnorm, ..tiny() });
        let ids = tokens(13);
        let whole = run(&model, &ids, 13);
        for chunk in [1, 2, 3, 5] {
            let found = difference(&run(&model, &ids, chunk), &whole);
            // Products of other shapes may round the last bit another way; nothing more.
            assert!(found < 1e-14, "chunk {chunk}: {found:e}");
        }
    }
}

#[test]
fn short_memory_without_a_band_does_differ() {
    let model = model(&TransfoXlConfig { mem_len: 4, ..tiny() });
    let ids = tokens(13);
    assert!(difference(&run(&model, &ids, 2), &run(&model, &ids, 13)) > 1e-3);
}

#[test]
fn same_length_attention_does_not_depend_on_the_chunk() {
    let model = model(&TransfoXlConfig { mem_len: 4, same_length: true, ..tiny() });
    let ids = tokens(13);
    let whole = run(&model, &ids, 13);
    for chunk in [1, 2, 3, 5] {
        assert!(difference(&run(&model, &ids, chunk), &whole) < 1e-14, "chunk {chunk}");
    }
}

/// Last position that a change of token 0 reaches.
fn reach(config: &TransfoXlConfig, chunk: i64) -> i64 {
    let model = model(config);
    let ids = tokens(30);
    let changed = ids.copy();
    let _ = changed.get(0).get(0).fill_(16);
    let difference =
        (run(&model, &ids, chunk) - run(&model, &changed, chunk)).abs().amax([0i64, 2].as_slice(), false);
    let positions = difference.gt(0.0).nonzero().squeeze_dim(1);
    positions.max().int64_value(&[])
}

#[test]
fn perturbation_reaches_as_far_as_layers_times_memory() {
    let with = |mem_len, same_length| TransfoXlConfig { mem_len, same_length, ..tiny() };
    assert_eq!(reach(&with(4, false), 4), 15);
    assert_eq!(reach(&with(4, false), 2), 13);
    assert_eq!(reach(&with(0, false), 4), 3);
    assert_eq!(reach(&with(4, true), 30), 9);
}

#[test]
fn no_gradient_enters_the_memory() {
    let config = tiny();
    let model = model(&config);
    let memory = Memory {
        layers: (0..3)
            .map(|_| Tensor::rand([1, 5, 8], (Kind::Double, Device::Cpu)).set_requires_grad(true))
            .collect(),
        documents: None,
    };
    let output = model.forward(&tokens(4), &memory, None);
    output.hidden.sum(None::<Kind>).backward();
    for (read, written) in memory.layers.iter().zip(&output.memory.layers) {
        assert!(!read.grad().defined() && !written.requires_grad());
    }
    assert_eq!(output.memory.len(), 9);
}

/// Relative attention of one layer written out pair by pair from the four terms (thesis 2.1.3), with
/// no shift and no batched product.
#[test]
fn four_terms_pair_by_pair_give_the_same_states() {
    let config = TransfoXlConfig { n_layer: 1, ..tiny() };
    let parameters = Parameters::initialise(TransfoXl::specs(&config), 5, Kind::Double);
    let model = TransfoXl::new(&config, &parameters);
    let (query, mem, d, heads, width) = (4, 3, 8, 2, 4);
    let layers = vec![Tensor::rand([1, mem, d], (Kind::Double, Device::Cpu))];
    let memory = Memory { layers, documents: None };
    let ids = tokens(query);
    let found = tch::no_grad(|| model.forward(&ids, &memory, None)).hidden;

    let get = |name: &str| parameters.get(&format!("transformer.layers.0.{name}")).detach();
    let embedding = parameters.get("transformer.word_emb.emb_layers.0.weight").detach();
    let hidden = embedding.index_select(0, &ids.get(0)) * (d as f64).sqrt(); // [query, d]
    let all = Tensor::cat(&[memory.layers[0].get(0), hidden.shallow_clone()], 0); // [key, d]
    let qkv = get("dec_attn.qkv_net.weight");
    let part = |i: i64, head: i64| qkv.narrow(0, i * heads * width + head * width, width); // [width, d]
    let mut read = Vec::new();
    for head in 0..heads {
        let (u, v) = (get("dec_attn.r_w_bias").get(head), get("dec_attn.r_r_bias").get(head));
        let w_r = get("dec_attn.r_net.weight").narrow(0, head * width, width);
        for i in 0..query {
            let q = part(0, head).mv(&hidden.get(i));
            let scores: Vec<f64> = (0..=mem + i)
                .map(|j| {
                    let k = part(1, head).mv(&all.get(j));
                    let r = w_r.mv(&sinusoid(mem + i - j, d));
                    let terms = q.dot(&k) + q.dot(&r) + u.dot(&k) + v.dot(&r);
                    terms.double_value(&[]) / (width as f64).sqrt()
                })
                .collect();
            let weights = Tensor::from_slice(&scores).softmax(0, None::<Kind>);
            let values = all.narrow(0, 0, mem + i + 1).matmul(&part(2, head).transpose(0, 1));
            read.push(weights.unsqueeze(0).matmul(&values).squeeze_dim(0));
        }
    }
    let read =
        Tensor::stack(&read, 0).view([heads, query, width]).transpose(0, 1).reshape([query, heads * width]);
    let norm = |x: Tensor, prefix: &str| {
        let get = |name: &str| get(&format!("{prefix}.layer_norm.{name}"));
        let centred = &x - x.mean_dim(1, true, None::<Kind>);
        let variance = (&centred * &centred).mean_dim(1, true, None::<Kind>);
        centred / (variance + 1e-5).sqrt() * get("weight") + get("bias")
    };
    let hidden = norm(hidden + read.matmul(&get("dec_attn.o_net.weight").transpose(0, 1)), "dec_attn");
    let linear = |x: &Tensor, i: i64| {
        x.matmul(&get(&format!("pos_ff.CoreNet.{i}.weight")).transpose(0, 1))
            + get(&format!("pos_ff.CoreNet.{i}.bias"))
    };
    let expected = norm(&hidden + linear(&linear(&hidden, 0).relu(), 3), "pos_ff");
    assert!(difference(&found.get(0), &expected) < 1e-12);
}

/// R_p of the thesis' convention: sines, then cosines, of p / 10000^(2m/d).
fn sinusoid(distance: i64, d: i64) -> Tensor {
    let angle = |m: i64| distance as f64 / 10000f64.powf(2.0 * m as f64 / d as f64);
    let values: Vec<f64> =
        (0..d / 2).map(|m| angle(m).sin()).chain((0..d / 2).map(|m| angle(m).cos())).collect();
    Tensor::from_slice(&values)
}

fn adaptive(div_val: usize) -> TransfoXlConfig {
    TransfoXlConfig { cutoffs: vec![5, 11], div_val, vocab_size: 17, ..tiny() }
}

#[test]
fn probabilities_of_the_vocabulary_sum_to_one() {
    for config in [tiny(), adaptive(1), adaptive(2), TransfoXlConfig { d_embed: 6, ..adaptive(1) }] {
        let model = model(&config);
        let hidden = run(&model, &tokens(9), 9);
        let sums = model.log_probs(&hidden).exp().sum_dim_intlist(-1, false, Kind::Double);
        assert!(difference(&sums, &sums.ones_like()) < 1e-12);
    }
}

#[test]
fn losses_are_the_log_probabilities_in_the_order_of_the_targets() {
    for config in [tiny(), adaptive(1), adaptive(2)] {
        let model = model(&config);
        let hidden = run(&model, &tokens(12), 12);
        let targets = tokens(12).flip([1]);
        let expected = -model.log_probs(&hidden).gather(2, &targets.unsqueeze(2), false).squeeze_dim(2);
        assert!(difference(&model.nll(&hidden, &targets), &expected) < 1e-12);
    }
}

#[test]
fn tied_tables_are_one_tensor() {
    let config = adaptive(2);
    let parameters = Parameters::initialise(TransfoXl::specs(&config), 5, Kind::Double);
    let model = TransfoXl::new(&config, &parameters);
    let hidden = Tensor::rand([1, 1, 8], (Kind::Double, Device::Cpu));
    let before = tch::no_grad(|| model.log_probs(&hidden));
    let _ = tch::no_grad(|| parameters.get("transformer.word_emb.emb_layers.1.weight").fill_(0.3));
    assert!(difference(&tch::no_grad(|| model.log_probs(&hidden)), &before) > 1e-3);
}

fn count(config: TransfoXlConfig) -> usize {
    specs(&ModelConfig::TransfoXl(config)).iter().map(|spec| spec.numel()).sum()
}

/// Counts of spec 7.6, none of which needs a byte of weights.
#[test]
fn parameter_counts_are_those_of_the_references() {
    let characters = |vocab_size, n_layer, d_model, d_head, d_inner| TransfoXlConfig {
        vocab_size,
        n_layer,
        d_model,
        n_head: 8,
        d_head,
        d_inner,
        untie_r: false,
        ..Default::default()
    };
    assert_eq!(count(characters(204, 12, 512, 64, 2048)), 41_055_436);
    assert_eq!(count(characters(204, 24, 1024, 128, 3072)), 277_231_820);
    assert_eq!(count(characters(27, 24, 1024, 128, 3072)), 277_050_395);
    let base = TransfoXlConfig {
        vocab_size: 267_735,
        cutoffs: vec![20_000, 40_000, 200_000],
        n_layer: 16,
        d_model: 410,
        n_head: 10,
        d_head: 41,
        d_inner: 2100,
        untie_r: false,
        ..Default::default()
    };
    assert_eq!(count(base.clone()), 151_107_538);
    assert_eq!(count(TransfoXlConfig { untie_r: true, ..base.clone() }), 151_119_838);
    let large = |n_layer| TransfoXlConfig {
        n_layer,
        d_model: 1024,
        n_head: 16,
        d_head: 64,
        d_inner: 4096,
        div_val: 4,
        ..base.clone()
    };
    assert_eq!(count(large(18)), 285_170_506);
    assert_eq!(count(large(16)), 257_889_098);
    let billion = |n_layer, d_model, n_head, d_head, d_inner| TransfoXlConfig {
        vocab_size: 793_470,
        cutoffs: vec![60_000, 100_000, 640_000],
        n_layer,
        d_model,
        n_head,
        d_head,
        d_inner,
        div_val: 4,
        proj_share_all_but_first: false,
        proj_same_dim: false,
        ..Default::default()
    };
    assert_eq!(count(billion(20, 1024, 8, 128, 6144)), 466_962_273);
    assert_eq!(count(billion(24, 1280, 16, 80, 8192)), 838_078_041);
}
