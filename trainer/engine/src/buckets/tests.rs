use segue_kernels::Init;

use super::*;

fn parameters(sizes: &[i64]) -> Parameters {
    let spec =
        |(i, &n): (usize, &i64)| ParameterSpec { name: format!("p{i}"), shape: vec![n], init: Init::Zeros };
    Parameters::initialise(sizes.iter().enumerate().map(spec).collect(), 1, Kind::Float)
}

/// Values whose sums depend on the order of addition.
fn gradient(micro_step: usize, parameter: usize) -> f32 {
    (1.0 + micro_step as f32 * 0.377 + parameter as f32 * 1.31) * 10f32.powi((micro_step as i32 * 7) % 9 - 4)
}

fn of_size(
    parameters: &Parameters,
    bucket_bytes: usize,
    micro_steps: usize,
    ready: Option<Sender<Job>>,
) -> GradientBuckets {
    GradientBuckets::new(parameters, &group(parameters.specs(), bucket_bytes), micro_steps, ready)
}

fn run(parameters: &Parameters, micro_steps: usize, bucket_bytes: usize) -> Vec<f32> {
    let buckets = of_size(parameters, bucket_bytes, micro_steps, None);
    // Two steps: the second must not see the first's sums.
    for _ in 0..2 {
        for m in 0..micro_steps {
            buckets.begin(m);
            for p in (0..parameters.tensors().len()).rev() {
                let n = parameters.specs()[p].numel() as i64;
                let grad = Tensor::full([n], gradient(m, p) as f64, (Kind::Float, Device::Cpu));
                let (b, position) = buckets.places[p];
                // One parameter gets no gradient in one micro-step.
                if (m, p) != (1, 0) {
                    buckets.collect(&mut buckets.lock(), b, position, Some(grad));
                }
            }
            buckets.finish();
        }
    }
    buckets.gradients().iter().map(|g| g.double_value(&[0]) as f32).collect()
}

#[test]
fn counter_adds_in_the_order_of_the_tree() {
    let parameters = parameters(&[3, 40, 5]);
    for micro_steps in 1..=9 {
        for bucket_bytes in [1, 200, 1 << 20] {
            let sums = run(&parameters, micro_steps, bucket_bytes);
            for (p, sum) in sums.iter().enumerate() {
                let leaves =
                    (0..micro_steps).map(|m| if (m, p) == (1, 0) { 0.0 } else { gradient(m, p) }).collect();
                let expected = segue_collectives::tree::tree_sum(leaves, |a: f32, b| a + b).unwrap();
                assert_eq!(sum.to_bits(), expected.to_bits(), "{micro_steps} micro-steps, parameter {p}");
            }
        }
    }
}

/// What two leaves share, a part of something larger, what lies in another order or is of another kind, and a leaf without a gradient.
#[test]
fn the_gradients_of_a_step_of_one_micro_step_are_its_own() {
    let parameters = parameters(&[4, 4, 4, 4, 4, 4]);
    let leaves = parameters.tensors();
    let buckets = Arc::new(of_size(&parameters, 32, 1, None));
    let leaf = leaves.iter().collect::<Vec<_>>();
    let _hooks = segue_kernels::libtorch::GradHooks::install(&leaf, buckets.clone()).unwrap();
    let factor = |i: i64| Tensor::from_slice(&[1.0f32, -2.0, 3.5, 0.25]) * i;
    for step in 1..=3 {
        buckets.begin(0);
        // The first two have views of one gradient.
        let shared = leaves[0].view([2, 2]) + leaves[1].view([2, 2]);
        let parts = Tensor::cat(&[&leaves[2], &leaves[3]], 0) * Tensor::cat(&[factor(2), factor(3)], 0);
        let loss = (shared.view([4]) * factor(step)).sum(None::<Kind>)
            + parts.sum(None::<Kind>)
            + (&leaves[4] * factor(5)).sum(None::<Kind>);
        loss.backward();
        buckets.finish();
        let found = buckets.gradients();
        let expected = [factor(step), factor(step), factor(2), factor(3), factor(5), factor(0)];
        for (p, expected) in expected.iter().enumerate() {
            assert_eq!(found[p], *expected, "parameter {p} in step {step}");
            // As an update does: no other gradient may change with it.
            let _ = no_grad(|| found[p].shallow_clone().fill_(f64::from(p as u32)));
        }
    }
    assert!(buckets.lock().buckets.iter().all(|bucket| bucket.levels.is_empty()), "nothing was copied there");
}

#[test]
fn gradients_that_are_kept_lie_as_buckets_do() {
    let spec = ParameterSpec { name: "column".into(), shape: vec![4, 1], init: Init::Zeros };
    let parameters = Parameters::initialise(vec![spec], 1, Kind::Float);
    let leaf = &parameters.tensors()[0];
    let buckets = Arc::new(of_size(&parameters, 1, 1, None));
    let _hooks = segue_kernels::libtorch::GradHooks::install(&[leaf], buckets.clone()).unwrap();
    buckets.begin(0);
    (leaf.tr() * Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0])).sum(None::<Kind>).backward();
    buckets.finish();
    let found = buckets.gradients().swap_remove(0);
    assert_eq!((found.size(), found.stride()), (vec![4, 1], vec![1, 1]));
    assert_eq!(Vec::<f32>::try_from(found.view([-1])).unwrap(), [1.0, 2.0, 3.0, 4.0]);
}

/// In rising order first, for which the first bucket has to wait for the last gradient; then as they are complete.
#[test]
fn buckets_leave_after_the_last_micro_step_in_the_order_that_is_asked_for() {
    let parameters = parameters(&[64, 64, 64]);
    let (sender, receiver) = segue_world::channel();
    let buckets = of_size(&parameters, 256, 2, Some(sender));
    let sent = || -> Vec<usize> {
        std::iter::from_fn(|| receiver.try_recv().ok()).map(|job| summed(job).bucket).collect()
    };
    for (order, wanted) in [([0, 1, 2], [&[][..], &[], &[0, 1, 2]]), ([2, 1, 0], [&[2], &[1], &[0]])] {
        buckets.hand_over_in(order.to_vec());
        for m in 0..2 {
            buckets.begin(m);
            // Gradients arrive in forward order: bucket 0 (the last parameter) completes last.
            for (&(b, position), wanted) in buckets.places.iter().zip(wanted) {
                let grad = Tensor::ones([64], (Kind::Float, Device::Cpu));
                buckets.collect(&mut buckets.lock(), b, position, Some(grad));
                assert_eq!(sent(), if m == 0 { &[][..] } else { wanted }, "{order:?}");
            }
        }
        assert_eq!(buckets.arrived(), [2, 1, 0]);
    }
}

fn summed(job: Job) -> Ready {
    match job {
        Job::Sum(ready) => ready,
        Job::Gather(..) => panic!("buckets gather no weights"),
    }
}

/// The gradient that looking `ids` up leaves, each row times a factor of its own.
fn of_lookup(ids: &[i64], sparse: bool) -> Tensor {
    let table = Tensor::zeros([6, 2], (Kind::Float, Device::Cpu)).set_requires_grad(true);
    let found = Tensor::embedding(&table, &Tensor::from_slice(ids), -1, false, sparse);
    // Sums of these depend on the order.
    let factors = [1e8f32, 1.0, -1e8, 3e7];
    (found * Tensor::from_slice(&factors[..ids.len()]).unsqueeze(1)).sum(None::<Kind>).backward();
    assert_eq!(table.grad().is_sparse(), sparse);
    table.grad()
}

/// Micro-steps without a gradient, and at one place a dense one.
#[test]
fn rows_are_counted_to_the_bits_of_whole_tables() {
    let spec = ParameterSpec { name: "table".into(), shape: vec![6, 2], init: Init::Zeros };
    let parameters = Parameters::initialise(vec![spec], 1, Kind::Float);
    let lookups: [&[i64]; 9] =
        [&[4, 1, 4], &[0, 1, 4, 4], &[4], &[], &[2, 2], &[5, 1, 2], &[0], &[4, 4, 4, 0], &[1, 3]];
    for (micro_steps, dense_at) in (1..=9).flat_map(|n| [(n, None), (n, Some(0)), (n, Some(n / 2))]) {
        let by_rows = of_size(&parameters, 1, micro_steps, None).by_rows();
        let whole = of_size(&parameters, 1, micro_steps, None);
        // The second step has all rows alone.
        for dense_at in [dense_at, None] {
            for (m, ids) in lookups.into_iter().take(micro_steps).enumerate() {
                for buckets in [&by_rows, &whole] {
                    buckets.begin(m);
                    // A gradient of −0 is +0 in a sum.
                    let grad = of_lookup(if ids.is_empty() { &[3] } else { ids }, dense_at != Some(m));
                    let grad = if ids.is_empty() { grad * -0.0 } else { grad };
                    if m != 6 {
                        buckets.collect(&mut buckets.lock(), 0, 0, Some(grad));
                    }
                    buckets.finish();
                }
            }
            let found = by_rows.gradients().swap_remove(0);
            assert_eq!(found.is_sparse(), dense_at.is_none() || dense_at == Some(6));
            let found = if found.is_sparse() { found.to_dense(None, false) } else { found };
            let bits = |tensor: &Tensor| tensor.view_dtype(Kind::Int);
            let (found, whole) = (bits(&found), bits(&whole.gradients()[0]));
            assert_eq!(found, whole, "{micro_steps} micro-steps, dense at {dense_at:?}");
        }
    }
}

#[test]
fn gradients_of_lookups_add_up_alike_and_tell_their_rows() {
    let spec = ParameterSpec { name: "table".into(), shape: vec![6, 2], init: Init::Zeros };
    let parameters = Parameters::initialise(vec![spec], 1, Kind::Float);
    let steps: [[&[i64]; 3]; 2] = [[&[4, 1, 4], &[0, 1, 4, 4], &[4]], [&[2, 2], &[2, 2, 2, 2], &[5]]];
    for dense_at in [None, Some(1)] {
        let (sender, receiver) = segue_world::channel();
        let sparse = of_size(&parameters, 1, 3, Some(sender));
        let dense = of_size(&parameters, 1, 3, None);
        for lookups in steps {
            for (m, ids) in lookups.into_iter().enumerate() {
                for (buckets, is_sparse) in [(&sparse, dense_at != Some(m)), (&dense, false)] {
                    buckets.begin(m);
                    let grad = of_lookup(ids, is_sparse);
                    buckets.collect(&mut buckets.lock(), 0, 0, Some(grad));
                    buckets.finish();
                }
            }
            assert_eq!(sparse.gradients()[0], dense.gradients()[0]);
            // In rising order within a lookup, each once.
            let rising =
                |ids: &[i64]| ids.iter().map(|id| *id as u32).collect::<std::collections::BTreeSet<_>>();
            let numbers = lookups.into_iter().flat_map(rising).collect();
            let expected = if dense_at.is_some() { Rows::All } else { Rows::Some(numbers) };
            assert_eq!(summed(receiver.recv().unwrap()).table, Some((2, expected)));
        }
    }
}
