//! What keeps the outputs of a recurrent layer small and slow (Merity et al. 2018, §4.6).

use tch::{Kind, Tensor};

/// Activation regularisation: the mean square of `hidden`, of any shape.
pub fn activation_penalty(hidden: &Tensor) -> Tensor {
    hidden.square().mean(None::<Kind>)
}

/// Temporal activation regularisation: the mean square of what changes from one position to the next, of `hidden`, `[lanes, positions, n]`;
/// none of a single position.
pub fn slowness_penalty(hidden: &Tensor) -> Option<Tensor> {
    let changes = hidden.size()[1] - 1;
    (changes > 0)
        .then(|| (hidden.narrow(1, 1, changes) - hidden.narrow(1, 0, changes)).square().mean(None::<Kind>))
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    /// Row S11.
    #[test]
    fn a_constant_state_is_slow_and_counts_by_its_square() {
        let twos = Tensor::full([3, 5, 7], 2.0, (Kind::Double, Device::Cpu));
        assert_eq!((activation_penalty(&twos) * 2.0).double_value(&[]), 8.0);
        assert_eq!(slowness_penalty(&twos).unwrap().double_value(&[]), 0.0);
        assert!(slowness_penalty(&twos.narrow(1, 0, 1)).is_none());
    }

    /// Two lanes of three positions: changes of 1, 2 and 3, 0.
    /// Row S11.
    #[test]
    fn changes_are_those_between_neighbours_in_time() {
        let hidden = Tensor::from_slice(&[0.0, 1.0, 3.0, 5.0, 2.0, 2.0]).view([2, 3, 1]);
        assert_eq!(slowness_penalty(&hidden).unwrap().double_value(&[]), (1.0 + 4.0 + 9.0) / 4.0);
        assert_eq!(activation_penalty(&hidden).double_value(&[]), (1.0 + 9.0 + 25.0 + 4.0 + 4.0) / 6.0);
    }
}
