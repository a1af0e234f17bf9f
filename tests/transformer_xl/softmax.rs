//! T12 and T13: adaptive softmax and input.

use segue_transfo_xl::{TransfoXl, TransfoXlConfig};
use tch::{Device, Kind, Tensor};

use crate::tiny::{difference, model, parameters, run, tiny, tokens};

fn adaptive(div_val: usize) -> TransfoXlConfig {
    TransfoXlConfig { cutoffs: vec![5, 11], div_val, ..tiny() }
}

/// Row T12.
#[test]
fn probabilities_of_the_vocabulary_sum_to_one() {
    for config in [tiny(), adaptive(1), adaptive(2), TransfoXlConfig { d_embed: 6, ..adaptive(1) }] {
        let model = model(&config);
        let hidden = run(&model, &tokens(9), 9);
        let sums = model.log_probs(&hidden).exp().sum_dim_intlist(-1, false, Kind::Double);
        assert!(difference(&sums, &sums.ones_like()) < 1e-12);
    }
}

/// Row T12.
#[test]
fn without_cutoffs_it_is_the_full_softmax() {
    let config = tiny();
    let parameters = parameters(&config);
    let model = TransfoXl::new(&config, &parameters);
    let hidden = run(&model, &tokens(9), 9);
    let table = parameters.get("transformer.word_emb.emb_layers.0.weight");
    let bias = parameters.get("crit.out_layers.0.bias");
    let logits = hidden.matmul(&table.transpose(0, 1)) + bias;
    assert!(difference(&model.log_probs(&hidden), &logits.log_softmax(-1, None::<Kind>)) < 1e-12);
}

/// Row T12.
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

/// Every fifth value of every parameter, moved by ±h.
/// Row T12.
#[test]
fn gradients_are_the_slopes_of_the_loss() {
    let config = TransfoXlConfig { init_std: 0.3, n_layer: 2, ..adaptive(2) };
    let parameters = parameters(&config);
    let model = TransfoXl::new(&config, &parameters);
    let loss = || {
        let output = model.forward(&tokens(7), &model.memory_start(1), None);
        model.nll(&output.hidden, &tokens(7).flip([1])).sum(None::<Kind>)
    };
    loss().backward();
    let h = 1e-5;
    for (spec, tensor) in parameters.specs().iter().zip(parameters.tensors()) {
        let (flat, grad) = (tensor.detach().view([-1]), tensor.grad().view([-1]));
        for i in (0..flat.numel() as i64).step_by(5) {
            let moved = |by: f64| {
                tch::no_grad(|| {
                    let _ = flat.narrow(0, i, 1).g_add_scalar_(by);
                    let value = loss().double_value(&[]);
                    let _ = flat.narrow(0, i, 1).g_add_scalar_(-by);
                    value
                })
            };
            let slope = (moved(h) - moved(-h)) / (2.0 * h);
            let found = grad.double_value(&[i]);
            assert!(
                (slope - found).abs() < 1e-6 * (1.0 + slope.abs()),
                "{}[{i}]: {slope} {found}",
                spec.name
            );
        }
    }
}

/// Changing the table changes what words are read as and what they are scored by, from one storage.
/// Row T13.
#[test]
fn tied_tables_are_one_tensor() {
    let config = adaptive(2);
    let parameters = parameters(&config);
    let model = TransfoXl::new(&config, &parameters);
    let hidden = Tensor::rand([1, 1, 8], (Kind::Double, Device::Cpu));
    let name = "transformer.word_emb.emb_layers.1.weight";
    let alike = parameters.specs().iter().filter(|spec| spec.shape == parameters.get(name).size());
    assert_eq!(alike.map(|spec| spec.name.as_str()).collect::<Vec<_>>(), [name]);
    // Words 5 to 10 are those of this table.
    let words = Tensor::from_slice(&[6i64, 7, 9]).view([1, 3]);
    let both = || tch::no_grad(|| (run(&model, &words, 3), model.log_probs(&hidden)));
    let before = both();
    let _ = tch::no_grad(|| parameters.get(name).fill_(0.3));
    let after = both();
    assert!(difference(&after.0, &before.0) > 1e-3 && difference(&after.1, &before.1) > 1e-3);
}
