//! What the processor at hand gives at best: the speed of matrix products by every library there is.

use std::time::{Duration, Instant};

use tch::{Device, Kind, Tensor};

use super::product::{plain_linear, transposed_product};

/// A way to multiply two square matrices, both f32 on the CPU.
pub struct Library {
    /// Its name.
    pub name: &'static str,
    product: fn(&Tensor, &Tensor) -> Tensor,
}

/// All that a training step could take its products from.
pub const LIBRARIES: [Library; 3] = [
    Library { name: "libtorch", product: |a, b| a.mm(b) },
    Library { name: "oneDNN", product: |a, b| plain_linear(a, b, None) },
    Library { name: "oneDNN, small products", product: transposed_product },
];

impl Library {
    /// GFLOP/s of products of `[size, size]` matrices that follow each other for at least `time`: the median of single products.
    pub fn gflops(&self, size: usize, time: Duration) -> f64 {
        let matrix = || Tensor::randn([size as i64, size as i64], (Kind::Float, Device::Cpu));
        let (a, b) = (matrix(), matrix());
        let (begun, mut seconds) = (Instant::now(), Vec::new());
        while begun.elapsed() < time || seconds.is_empty() {
            let start = Instant::now();
            let _ = (self.product)(&a, &b);
            seconds.push(start.elapsed().as_secs_f64());
        }
        seconds.sort_by(f64::total_cmp);
        2.0 * (size as f64).powi(3) / seconds[seconds.len() / 2] / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_library_multiplies() {
        let (a, b) =
            (Tensor::eye(3, (Kind::Float, Device::Cpu)) * 2.0, Tensor::arange(9, (Kind::Float, Device::Cpu)));
        let b = b.view([3, 3]);
        for library in &LIBRARIES {
            let product = (library.product)(&a, &b);
            // Some libraries take a side transposed, which changes no figure.
            let found = product.sum(None::<Kind>).double_value(&[]);
            assert_eq!(found, 72.0, "{}", library.name);
            assert!(library.gflops(64, Duration::ZERO) > 0.0);
        }
    }
}
