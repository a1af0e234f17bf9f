//! The hashes of a place as tensor operations, for devices that no loop of ours reaches.

use tch::{Device, Kind, Scalar, Tensor};

use super::drops::Drops;
use super::{FIRST_FACTOR, Hashes, SECOND_FACTOR};

/// Values of one piece: the operations keep several tensors of as many integers.
const PIECE: i64 = 1 << 26;

/// What `drops` multiplies each of `count` values by, `[count]` in f32: to the bit what [`Drops::factor`] gives.
pub fn factors(count: i64, drops: Drops, device: Device) -> Tensor {
    let piece = |start: i64| {
        let length = PIECE.min(count - start);
        factors_of(&Tensor::arange_start(start, start + length, (Kind::Int64, device)), drops)
    };
    let pieces: Vec<Tensor> = (0..count).step_by(PIECE as usize).map(piece).collect();
    match pieces.len() {
        0 => Tensor::empty([0], (Kind::Float, device)),
        _ => Tensor::cat(&pieces, 0),
    }
}

/// The same for values with these `numbers`, integers of 64 bits, in their shape.
pub fn factors_of(numbers: &Tensor, drops: Drops) -> Tensor {
    // The order of unsigned numbers is that of signed ones with the first bit turned.
    let threshold = scalar(drops.threshold ^ SIGN);
    let dropped = hashes(numbers, drops.hashes).bitwise_xor(scalar(SIGN)).lt(threshold);
    let kept = Tensor::full(numbers.size(), f64::from(drops.kept()), (Kind::Float, numbers.device()));
    kept.masked_fill(&dropped, 0.0)
}

/// The first bit of 32.
const SIGN: u32 = 1 << 31;

/// [`Hashes::at`] of each number: the 32 bits as signed integers, whose sums and products are those of unsigned ones modulo 2^32.
fn hashes(numbers: &Tensor, place: Hashes) -> Tensor {
    let numbers = (numbers + i64::from(place.first)).to_kind(Kind::Int);
    let once = mix(numbers.bitwise_xor(scalar(place.keys[0])));
    mix(once.bitwise_xor(scalar(place.keys[1])))
}

/// `super::mix` of each value.
fn mix(x: Tensor) -> Tensor {
    let x = x.bitwise_xor_tensor(&shifted(&x, 16)) * signed(FIRST_FACTOR);
    let x = x.bitwise_xor_tensor(&shifted(&x, 13)) * signed(SECOND_FACTOR);
    x.bitwise_xor_tensor(&shifted(&x, 16))
}

/// Shifted right as unsigned numbers are: what the sign brings in is cut off.
fn shifted(x: &Tensor, bits: i64) -> Tensor {
    x.bitwise_right_shift_tensor_scalar(bits).bitwise_and(i64::from(u32::MAX >> bits))
}

fn signed(bits: u32) -> i64 {
    i64::from(bits as i32)
}

fn scalar(bits: u32) -> Scalar {
    signed(bits).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_those_of_the_loop() {
        for (seed, place, first) in [(5, 0, 0), (u64::MAX, 7, 12_345), (1 << 40, 3, u32::MAX as usize - 500)]
        {
            let hashes = Hashes::new(seed, place).from(first);
            for rate in [0.0, 0.1, 0.5, 0.999] {
                let drops = Drops::new(hashes, rate);
                let found = Vec::<f32>::try_from(factors(1000, drops, Device::Cpu)).unwrap();
                let expected: Vec<f32> = (0..1000).map(|i| drops.factor(i)).collect();
                assert!(found == expected, "seed {seed}, place {place}, from {first}, rate {rate}");
            }
        }
    }
}
