//! Sinusoids of absolute positions (Vaswani et al. 2017, §3.5).

use segue_kernels::Options;
use tch::Tensor;

use super::attention::{WAVELENGTH_BASE, inverse_frequencies};

/// Vectors of the positions `first, first + 1, ..`, `[count, d_model]`: sines in the first half, cosines in the second, as Tensor2Tensor and Marian have
/// them. Wavelengths are those of the paper.
pub fn position_vectors(first: i64, count: i64, d_model: i64, options: Options) -> Tensor {
    let positions = Tensor::arange_start(first, first + count, options);
    let angles = positions.outer(&inverse_frequencies(d_model, options));
    Tensor::cat(&[angles.sin(), angles.cos()], 1)
}

/// The vector of one position, `[d_model]`, computed in double precision.
pub fn position_vector(position: usize, d_model: usize) -> impl Iterator<Item = f32> {
    let angle = move |pair: usize| position as f64 / WAVELENGTH_BASE.powf(2.0 * pair as f64 / d_model as f64);
    let pairs = 0..d_model / 2;
    pairs
        .clone()
        .map(move |pair| angle(pair).sin() as f32)
        .chain(pairs.map(move |pair| angle(pair).cos() as f32))
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    #[test]
    fn sines_and_cosines_have_the_wavelengths_of_the_paper() {
        let table = position_vectors(2, 3, 6, (Kind::Double, Device::Cpu));
        assert_eq!(table.size(), [3, 6]);
        for (row, position) in (0..3).zip(2..) {
            for pair in 0..3 {
                let angle = f64::from(position) / 10_000f64.powf(2.0 * f64::from(pair) / 6.0);
                let at = |column: i32| table.double_value(&[row, i64::from(column)]);
                assert!((at(pair) - angle.sin()).abs() < 1e-14 && (at(pair + 3) - angle.cos()).abs() < 1e-14);
            }
        }
    }
}
