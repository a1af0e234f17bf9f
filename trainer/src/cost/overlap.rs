//! Which part of the sums over ranks backward hides.

use super::role::Role;
use crate::ParameterSpec;
use crate::engine::group;

/// A bucket of gradients on its way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// Its values.
    pub values: f64,
    /// When its last gradient is there, as a fraction of backward.
    pub ready: f64,
}

/// How long sums take, and how long of it nothing else goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Overlap {
    /// Seconds of all sums.
    pub total: f64,
    /// Of them, those after backward.
    pub exposed: f64,
}

/// The buckets of `bucket_bytes` that the engine cuts gradients into, in the order in which they are complete, which is that of their sums. `roles` says
/// what each parameter is for, and [`Role::ready`] when its gradient is complete.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Init;
    use proptest::prelude::*;

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
        let expected = [(16.0, 0.2 + 0.8 * 0.5), (16.0, 1.0), (64.0, 1.0)];
        assert_eq!(made, expected.map(|(values, ready)| Bucket { values, ready }));
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
        let at = |ready: f64| Bucket { values: 1.0, ready };
        let hidden = hidden_behind(10.0, &[at(0.5), at(1.0)], |_| 2.0);
        assert_eq!(hidden, Overlap { total: 4.0, exposed: 2.0 });
        // A slow link is still busy with the first when the second comes.
        assert_eq!(hidden_behind(10.0, &[at(0.5), at(1.0)], |_| 7.0).exposed, 9.0);
        assert_eq!(hidden_behind(10.0, &[], |_| 7.0), Overlap::default());
    }

    proptest! {
        #[test]
        fn no_more_is_exposed_than_there_is(
            backward in 0.0..10.0f64, takes in 0.0..3.0f64, at in proptest::collection::vec(0.0..1.0f64, 0..9)
        ) {
            let buckets: Vec<Bucket> = at.iter().map(|&ready| Bucket { values: 1.0, ready }).collect();
            let overlap = hidden_behind(backward, &buckets, |_| takes);
            prop_assert!(overlap.exposed <= overlap.total + 1e-9);
            prop_assert!(overlap.exposed >= 0.0);
        }
    }
}
