//! Products by MKL, which libtorch's own routine is made of in its usual builds. On processors of MKL's maker with AVX-512 and no tiles, large
//! products are 6 to 15 % faster so than by oneDNN; on other makers' MKL leaves AVX-512 out.

use std::sync::OnceLock;

use tch::Tensor;

use super::{limit, tiles};

/// Shorter sides, and smaller products, are as fast by oneDNN or faster.
const SHORTEST: usize = 48;
const SMALLEST: usize = 1 << 24;

/// Whether large products are made here: where the processor is fastest so, and `ONEDNN_MAX_CPU_ISA`, which limits oneDNN's choice, does not speak
/// against AVX-512.
pub fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        is_intel_with_avx512() && limit::allows("512") && tch::utils::has_mkl() && !tiles::available()
    })
}

/// Whether a product of `[m, k]` and `[k, n]` is made here.
pub fn suit([m, n, k]: [usize; 3]) -> bool {
    m.min(n).min(k) >= SHORTEST && m * n * k >= SMALLEST && available()
}

/// `x`, `[.., in]`, times `weight`, `[out, in]`, transposed, plus `bias`, `[out]`, without a graph.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let _guard = tch::no_grad_guard();
    // Rows that lie apart would go another way, which rounds otherwise.
    x.contiguous().linear(weight, bias)
}

/// `left`, `[n, a]`, transposed times `right`, `[n, b]`, without a graph: `[a, b]`.
pub fn transposed_product(left: &Tensor, right: &Tensor) -> Tensor {
    let _guard = tch::no_grad_guard();
    left.contiguous().tr().mm(&right.contiguous())
}

#[cfg(target_arch = "x86_64")]
fn is_intel_with_avx512() -> bool {
    let maker = std::arch::x86_64::__cpuid(0);
    let name = [maker.ebx, maker.edx, maker.ecx].map(u32::to_le_bytes);
    name.as_flattened() == b"GenuineIntel" && is_x86_feature_detected!("avx512f")
}

#[cfg(not(target_arch = "x86_64"))]
fn is_intel_with_avx512() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    /// Bits that hung on where values lie would hang on what a process did before: on stops. Tensors begin where lines of the cache do, and parts
    /// of them anywhere.
    #[test]
    fn the_same_product_has_the_same_bits_wherever_its_values_lie() {
        let wave = |rows: i64, columns: i64, speed: f64| {
            (Tensor::arange(rows * columns, (Kind::Float, Device::Cpu)) * speed).sin().view([rows, columns])
        };
        let (x, grad) = (wave(128, 520, 0.7), wave(128, 264, 0.3));
        let (weight, bias) = (wave(264, 520, 1.3), wave(1, 264, 0.9).view([264]));
        assert!(!available() || suit([128, 264, 520]));
        let moved = |tensor: &Tensor, by: i64| {
            let room = Tensor::zeros([tensor.numel() as i64 + by], (Kind::Float, Device::Cpu));
            let mut place = room.narrow(0, by, tensor.numel() as i64).view_as(tensor);
            place.copy_(tensor);
            place
        };
        let products = |by: i64| {
            let [x, grad, weight, bias] = [&x, &grad, &weight, &bias].map(|tensor| moved(tensor, by));
            [
                linear(&x, &weight, Some(&bias)),
                linear(&x.view([2, 64, 520]), &weight, Some(&bias)),
                linear(&x, &weight, None),
                linear(&grad, &weight.tr(), None),
                transposed_product(&grad, &x),
            ]
        };
        let first = products(0);
        for by in [16, 48, 1024, 80] {
            assert_eq!(products(by), first, "{by} values on");
        }
        // Rows that lie apart.
        let apart = Tensor::cat(&[&x, &x], 1).narrow(1, 520, 520);
        assert_eq!(linear(&apart, &weight, Some(&bias)), first[0]);
    }
}
