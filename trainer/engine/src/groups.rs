//! Groups: parts of a micro-step within which a loss acts that is no sum over examples.

use tch::Tensor;

/// Examples of a micro-step by group of `group`, in their order: `[micro_batch, ..]` becomes `[micro_batch / group, group, ..]`. A view.
///
/// A loss computed within a group, such as the distance between two means, is weighted by the size of the group, so that the engine's division by the
/// weight of the whole batch gives a mean over examples, as for any other loss. Panics if a group is incomplete; `train.group` is checked against that.
pub fn by_group(examples: &Tensor, group: usize) -> Tensor {
    let size = examples.size();
    let group = group as i64;
    assert!(group > 0 && size[0] % group == 0, "{} examples are no whole groups of {group}", size[0]);
    examples.view([&[size[0] / group, group], &size[1..]].concat().as_slice())
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    #[test]
    fn groups_are_of_neighbours() {
        let examples = Tensor::arange(12, (Kind::Int64, Device::Cpu)).view([6, 2]);
        let groups = by_group(&examples, 3);
        assert_eq!(groups.size(), [2, 3, 2]);
        assert!(groups.get(1).equal(&examples.narrow(0, 3, 3)));
        assert_eq!(by_group(&examples, 6).size(), [1, 6, 2]);
    }

    #[test]
    #[should_panic(expected = "6 examples are no whole groups of 4")]
    fn a_group_is_never_cut() {
        let _ = by_group(&Tensor::zeros([6], (Kind::Float, Device::Cpu)), 4);
    }
}
