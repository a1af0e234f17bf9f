use super::super::statistics::MeanOver;
use super::*;

fn values(tensor: &Tensor) -> Vec<f64> {
    Vec::<f64>::try_from(tensor).unwrap()
}

fn constants(lr: f64, decay: f64, epsilon: f64) -> DynamicOptions {
    DynamicOptions { lr, decay, epsilon, segment: 1, gradient: GradientOf::Mean }
}

/// What an update makes of parameters, one after another.
fn updated(
    rule: &Rule,
    options: DynamicOptions,
    weights: &[&[f64]],
    trained: &[&[f64]],
    grads: &[&[f64]],
) -> Vec<f64> {
    let tensors = |values: &[&[f64]]| values.iter().map(|v| Tensor::from_slice(v)).collect::<Vec<_>>();
    let (weights, grads) = (tensors(weights), tensors(grads).into_iter().map(Some).collect::<Vec<_>>());
    adapt(&weights, &tensors(trained), &grads, rule, options);
    weights.iter().flat_map(values).collect()
}

/// Two parameters, moved off the trained values, with these gradients.
fn adapted(rule: &Rule, options: DynamicOptions) -> Vec<f64> {
    updated(rule, options, &[&[1.0, 2.0], &[3.0]], &[&[1.5, 2.0], &[1.0]], &[&[4.0, -2.0], &[1.0]])
}

#[track_caller]
fn close(found: &[f64], expected: &[f64], limit: f64) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < limit, "{found} instead of {expected}");
    }
}

/// √ of the mean squares of gradients, a row a batch.
fn roots(batches: &[&[f64]]) -> Tensor {
    let squares = batches.iter().map(|batch| Tensor::from_slice(batch).square());
    let sum = squares.reduce(|a, b| a + b).unwrap();
    (sum / batches.len() as f64).sqrt()
}

#[test]
fn sgd_is_the_rule_of_the_paper() {
    // 1 − 0.1·4 + 0.2·(1.5 − 1); 2 + 0.1·2; 3 − 0.1·1 + 0.2·(1 − 3).
    close(&adapted(&Rule::Sgd, constants(0.1, 0.2, 0.0)), &[0.7, 2.2, 2.5], 1e-12);
}

#[test]
fn rms_divides_the_gradient_and_scales_the_decay() {
    let roots = vec![Tensor::from_slice(&[2.0, 0.0]), Tensor::from_slice(&[4.0])];
    let rule = Rule::Rms(GradientStatistics::new(roots, MeanOver::Values));
    // Mean root 2, so relative roots 1, 0 and 2.
    // 1 − 0.1·4/2.5 + 0.2·1·0.5; 2 + 0.1·2/0.5; 3 − 0.1·1/4.5 + 0.2·2·(−2).
    let expected = [1.0 - 0.16 + 0.1, 2.4, 3.0 - 0.1 / 4.5 - 0.8];
    close(&adapted(&rule, constants(0.1, 0.2, 0.5)), &expected, 1e-12);
    // Rate 0.8·2 is cut to 1: back at the trained value.
    close(&adapted(&rule, constants(0.0, 0.8, 0.5)), &[1.0 + 0.8 * 0.5, 2.0, 1.0], 1e-12);
}

/// Row M15.
#[test]
fn an_update_is_the_reference_numbers() {
    let root = roots(&[&[0.3, -0.1, 0.02], &[0.1, 0.4, -0.05]]);
    close(&values(&root), &[0.223606798, 0.291547595, 0.038078866], 1e-9);
    let rule = Rule::Rms(GradientStatistics::new(vec![root], MeanOver::Values));
    let found = updated(
        &rule,
        constants(0.01, 0.9, 0.001),
        &[&[1.1, -1.9, 0.6]],
        &[&[1.0, -2.0, 0.5]],
        &[&[0.2, -0.3, 0.1]],
    );
    close(&found, &[0.991095550, -1.989745258, 0.555826708], 1e-9);
}

/// Row M15.
#[test]
fn a_decay_at_its_cap_leads_back_in_one_step_but_for_weights_without_a_gradient() {
    let roots = [Tensor::from_slice(&[2.0, 0.0]), Tensor::from_slice(&[4.0])];
    for mean in [MeanOver::Values, MeanOver::Tensors] {
        let roots = roots.iter().map(Tensor::shallow_clone).collect();
        let rule = Rule::Rms(GradientStatistics::new(roots, mean));
        let found = updated(
            &rule,
            constants(0.0, 1e6, 1e-3),
            &[&[7.3, -4.0], &[0.1]],
            &[&[1.5, 2.0], &[1.0]],
            &[&[4.0, -2.0], &[1.0]],
        );
        // The second has no root, and stays where it is.
        assert_eq!(found, [1.5, -4.0, 1.0]);
    }
}

/// 0.5 sin(1.3 k + phase) for k = 0, 1, ..
fn sines(count: usize, phase: f64) -> Vec<f64> {
    (0..count).map(|k| 0.5 * (1.3 * k as f64 + phase).sin()).collect()
}

fn of_sines(mean: MeanOver) -> GradientStatistics {
    let root = |count, phase: f64| {
        let batches: Vec<Vec<f64>> = (0..3).map(|t| sines(count, phase + f64::from(t))).collect();
        roots(&batches.iter().map(Vec::as_slice).collect::<Vec<_>>())
    };
    GradientStatistics::new(vec![root(2, 0.1), root(1, 0.9)], mean)
}

/// Row S18.
#[test]
fn updates_in_the_form_of_the_program_are_the_reference_numbers() {
    let statistics = of_sines(MeanOver::Tensors);
    let roots: Vec<f64> = statistics.roots().iter().flat_map(values).collect();
    close(&roots, &[0.359322010, 0.352687649, 0.361285338], 1e-9);
    let relative: Vec<f64> = (0..2).flat_map(|i| values(&statistics.decay(i, 1.0))).collect();
    close(&relative, &[1.001887454, 0.983389053, 1.007361747], 1e-9);
    let rule = Rule::Rms(statistics);
    let mut weights = vec![0.3, -0.2, 0.1];
    for (step, expected) in
        [(0.0, [0.272478373, -0.203989961, 0.125288518]), (1.0, [0.271646748, -0.181023006, 0.138071349])]
    {
        let grads = sines(3, 1.7 + step);
        weights = updated(
            &rule,
            constants(0.02, 0.4, 0.001),
            &[&weights[..2], &weights[2..]],
            &[&[0.3, -0.2], &[0.1]],
            &[&grads[..2], &grads[2..]],
        );
        close(&weights, &expected, 1e-9);
    }
}

/// The older scaling written out: sums in the place of means, over batches and over tensors.
/// Row S18.
#[test]
fn constants_of_the_older_scaling_are_converted() {
    let (eta, lambda, epsilon) = (0.02, 0.4, 0.001);
    let rule = Rule::Rms(of_sines(MeanOver::Tensors));
    let older: Vec<Vec<f64>> = [(2usize, 0.1), (1, 0.9)]
        .into_iter()
        .map(|(count, phase)| {
            let square =
                |k: usize| -> f64 { (0..3).map(|t| sines(count, phase + f64::from(t))[k].powi(2)).sum() };
            (0..count).map(|k| square(k).sqrt()).collect()
        })
        .collect();
    let mean: f64 = older.iter().map(|root| root.iter().sum::<f64>() / root.len() as f64).sum();
    let (weights, trained, grads) = ([0.5, -0.1, 0.4], [0.3, -0.2, 0.1], sines(3, 1.7));
    let rows = older.concat();
    let expected: Vec<f64> = (0..3)
        .map(|i| {
            let rate = lambda * f64::min(rows[i] / mean, 1.0 / lambda);
            weights[i] - eta * grads[i] / (rows[i] + epsilon) + rate * (trained[i] - weights[i])
        })
        .collect();
    let found = updated(
        &rule,
        constants(eta, lambda, epsilon).from_older_scaling(2, 3),
        &[&weights[..2], &weights[2..]],
        &[&trained[..2], &trained[2..]],
        &[&grads[..2], &grads[2..]],
    );
    close(&found, &expected, 1e-12);
}

/// Row M15.
#[test]
fn a_sum_over_the_segment_is_the_mean_times_its_targets() {
    let losses = Tensor::from_slice(&[1.0, 2.0, 4.0, 0.5, 0.25, 0.25]).view([2, 3]);
    let of = |gradient: GradientOf| gradient.objective(&losses).double_value(&[]);
    // Two lanes of three targets: (7 + 1) / 2 and 8 / 6.
    assert!((of(GradientOf::Sum) - 4.0).abs() < 1e-15 && (of(GradientOf::Mean) - 8.0 / 6.0).abs() < 1e-15);
}
