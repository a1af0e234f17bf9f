//! Expected numbers: theorem 3.1 of the paper worked out by hand and by automatic differentiation of another program, in double precision.

use segue_kernels::noise::Noise;
use tch::{Device, Kind, Tensor};

use super::*;
use crate::adaptive_softmax::{AdaptiveSoftmax, Cluster};

/// scale · sin(1.3 k + phase), row by row.
fn filled(shape: &[i64], phase: f64, scale: f64) -> Tensor {
    let count = shape.iter().product::<i64>();
    ((Tensor::arange(count, (Kind::Double, Device::Cpu)) * 1.3 + phase).sin() * scale).view(shape)
}

/// Five words and two states of width 3, with the states' targets.
fn small() -> (Tensor, Tensor, Tensor) {
    (filled(&[5, 3], 0.2, 0.9), filled(&[2, 3], 1.0, 1.1), Tensor::from_slice(&[2i64, 0]))
}

fn moving(config: AdversarialConfig) -> Adversary {
    Adversary { scale: config.scale, config }
}

fn margins(adversary: &Adversary, hidden: &Tensor, weight: &Tensor, targets: &Tensor) -> Tensor {
    adversary.differentiated(hidden, &[words(weight)], targets).0
}

fn adversary(gradient: MarginGradient) -> Adversary {
    moving(AdversarialConfig { scale: 0.1, gradient, ..Default::default() })
}

fn words(weight: &Tensor) -> Words {
    Words { weight: weight.shallow_clone(), bias: None }
}

#[track_caller]
fn close(found: &Tensor, expected: &[f64], limit: f64) {
    let found = Vec::<f64>::try_from(found.reshape([-1]).to_kind(Kind::Double)).unwrap();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < limit, "{found} instead of {expected}");
    }
}

/// Loss, and gradients of words and states.
fn differentiated(kind: Kind, adversary: Option<&Adversary>) -> (Nll, Tensor, Tensor) {
    let (weight, hidden, targets) = small();
    let leaf = |x: Tensor| x.to_kind(kind).set_requires_grad(true);
    let (weight, hidden) = (leaf(weight), leaf(hidden));
    let found = nll(Kernels::default(), &hidden, &[words(&weight)], &targets, adversary);
    found.trained.mean(kind).backward();
    (found, weight.grad(), hidden.grad())
}

/// Row S1.
#[test]
fn loss_and_all_three_gradients_are_the_reference_numbers() {
    use MarginGradient::{Delta, Full, Scalar};
    let of_words = [0.635782284, 0.171485923, -0.544037717, -0.252350836, -0.216258271, 0.136653167];
    let fully = [0.648347343, 0.234573586, -0.522851025, -0.226925278, -0.213059912, 0.112938725];
    let untouched = [-0.247503977, 0.089205970, 0.295228962, -0.333240796, -0.452280951, 0.091271547];
    let shortened = [-0.225134636, 0.109029510, 0.283465169, -0.364718760, -0.454943151, 0.121325240];
    let cases = [(Scalar, of_words, untouched), (Delta, of_words, shortened), (Full, fully, shortened)];
    // In double precision by libtorch, in single precision by the fused kernel.
    for (kind, limit) in [(Kind::Double, 1e-9), (Kind::Float, 1e-6)] {
        for (gradient, words, states) in cases {
            let (nll, of_words, of_states) = differentiated(kind, Some(&adversary(gradient)));
            close(&nll.trained.mean(kind), &[1.548778167], limit);
            close(&nll.reported().mean(kind), &[1.442929804], limit);
            close(&Tensor::cat(&[of_words.get(0), of_words.get(2)], 0), &words, limit);
            close(&of_words.get(1), &[-0.180591873, -0.002028527, 0.179506616], limit);
            close(&of_states, &states, limit);
        }
    }
}

/// Row S1.
#[test]
fn gradients_of_the_whole_margin_are_finite_differences() {
    let (weight, hidden, targets) = small();
    let full = adversary(MarginGradient::Full);
    let loss = |weight: &Tensor, hidden: &Tensor| {
        nll(Kernels::Plain, hidden, &[words(weight)], &targets, Some(&full)).trained.mean(Kind::Double)
    };
    let (_, of_words, of_states) = differentiated(Kind::Double, Some(&full));
    let step = 1e-5;
    for (x, gradient, of_words) in [(&weight, of_words, true), (&hidden, of_states, false)] {
        for place in 0..x.numel() as i64 {
            let moved = |by: f64| {
                let x = x.copy();
                let _ = x.view([-1]).get(place).g_add_scalar_(by);
                let loss = if of_words { loss(&x, &hidden) } else { loss(&weight, &x) };
                loss.double_value(&[])
            };
            let expected = (moved(step) - moved(-step)) / (2.0 * step);
            // Of second order in the step.
            assert!((gradient.view([-1]).double_value(&[place]) - expected).abs() < 1e-9);
        }
    }
}

/// Row S1.
#[test]
fn a_target_that_occurs_again_has_a_shift_of_its_own_each_time() {
    let (weight, hidden) = (filled(&[5, 3], 0.2, 0.9), filled(&[6, 3], 1.0, 1.1));
    let targets = Tensor::from_slice(&[2i64, 2, 0, 2, 4, 0]);
    let delta = adversary(MarginGradient::Delta);
    let all = nll(Kernels::Plain, &hidden, &[words(&weight)], &targets, Some(&delta)).trained;
    for i in 0..6 {
        let (hidden, target) = (hidden.narrow(0, i, 1), targets.narrow(0, i, 1));
        let one = nll(Kernels::Plain, &hidden, &[words(&weight)], &target, Some(&delta)).trained;
        close(&one, &[all.double_value(&[i])], 1e-15);
    }
}

/// None by default, and one who moves nothing where it is asked for, or where the scale has not risen: with the bits that there are without.
/// Rows S1, S26.
#[test]
fn an_adversary_of_scale_nothing_changes_no_bit() {
    assert!(Adversary::of(&AdversarialConfig::default()).is_none());
    let always = Adversary::of(&AdversarialConfig { always: true, ..Default::default() }).unwrap();
    let mut later = adversary(MarginGradient::Delta);
    later.at_step(0, 10);
    assert!(later.moves());
    later.config.warmup = 5;
    later.at_step(0, 10);
    let gradients = [MarginGradient::Scalar, MarginGradient::Full];
    let of = |gradient| moving(AdversarialConfig { gradient, ..Default::default() });
    for kind in [Kind::Double, Kind::Float] {
        let (plain, of_words, of_states) = differentiated(kind, None);
        assert!(plain.plain.is_none());
        for nothing in [always.clone(), later.clone()].into_iter().chain(gradients.map(of)) {
            let (zero, words, states) = differentiated(kind, Some(&nothing));
            assert!(plain.trained.equal(&zero.trained), "{nothing:?}");
            assert!(of_words.equal(&words) && of_states.equal(&states), "{nothing:?}");
            assert!(zero.plain.is_some_and(|told| told.equal(&plain.trained)), "{nothing:?}");
        }
    }
}

/// Two parts, of which one word comes three times: the gradients that automatic differentiation of the whole formula gives.
/// Row S1.
#[test]
fn what_margins_give_words_is_added_to_what_scores_give_them() {
    let targets = Tensor::from_slice(&[2i64, 5, 2, 6, 0, 2, 3]);
    let leaf = |shape: &[i64], phase| filled(shape, phase, 0.9).set_requires_grad(true);
    let leaves = || [leaf(&[7, 4], 1.0), leaf(&[5, 4], 0.2), leaf(&[2, 4], 0.7)];
    let gradients = |loss: &Tensor, leaves: &[Tensor; 3]| {
        loss.sum(Kind::Double).backward();
        leaves.each_ref().map(Tensor::grad)
    };
    for gate in [false, true] {
        let full =
            moving(AdversarialConfig { gate, clusters: true, ..adversary(MarginGradient::Full).config });
        let own = leaves();
        let parts = [words(&own[1]), words(&own[2])];
        let found = nll(Kernels::Plain, &own[0], &parts, &targets, Some(&full)).trained;
        let found = gradients(&found, &own);

        let whole = leaves();
        let table = Tensor::cat(&whole[1..], 0);
        let rows = table.index_select(0, &targets);
        let length = |x: &Tensor| x.square().sum_dim_intlist(-1, false, Kind::Double).sqrt();
        let scores = whole[0].matmul(&table.tr());
        let open = scores
            .gather(1, &targets.unsqueeze(1), false)
            .squeeze_dim(1)
            .gt(0.0)
            .logical_or(&Tensor::from(!gate));
        let margins = length(&rows) * length(&whole[0]) * 0.1 * open;
        let scores = scores.scatter_add(1, &targets.unsqueeze(1), &-margins.unsqueeze(1));
        let expected = -scores.log_softmax(1, None::<Kind>).gather(1, &targets.unsqueeze(1), false);
        for (found, expected) in found.iter().zip(&gradients(&expected, &whole)) {
            assert!(
                found.allclose(expected, 0.0, 1e-14, false),
                "gate {gate}: {found} instead of {expected}"
            );
        }
    }
}

/// The one gradient of the table's size that there is, is the one that scores make: what reaches the table lies where that was written.
/// Row S1.
#[test]
fn margins_make_no_gradient_of_the_tables_size() {
    for kernels in [Kernels::Plain, Kernels::Fused] {
        let leaf = |x: Tensor| x.to_kind(Kind::Float).set_requires_grad(true);
        let (weight, hidden, targets) = small();
        let (weight, hidden) = (leaf(weight), leaf(hidden));
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let watched = |x: &Tensor| {
            let seen = seen.clone();
            segue_kernels::libtorch::function(c"a look", &[x], x.detach(), move |grad| {
                seen.lock()
                    .unwrap()
                    .push((grad.data_ptr().addr(), Vec::<f32>::try_from(grad.reshape([-1])).unwrap()));
                vec![Some(grad)]
            })
        };
        let full = adversary(MarginGradient::Full);
        let (margins, read) = full.differentiated(&hidden, &[words(&watched(&weight))], &targets);
        let scored = words(&watched(&read[0].weight));
        cross_entropy::nll(kernels, &hidden, &[scored], &targets, Some(&margins)).sum(Kind::Float).backward();
        let seen = seen.lock().unwrap();
        let [(of_scores, before), (of_table, after)] = &seen[..] else { panic!("{seen:?}") };
        assert_eq!(of_scores, of_table);
        // Rows of targets have changed on the way, and no others.
        let changed = before.chunks(3).zip(after.chunks(3)).map(|(before, after)| before != after);
        assert_eq!(changed.collect::<Vec<_>>(), [true, false, true, false, false]);
    }
}

/// The gate lets words move that point to the side of the state.
/// Row S1.
#[test]
fn the_gate_is_the_sign_of_the_product() {
    let weight = Tensor::from_slice(&[1.0, 0.0, -1.0, 0.0]).view([2, 2]);
    let hidden = Tensor::from_slice(&[3.0, 4.0, 3.0, 4.0]).view([2, 2]);
    let gated = moving(AdversarialConfig { scale: 0.1, gate: true, ..Default::default() });
    let targets = Tensor::from_slice(&[0i64, 1]);
    close(&margins(&gated, &hidden, &weight, &targets), &[0.5, 0.0], 1e-15);
}

/// Row S2.
#[test]
fn both_rules_give_the_same_margin_for_the_same_distance() {
    let (weight, hidden, targets) = small();
    let relative = adversary(MarginGradient::Delta);
    let found = margins(&relative, &hidden, &weight, &targets);
    close(&found, &[0.162518938, 0.144268912], 1e-9);
    for i in 0..2 {
        let target = targets.int64_value(&[i]);
        let scale = 0.1 * weight.get(target).norm().double_value(&[]);
        let fixed = moving(AdversarialConfig { scale, kind: MarginKind::Fixed, ..Default::default() });
        let one = margins(&fixed, &hidden.narrow(0, i, 1), &weight, &targets.narrow(0, i, 1));
        close(&one, &[found.double_value(&[i])], 1e-15);
    }
}

/// Row S2.
#[test]
fn a_state_of_zeros_has_finite_gradients() {
    for gradient in [MarginGradient::Scalar, MarginGradient::Delta, MarginGradient::Full] {
        let (weight, _, targets) = small();
        let leaf = |x: Tensor| x.to_kind(Kind::Float).set_requires_grad(true);
        let (weight, hidden) = (leaf(weight), leaf(Tensor::zeros([2, 3], (Kind::Float, Device::Cpu))));
        let found = nll(Kernels::Fused, &hidden, &[words(&weight)], &targets, Some(&adversary(gradient)));
        found.trained.sum(Kind::Float).backward();
        for x in [&found.trained, &found.plain.unwrap(), &weight.grad(), &hidden.grad()] {
            assert!(bool::try_from(x.isfinite().all()).unwrap(), "{gradient:?}");
        }
    }
}

/// Theorem 3.1: no shift of all words within half of the ball is worse, and the worst moves all of them.
/// Row S3.
#[test]
fn no_shift_within_the_ball_is_worse() {
    let (weight, hidden, _) = small();
    let (epsilon, target, h) = (0.3, 2, hidden.get(0));
    let probability = |weight: &Tensor| weight.matmul(&h).softmax(-1, None::<Kind>);
    let fixed = moving(AdversarialConfig { scale: epsilon, kind: MarginKind::Fixed, ..Default::default() });
    let targets = Tensor::from_slice(&[target]);
    let worst = nll(Kernels::Plain, &h.unsqueeze(0), &[words(&weight)], &targets, Some(&fixed)).trained;
    close(&worst, &[0.876270546], 1e-9);
    let direction = &h / h.norm();
    let sign = Tensor::from_slice(&[1.0, 1.0, -1.0, 1.0, 1.0]).unsqueeze(1);
    let all = probability(&(&weight + sign * (epsilon / 2.0) * &direction)).double_value(&[target]);
    assert!((all - 0.416332714).abs() < 1e-9);
    // −ln P + m + ln(1 − P + P e^(−m))
    let (p, m) = (probability(&weight).double_value(&[target]), epsilon * h.norm().double_value(&[]));
    close(&worst, &[-p.ln() + m + (1.0 - p + p * (-m).exp()).ln()], 1e-12);

    let noise = Noise::new(3);
    let draws = 10_000;
    let shifts = noise.normal(&[draws, 5, 3]).to_kind(Kind::Double);
    let shifts = &shifts / shifts.norm_scalaropt_dim(2.0, [-1], true) * (epsilon / 2.0);
    let scores = (&weight + shifts).matmul(&h); // [draws, 5]
    let found = scores.softmax(-1, None::<Kind>).select(1, target);
    assert!(found.min().double_value(&[]) >= all - 1e-12);
    // Some come near, from where words are: the draws look where it matters.
    assert!(found.min().double_value(&[]) < (all + p) / 2.0);
}

/// Two frequent words and a cluster of three: words move in the softmax where their row stands, the cluster's entry only where it is told to.
/// Row S17.
#[test]
fn words_of_a_split_softmax_move_where_their_rows_stand() {
    let (weight, hidden, _) = small();
    let h = hidden.narrow(0, 0, 1);
    let cluster = || Cluster {
        weight: weight.shallow_clone(),
        bias: Tensor::zeros([5], (Kind::Double, Device::Cpu)),
        projection: None,
        kernels: Kernels::Plain,
    };
    let entry = Words {
        weight: Tensor::from_slice(&[0.3, -0.1, 0.2]).view([1, 3]),
        bias: Some(Tensor::zeros([1], (Kind::Double, Device::Cpu))),
    };
    let softmax = AdaptiveSoftmax::new(vec![cluster(), cluster()], Some(entry), vec![0, 2, 5]);
    let expected = [-0.489194051, -2.673864575, -1.415097314, -3.222849068, -3.348096806];
    close(&softmax.log_probs(&h), &expected, 1e-9);
    close(&softmax.log_probs(&h).exp().sum(Kind::Double), &[1.0], 1e-12);
    let of = |target: i64, adversary: Option<&Adversary>| {
        softmax.nll(&h, &Tensor::from_slice(&[target]), adversary)
    };
    let delta = adversary(MarginGradient::Delta);
    for (target, expected) in (0..).zip(expected) {
        close(&of(target, None).trained, &[-expected], 1e-9);
        close(of(target, Some(&delta)).reported(), &[-expected], 1e-9);
    }
    close(&of(1, Some(&delta)).trained, &[2.807703675], 1e-9);
    close(&of(2, Some(&delta)).trained, &[1.455884213], 1e-9);
    let with_clusters = moving(AdversarialConfig { clusters: true, ..delta.config });
    assert!(of(2, Some(&with_clusters)).trained.double_value(&[0]) > 1.455884213 + 1e-3);
    close(&of(1, Some(&with_clusters)).trained, &[2.807703675], 1e-9);
}
