//! How fast the processor at hand multiplies matrices, by every routine that a training step could take.

use std::time::{Duration, Instant};

use tch::{Device, Kind, Tensor};

use super::product::{by_onednn, in_strips, in_tiles};
use super::tiles;

/// A routine that multiplies two matrices, both f32 on the CPU.
pub struct Multiplication {
    /// Its name.
    pub name: &'static str,
    /// The product, `[m, n]`, of what `prepare` made of `[m, k]` and `[k, n]`.
    product: fn(&Tensor, &Tensor) -> Tensor,
    /// Lays both sides out as the routine reads them.
    prepare: fn(Tensor, Tensor) -> [Tensor; 2],
}

/// Rows and columns of two matrices and their product: `[m, k, n]`.
pub type Shape = [usize; 3];

/// The routines that are there: libtorch's (MKL in its usual builds), oneDNN's, ours out of oneDNN's small products, and ours in tiles,
/// where the processor has them.
pub fn multiplications() -> &'static [Multiplication] {
    if tiles::available() { &MULTIPLICATIONS } else { &MULTIPLICATIONS[..MULTIPLICATIONS.len() - 1] }
}

const MULTIPLICATIONS: [Multiplication; 4] = [
    Multiplication { name: "libtorch", product: |a, b| a.mm(b), prepare: |a, b| [a, b] },
    Multiplication {
        name: "oneDNN",
        product: |a, b| by_onednn(a, b, None),
        prepare: |a, b| [a, b.tr().contiguous()],
    },
    Multiplication {
        name: "strips of small products of oneDNN",
        product: in_strips,
        prepare: |a, b| [a.tr().contiguous(), b],
    },
    Multiplication { name: "tiles of bfloat16, six a product", product: in_tiles, prepare: |a, b| [a, b] },
];

impl Multiplication {
    /// GFLOP/s of products of one shape that follow each other for at least `time`: the median of single products.
    pub fn gflops(&self, [m, k, n]: Shape, time: Duration) -> f64 {
        let matrix = |rows: usize, columns: usize| {
            Tensor::randn([rows as i64, columns as i64], (Kind::Float, Device::Cpu))
        };
        let [a, b] = (self.prepare)(matrix(m, k), matrix(k, n));
        let (begun, mut seconds) = (Instant::now(), Vec::new());
        while begun.elapsed() < time || seconds.is_empty() {
            let start = Instant::now();
            let _ = (self.product)(&a, &b);
            seconds.push(start.elapsed().as_secs_f64());
        }
        seconds.sort_by(f64::total_cmp);
        2.0 * (m * k * n) as f64 / seconds[seconds.len() / 2] / 1e9
    }

    /// Whether a product of square matrices with `side` rows is right: of small whole numbers chosen by `seed`, so that any order of
    /// sums gives the same, and held next to the product with a vector (Freivalds 1977), which no single wrong element leaves as it is.
    pub fn is_right(&self, side: usize, seed: u64) -> bool {
        // Any numbers will do that differ from place to place: the upper bits of multiples of the golden ratio.
        let number = |matrix: u64, place: usize| {
            let bits = (place as u64 + ((2 * seed + matrix) << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            (bits % 15) as i64 - 7
        };
        let numbers = |matrix| (0..side * side).map(|place| number(matrix, place)).collect::<Vec<i64>>();
        let (a, b) = (numbers(0), numbers(1));
        let matrix = |numbers: &[i64]| {
            let floats: Vec<f32> = numbers.iter().map(|number| *number as f32).collect();
            Tensor::from_slice(&floats).view([side as i64, side as i64])
        };
        let [left, right] = (self.prepare)(matrix(&a), matrix(&b));
        let product = (self.product)(&left, &right).contiguous();
        let Ok(product) = Vec::<f32>::try_from(product.view(-1)) else { return false };
        let vector: Vec<i64> = (0..side as i64).map(|place| place % 7 + 1).collect();
        let times = |matrix: &[i64], vector: &[i64]| -> Vec<i64> {
            matrix.chunks(side).map(|row| row.iter().zip(vector).map(|(x, y)| x * y).sum()).collect()
        };
        let largest = (7 * 7 * side) as f32;
        if !product.iter().all(|value| value.fract() == 0.0 && value.abs() <= largest) {
            return false;
        }
        let found: Vec<i64> = product.iter().map(|value| *value as i64).collect();
        times(&found, &vector) == times(&a, &times(&b, &vector))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    #[test]
    fn one_wrong_bit_in_a_product_is_found() {
        static BIT: AtomicI64 = AtomicI64::new(0);
        fn flipped(a: &Tensor, b: &Tensor) -> Tensor {
            let product = a.mm(b);
            let _ = product.get(3).get(5).view_dtype(Kind::Int).bitwise_xor_(BIT.load(Ordering::Relaxed));
            product
        }
        let sick = Multiplication { name: "sick", product: flipped, prepare: |a, b| [a, b] };
        for bit in 0..31 {
            BIT.store(1 << bit, Ordering::Relaxed);
            assert!(!sick.is_right(32, 0), "bit {bit}");
        }
    }

    #[test]
    fn every_routine_multiplies() {
        let (a, b) = (
            Tensor::from_slice2(&[[1f32, 2.0, 3.0], [4.0, 5.0, 6.0]]),
            Tensor::from_slice2(&[[1f32], [10.0], [100.0]]),
        );
        for routine in multiplications() {
            let [left, right] = (routine.prepare)(a.shallow_clone(), b.shallow_clone());
            let product = (routine.product)(&left, &right);
            assert_eq!(product.size(), [2, 1], "{}", routine.name);
            assert_eq!(Vec::<f32>::try_from(product.view(-1)).unwrap(), [321.0, 654.0], "{}", routine.name);
            assert!(routine.gflops([8, 16, 24], Duration::ZERO) > 0.0);
            assert!((0..3).all(|seed| routine.is_right(100, seed)), "{}", routine.name);
        }
    }
}
