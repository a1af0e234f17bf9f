//! The graph of five nodes that expected values are worked out for: a triangle 0-1-2 and a tail 2-3-4.

use tch::Tensor;

/// Its edges.
pub const EDGES: [(u32, u32); 5] = [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4)];

/// The law of pairs at most two steps apart on walks over ten nodes, to nine digits.
pub const POSITIVE: [[f64; 5]; 5] = [
    [0.072562101, 0.050678881, 0.056433475, 0.012287151, 0.0],
    [0.050678881, 0.072562101, 0.056433475, 0.012287151, 0.0],
    [0.056433475, 0.056433475, 0.117186842, 0.041314184, 0.019464173],
    [0.012287151, 0.012287151, 0.041314184, 0.100302066, 0.045818866],
    [0.0, 0.0, 0.019464173, 0.045818866, 0.047952178],
];

/// e and w, `[5, 2]` each, f64: `sin(1 + i + 2j)` and `cos(1 + 2i + j)`.
pub fn tables() -> (Tensor, Tensor) {
    let table = |f: &dyn Fn(i32, i32) -> f64| {
        let values: Vec<f64> = (0..5).flat_map(|i| [f(i, 0), f(i, 1)]).collect();
        Tensor::from_slice(&values).view([5, 2])
    };
    (table(&|i, j| f64::from(1 + i + 2 * j).sin()), table(&|i, j| f64::from(1 + 2 * i + j).cos()))
}
