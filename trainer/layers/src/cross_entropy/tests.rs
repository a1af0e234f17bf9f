use segue_configs::Precision;
use segue_kernels::libtorch::Autocast;
use segue_testing::emulated::{self, Order};
use tch::{Device, Kind};

use super::rows::{add_rows_plain, differentiate_rows_plain, read_rows_plain};
use super::*;

/// Hidden states and words of three parts, one of them without a bias; several blocks, and a rest in each.
fn inputs(rows: i64, width: i64) -> (Vec<Tensor>, Tensor) {
    let words = [700, 3, 130];
    let values = |shape: &[i64], step: f64| {
        let count: i64 = shape.iter().product();
        (Tensor::arange(count, (Kind::Double, Device::Cpu)) * step).sin().view(shape).to_kind(Kind::Float)
    };
    let mut all = vec![values(&[rows, width], 0.37) * 3.0];
    for (i, words) in words.iter().enumerate() {
        all.push(values(&[*words, width], 0.11 + i as f64));
        all.push(values(&[*words], 0.7) * 2.0);
    }
    let _ = all.remove(4);
    let total: i64 = words.iter().sum();
    (all, (Tensor::arange(rows, (Kind::Int64, Device::Cpu)) * 337).remainder(total))
}

/// −ln P and the gradients of all inputs, for a loss that weighs every row differently.
fn with_gradients(kernels: Kernels, kind: Kind, rows: i64, width: i64, lowers: bool) -> Vec<Tensor> {
    let (mut inputs, targets) = inputs(rows, width);
    if lowers {
        inputs.push((Tensor::arange(rows, (Kind::Float, Device::Cpu)) * 0.9).cos() * 2.0);
    }
    let leaves: Vec<Tensor> =
        inputs.iter().map(|t| t.to_kind(kind).detach().copy().set_requires_grad(true)).collect();
    let part = |weight: usize, bias: Option<usize>| Words {
        weight: leaves[weight].shallow_clone(),
        bias: bias.map(|i| leaves[i].shallow_clone()),
    };
    let parts = [part(1, Some(2)), part(3, None), part(4, Some(5))];
    let margins = leaves.get(6).map(Tensor::shallow_clone);
    let nll = nll(kernels, &leaves[0], &parts, &targets, margins.as_ref());
    (&nll * Tensor::linspace(0.1, 2.0, rows, (kind, Device::Cpu))).sum(kind).backward();
    std::iter::once(nll.detach()).chain(leaves.iter().map(Tensor::grad)).collect()
}

#[test]
fn losses_and_gradients_are_those_of_double_precision() {
    for (rows, width, lowers) in [(1, 8, true), (70, 24, false), (70, 24, true), (600, 40, false)] {
        let exact = with_gradients(Kernels::Plain, Kind::Double, rows, width, lowers);
        let ours = with_gradients(Kernels::Fused, Kind::Float, rows, width, lowers);
        assert_eq!(ours.len(), 7 + usize::from(lowers));
        for (i, (ours, exact)) in ours.iter().zip(&exact).enumerate() {
            let scale = exact.abs().max().double_value(&[]);
            let error = (ours - exact).abs().max().double_value(&[]) / scale;
            assert!(error < 3e-6, "{rows} rows, output {i}: {error}");
        }
    }
}

#[test]
fn losses_and_gradients_on_cards_are_those_of_double_precision() {
    for (rows, width, lowers) in [(1, 8, true), (70, 24, false), (70, 24, true), (130, 40, false)] {
        let exact = with_gradients(Kernels::Plain, Kind::Double, rows, width, lowers);
        let on_card = |order| {
            emulated::during(order, || with_gradients(Kernels::Fused, Kind::Float, rows, width, lowers))
        };
        let ours = on_card(Order::Forwards);
        assert_eq!(ours.len(), 7 + usize::from(lowers));
        for (i, (ours, exact)) in ours.iter().zip(&exact).enumerate() {
            let scale = exact.abs().max().double_value(&[]);
            let error = (ours - exact).abs().max().double_value(&[]) / scale;
            assert!(error < 3e-6, "{rows} rows, output {i}: {error}");
        }
        assert_eq!(ours, on_card(Order::Backwards), "the order of threads shows");
    }
}

/// Losses and gradients of states `[70, 24]` and `words` of one part, by scores of so many at once.
fn on_a_card(words: i64, kind: Kind, limits: card::Limits, biased: bool) -> Vec<Tensor> {
    let (inputs, targets) = inputs(70, 24);
    let leaf = |x: &Tensor| x.to_kind(kind).detach().copy().set_requires_grad(true);
    let hidden = leaf(&inputs[0]);
    let [weight, bias] = [&inputs[1], &inputs[2]].map(|x| leaf(&x.narrow(0, 0, words)));
    let part = [Words { weight: weight.shallow_clone(), bias: biased.then(|| bias.shallow_clone()) }];
    let targets = targets.remainder(words);
    let nll = match emulated::is_on() {
        true => {
            let kernels = card::kernels(Kernels::Fused, &hidden, &part).expect("kernels are on");
            card::nll(kernels, &hidden, &part, &targets, None, limits)
        }
        false => super::nll(Kernels::Plain, &hidden, &part, &targets, None),
    };
    (&nll * Tensor::linspace(0.1, 2.0, 70, (Kind::Float, Device::Cpu))).sum(None::<Kind>).backward();
    let leaves = [hidden, weight, bias];
    let grads = leaves.iter().map(Tensor::grad).filter(Tensor::defined);
    std::iter::once(nll.detach()).chain(grads).collect()
}

#[test]
fn scores_of_cards_are_made_again_chunk_by_chunk() {
    for (words, biased) in [(96, true), (101, true), (96, false)] {
        let exact = on_a_card(words, Kind::Double, card::Limits::default(), biased);
        // All at once and kept, all at once and made again, and chunks of seventeen rows.
        for (chunk, kept) in [(1 << 20, 1 << 20), (1 << 20, 0), (17 * 104, 0)] {
            let ours = emulated::during(Order::Forwards, || {
                on_a_card(words, Kind::Float, card::Limits { chunk, kept }, biased)
            });
            assert_eq!(ours.len(), if biased { 4 } else { 3 });
            for (i, (ours, exact)) in ours.iter().zip(&exact).enumerate() {
                let error = (ours - exact).abs().max() / exact.abs().max();
                assert!(error.double_value(&[]) < 3e-6, "{words} {chunk} {kept}, output {i}: {error}");
            }
        }
    }
}

/// Products of short numbers, as a card's casts make them: scores, up to 3.4, are rounded to within 2^-8 of themselves. Gradients of words are
/// differences, in which a fortieth shows, in libtorch's bf16 as well.
#[test]
fn scores_of_cards_are_of_the_type_of_products() {
    let casts = Autocast::to(Precision::Bf16, Device::Cpu).expect("casts to 16 bits");
    let limits = card::Limits::default();
    let exact = on_a_card(101, Kind::Double, limits, true);
    let ours =
        emulated::during(Order::Forwards, || casts.during(|| on_a_card(101, Kind::Float, limits, true)));
    for (i, (ours, exact)) in ours.iter().zip(&exact).enumerate() {
        assert_eq!(ours.kind(), Kind::Float);
        let error = (ours - exact).abs().max() / exact.abs().max();
        let error = error.double_value(&[]);
        assert!(1e-6 < error && error < 5e-2, "output {i}: {error}");
    }
}

#[test]
fn a_target_beyond_the_words_has_no_loss_on_a_card() {
    let hidden = Tensor::ones([3, 1], (Kind::Float, Device::Cpu));
    let part = [Words { weight: Tensor::ones([4, 1], (Kind::Float, Device::Cpu)), bias: None }];
    let targets = Tensor::from_slice(&[-1i64, 3, 4]);
    let found = emulated::during(Order::Forwards, || nll(Kernels::Fused, &hidden, &part, &targets, None));
    assert_eq!(Vec::<bool>::try_from(&found.isnan()).unwrap(), [true, false, true]);
}

#[test]
fn without_a_graph_no_score_is_kept() {
    let (inputs, targets) = inputs(70, 24);
    let part = Words { weight: inputs[1].copy().set_requires_grad(true), bias: None };
    let parts = [part];
    let targets = targets.remainder(700);
    let with = nll(Kernels::Fused, &inputs[0], &parts, &targets, None);
    let without = tch::no_grad(|| nll(Kernels::Fused, &inputs[0], &parts, &targets, None));
    assert!(with.requires_grad() && !without.requires_grad());
    assert_eq!(with.detach(), without);
    let kept = |keep| Scored::new(&inputs[0], &parts, &targets, None, None, keep).1.blocks.len();
    assert_eq!((kept(true), kept(false)), (1, 0));
}

#[test]
fn far_scores_neither_overflow_nor_vanish() {
    let hidden = Tensor::from_slice(&[1.0f32]).view([1, 1]);
    let weight = Tensor::from_slice(&[-300.0f32, 0.0, 300.0, 299.0]).view([4, 1]);
    let loss = |target: i64| {
        let parts = [Words { weight: weight.shallow_clone(), bias: None }];
        nll(Kernels::Fused, &hidden, &parts, &Tensor::from_slice(&[target]), None).double_value(&[0])
    };
    let log_sum = 300.0 + (1.0 + (-1.0f64).exp()).ln();
    for (target, score) in [(0, -300.0), (1, 0.0), (2, 300.0), (3, 299.0)] {
        assert!((loss(target) - (log_sum - score)).abs() < 1e-4, "{target}");
    }
}

#[test]
#[should_panic(expected = "a target for each row, below 4")]
fn a_target_beyond_the_words_is_refused() {
    let hidden = Tensor::zeros([1, 1], (Kind::Float, Device::Cpu));
    let parts = [Words { weight: Tensor::zeros([4, 1], (Kind::Float, Device::Cpu)), bias: None }];
    let _ = nll(Kernels::Fused, &hidden, &parts, &Tensor::from_slice(&[-1i64]), None);
}

#[test]
fn both_loops_give_the_same_bits() {
    let (inputs, targets) = inputs(70, 24);
    // SAFETY: nothing below writes to a tensor.
    let scores = unsafe { as_f32(&inputs[1]) };
    let targets: Vec<usize> = numbers(&targets).into_iter().map(|t| t % 24).collect();
    let scores = &scores[..70 * 24];
    let (mut fast, mut slow) = (vec![Running::default(); 70], vec![Running::default(); 70]);
    read_rows(scores, 0, &targets, &mut fast);
    read_rows_plain(scores, 0, &targets, &mut slow);
    let sums = |rows: &[Running]| rows.iter().map(Running::log_sum).collect::<Vec<f32>>();
    assert_eq!(sums(&fast), sums(&slow));
    let (mut a, mut b) = (scores.to_vec(), scores.to_vec());
    let ones = [1.0; 70];
    differentiate_rows(&mut a, 0, &targets, &sums(&fast), &ones);
    differentiate_rows_plain(&mut b, 0, &targets, &sums(&fast), &ones);
    assert_eq!(a, b);
    let (mut a, mut b) = ([0.0; 24], [0.0; 24]);
    add_rows(scores, 24, &mut a);
    add_rows_plain(scores, 24, &mut b);
    assert_eq!(a, b);
}

/// Loss, −ln P and the gradients of all inputs of smoothed targets.
fn smoothed_with_gradients(
    kernels: Kernels,
    kind: Kind,
    smoothing: &Distribution,
    lowers: bool,
) -> Vec<Tensor> {
    let rows = 130;
    let (mut inputs, targets) = inputs(rows, 24);
    if lowers {
        inputs.push((Tensor::arange(rows, (Kind::Float, Device::Cpu)) * 0.9).cos() * 2.0);
    }
    let leaves: Vec<Tensor> =
        inputs.iter().map(|t| t.to_kind(kind).detach().copy().set_requires_grad(true)).collect();
    let part = |weight: usize, bias: Option<usize>| Words {
        weight: leaves[weight].shallow_clone(),
        bias: bias.map(|i| leaves[i].shallow_clone()),
    };
    let parts = [part(1, Some(2)), part(3, None), part(4, Some(5))];
    let margins = leaves.get(6).map(Tensor::shallow_clone);
    let [loss, nll] = smoothed(kernels, &leaves[0], &parts, &targets, margins.as_ref(), smoothing);
    (&loss * Tensor::linspace(0.1, 2.0, rows, (kind, Device::Cpu))).sum(kind).backward();
    [loss.detach(), nll].into_iter().chain(leaves.iter().map(Tensor::grad)).collect()
}

/// A word of the first part that is no target of 130 rows.
const NO_TARGET: i64 = 400;

const FORMS: [SmoothingForm; 4] = [
    SmoothingForm::All,
    SmoothingForm::Others,
    SmoothingForm::OthersFromLeast,
    SmoothingForm::OthersButPadding,
];

#[test]
fn smoothed_losses_and_gradients_are_those_of_double_precision() {
    for form in FORMS {
        for (taken, lowers) in [(0.1, false), (0.3, true)] {
            let smoothing = form.distribution(taken, 833, NO_TARGET);
            let exact = smoothed_with_gradients(Kernels::Plain, Kind::Double, &smoothing, lowers);
            let ours = smoothed_with_gradients(Kernels::Fused, Kind::Float, &smoothing, lowers);
            assert_eq!(ours.len(), 8 + usize::from(lowers));
            for (i, (ours, exact)) in ours.iter().zip(&exact).enumerate() {
                let scale = exact.abs().max().double_value(&[]);
                let error = (ours - exact).abs().max().double_value(&[]) / scale;
                assert!(error < 3e-6, "{form:?}, output {i}: {error}");
            }
        }
    }
}

/// Nothing taken from the target is no smoothing, to the bit.
#[test]
fn smoothing_by_nothing_changes_no_bit() {
    let of = |form: SmoothingForm| {
        smoothed_with_gradients(Kernels::Fused, Kind::Float, &form.distribution(0.0, 833, NO_TARGET), true)
    };
    let hard = with_gradients(Kernels::Fused, Kind::Float, 130, 24, true);
    for form in FORMS {
        let mut found = of(form);
        let loss = found.remove(0);
        assert!((loss - &found[0]).abs().max().double_value(&[]) < 1e-6, "{form:?}");
        for (found, hard) in found.iter().zip(&hard).take(7) {
            assert_eq!(found, hard, "{form:?}");
        }
    }
}

/// Golden row G7: smoothing by 0.1 of the first position of G1, without and with the adversary's margin of 0.1 ‖w‖ ‖h‖.
/// Row S21.
#[test]
fn the_forms_of_smoothing_have_their_published_values() {
    let filled = |rows: i64, phase: f64, scale: f64| {
        let k = Tensor::arange(rows * 3, (Kind::Double, Device::Cpu));
        ((k * 1.3 + phase).sin() * scale).view([rows, 3])
    };
    let (weight, hidden, target) = (filled(5, 0.2, 0.9), filled(1, 1.0, 1.1), Tensor::from_slice(&[2i64]));
    let margin = (weight.get(2).norm() * hidden.norm() * 0.1).view([1]);
    let words = [Words { weight, bias: None }];
    let plain = [0.804281224, 0.839560212, 0.375847803];
    let adversarial = [0.873366276, 0.905394886, 0.441682476];
    for (margins, expected) in [(None, plain), (Some(&margin), adversarial)] {
        for (form, expected) in FORMS.into_iter().zip(expected) {
            let smoothing = form.distribution(0.1, 5, 0);
            let [loss, _] = smoothed(Kernels::Plain, &hidden, &words, &target, margins, &smoothing);
            assert!((loss.double_value(&[0]) - expected).abs() < 1e-9, "{form:?}: {loss}");
        }
    }
}

#[test]
fn shares_of_smoothed_targets_add_up_to_one() {
    for form in FORMS {
        let Distribution { on, off, without, .. } = form.distribution(0.2, 50, 1);
        let others = 49.0 - if without.is_some() { 1.0 } else { 0.0 };
        assert!((on + off * others - 1.0).abs() < 1e-15, "{form:?}");
    }
}
