//! Which part of the sums over ranks backward hides, and which of the updated weights that come back the next forward pass.

use segue_engine::group;
use segue_kernels::ParameterSpec;

use super::role::Role;

/// A bucket of gradients on its way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// Its values.
    pub values: f64,
    /// When its last gradient is there, as a fraction of backward.
    pub ready: f64,
    /// When its first weight is read, as a fraction of the forward pass.
    pub read: f64,
}

/// How long ranks exchange something, and how long of it nothing else goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Overlap {
    /// Seconds of all of it.
    pub total: f64,
    /// Of them, those in which nothing else goes on.
    pub exposed: f64,
}

/// The buckets of `bucket_bytes` that the engine cuts gradients into, in the order in which they are complete, which is that of their sums. `roles` says
/// what each parameter is for, and [`Role::ready`] and [`Role::read`] when its gradient is complete and its weights are read.
pub fn buckets(
    specs: &[ParameterSpec],
    roles: &[Role],
    bucket_bytes: usize,
    output: f64,
    layers: f64,
) -> Vec<Bucket> {
    let bucket = |members: Vec<usize>| Bucket {
        values: members.iter().map(|&i| specs[i].numel() as f64).sum(),
        ready: members.iter().map(|&i| roles[i].ready(output, layers)).fold(0.0, f64::max),
        read: members.iter().map(|&i| roles[i].read(output, layers)).fold(1.0, f64::min),
    };
    let mut buckets: Vec<Bucket> = group(specs, bucket_bytes).into_iter().map(bucket).collect();
    buckets.sort_by(|a, b| a.ready.total_cmp(&b.ready));
    buckets
}

/// Sums the buckets one after the other beside a backward of `backward` seconds; `sum` says how long one takes by its values.
pub fn hidden_behind(backward: f64, buckets: &[Bucket], sum: impl Fn(f64) -> f64) -> Overlap {
    let (mut now, mut total) = (0.0f64, 0.0);
    for bucket in buckets {
        let takes = sum(bucket.values);
        now = now.max(bucket.ready * backward) + takes;
        total += takes;
    }
    Overlap { total, exposed: (now - backward).max(0.0) }
}

/// Brings in the weights of the buckets one after the other, in the order in which a forward pass of `forward` seconds reads them, from its beginning on;
/// `gather` says how long one takes by its values. The pass waits for what it reads.
pub fn hidden_behind_forward(forward: f64, buckets: &[Bucket], gather: impl Fn(f64) -> f64) -> Overlap {
    let mut in_order = buckets.to_vec();
    in_order.sort_by(|a, b| a.read.total_cmp(&b.read));
    let mut overlap = Overlap::default();
    for bucket in in_order {
        overlap.total += gather(bucket.values);
        let reads = bucket.read * forward + overlap.exposed;
        overlap.exposed += (overlap.total - reads).max(0.0);
    }
    overlap
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use segue_kernels::Init;

    use super::*;

    fn buckets_of(sizes: &[(Role, i64)], output: f64, layers: f64) -> Vec<Bucket> {
        let spec = |&(_, size): &(Role, i64)| ParameterSpec {
            name: String::new(),
            shape: vec![size],
            init: Init::Zeros,
        };
        let specs: Vec<ParameterSpec> = sizes.iter().map(spec).collect();
        let roles: Vec<Role> = sizes.iter().map(|(role, _)| *role).collect();
        // A value each of 4 bytes: 16 values fill a bucket.
        buckets(&specs, &roles, 64, output, layers)
    }

    #[test]
    fn buckets_come_in_the_order_of_backward() {
        let made = buckets_of(&[(Role::Embedding, 64), (Role::Layer(0), 16), (Role::Layer(1), 16)], 0.2, 2.0);
        let expected = [(16.0, 0.2 + 0.8 * 0.5, 0.8 * 0.5), (16.0, 1.0, 0.0), (64.0, 1.0, 0.0)];
        assert_eq!(made, expected.map(|(values, ready, read)| Bucket { values, ready, read }));
        // What all layers share stands before them, and is complete after them. An output layer that stands behind them comes first.
        let made = buckets_of(&[(Role::Layer(0), 16), (Role::Shared, 16)], 0.0, 1.0);
        assert_eq!(made.iter().map(|bucket| bucket.ready).collect::<Vec<_>>(), [1.0, 1.0]);
        let made = buckets_of(&[(Role::Layer(0), 16), (Role::Output, 16)], 0.3, 1.0);
        assert_eq!(made.iter().map(|bucket| bucket.ready).collect::<Vec<_>>(), [0.3, 1.0]);
        // So does one that stands before them.
        let made = buckets_of(&[(Role::Output, 32), (Role::Layer(0), 16)], 0.3, 1.0);
        assert_eq!(made.iter().map(|bucket| bucket.values).collect::<Vec<_>>(), [32.0, 16.0]);
    }

    #[test]
    fn what_arrives_last_is_exposed_and_the_rest_hidden() {
        let at = |ready: f64| Bucket { values: 1.0, ready, read: 0.0 };
        let hidden = hidden_behind(10.0, &[at(0.5), at(1.0)], |_| 2.0);
        assert_eq!(hidden, Overlap { total: 4.0, exposed: 2.0 });
        // A slow link is still busy with the first when the second comes.
        assert_eq!(hidden_behind(10.0, &[at(0.5), at(1.0)], |_| 7.0).exposed, 9.0);
        assert_eq!(hidden_behind(10.0, &[], |_| 7.0), Overlap::default());
    }

    #[test]
    fn weights_that_are_read_late_come_behind_the_layers_before_them() {
        let at = |read: f64| Bucket { values: 1.0, ready: 1.0, read };
        // The first is waited for; the second comes while what the first brought is computed with.
        let found = hidden_behind_forward(10.0, &[at(0.5), at(0.0)], |_| 2.0);
        assert_eq!(found, Overlap { total: 4.0, exposed: 2.0 });
        // The link is the slower one: 7 for the first, and 7 more but for the 5 between the two.
        assert_eq!(hidden_behind_forward(10.0, &[at(0.0), at(0.5)], |_| 7.0).exposed, 9.0);
        assert_eq!(hidden_behind_forward(10.0, &[], |_| 7.0), Overlap::default());
    }

    proptest! {
        #[test]
        fn no_more_is_exposed_than_there_is(
            backward in 0.0..10.0f64, takes in 0.0..3.0f64, at in proptest::collection::vec(0.0..1.0f64, 0..9)
        ) {
            let buckets: Vec<Bucket> = at.iter().map(|&at| Bucket { values: 1.0, ready: at, read: at }).collect();
            for overlap in [
                hidden_behind(backward, &buckets, |_| takes),
                hidden_behind_forward(backward, &buckets, |_| takes),
            ] {
                prop_assert!(overlap.exposed <= overlap.total + 1e-9);
                prop_assert!(overlap.exposed >= 0.0);
            }
        }
    }
}
