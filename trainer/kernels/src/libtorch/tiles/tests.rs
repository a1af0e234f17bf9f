use segue_skip::{Need, skip};

use super::*;

/// Values of many sizes and both signs.
fn values(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let size = 2f32.powi((state >> 8) as i32 % 9 - 4);
            (state as f32 / u32::MAX as f32 - 0.5) * size
        })
        .collect()
}

fn transposed(values: &[f32], columns: usize) -> Vec<f32> {
    let rows = values.len() / columns.max(1);
    (0..values.len()).map(|i| values[i % rows * columns + i / rows]).collect()
}

/// The product of `a`, `[m, k]`, and `b`, `[n, k]`, each read as rows and as columns, in rows of `n + 3`.
fn products(a: &[f32], b: &[f32], [m, n, k]: [usize; 3], start: Start<'_>) -> Vec<Vec<f32>> {
    let (a_turned, b_turned) = (transposed(a, k), transposed(b, k));
    let lefts = [Side::rows(a, [m, k], k), Side::columns(&a_turned, [k, m], m)];
    let rights = [Side::rows(b, [n, k], k), Side::columns(&b_turned, [k, n], n)];
    let mut all = Vec::new();
    for left in lefts {
        for right in rights {
            let mut to = vec![1.0f32; m * (n + 3)];
            // SAFETY: tiles are available where this is called, and `to` has all rows.
            unsafe { product(left, right, Shared::of_slice(&mut to), n + 3, start) };
            all.push(to);
        }
    }
    all
}

#[test]
fn products_are_those_of_double_precision_whatever_the_layout() {
    if !available() {
        return skip(Need::Machine, "a processor with AMX");
    }
    for shape in
        [[1, 1, 1], [16, 16, 32], [33, 31, 65], [70, 100, 130], [300, 40, 700], [40, 300, 1500], [5, 70, 33]]
    {
        let [m, n, k] = shape;
        let (a, b) = (values(m * k, 1), values(n * k, 2));
        let bias = values(n, 3);
        for start in [Start::Zero, Start::Bias(&bias), Start::There] {
            let all = products(&a, &b, shape, start);
            assert!(all.iter().all(|other| *other == all[0]), "{shape:?}: layouts differ");
            for (row, to) in all[0].chunks(n + 3).enumerate() {
                assert_eq!(to[n..], [1.0; 3], "{shape:?}: beyond the row");
                for (column, found) in to[..n].iter().enumerate() {
                    let pairs = a[row * k..][..k].iter().zip(&b[column * k..][..k]);
                    let first = match start {
                        Start::Zero => 0.0,
                        Start::Bias(bias) => f64::from(bias[column]),
                        Start::There => 1.0,
                    };
                    let exact: f64 =
                        pairs.clone().map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() + first;
                    let size: f64 =
                        pairs.map(|(a, b)| (f64::from(*a) * f64::from(*b)).abs()).sum::<f64>() + first.abs();
                    let error = (f64::from(*found) - exact).abs();
                    assert!(error <= 4e-7 * size, "{shape:?} [{row}, {column}]: {found} for {exact}");
                }
            }
        }
    }
}

#[test]
fn they_are_as_exact_as_fused_products_and_sums() {
    if !available() {
        return skip(Need::Machine, "a processor with AMX");
    }
    let [m, n, k] = [64, 64, 640];
    let (a, b) = (values(m * k, 5), values(n * k, 6));
    let tiles = products(&a, &b, [m, n, k], Start::Zero).remove(0);
    let (mut of_tiles, mut of_fused) = (0.0, 0.0);
    for row in 0..m {
        for column in 0..n {
            let pairs = || a[row * k..][..k].iter().zip(&b[column * k..][..k]);
            let exact: f64 = pairs().map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            let fused = pairs().fold(0f32, |sum, (a, b)| a.mul_add(*b, sum));
            of_tiles += (f64::from(tiles[row * (n + 3) + column]) - exact).powi(2);
            of_fused += (f64::from(fused) - exact).powi(2);
        }
    }
    assert!(of_tiles < of_fused, "squared errors {of_tiles:e}, of fused ones {of_fused:e}");
}

#[test]
fn a_value_depends_on_its_own_vectors_alone() {
    if !available() {
        return skip(Need::Machine, "a processor with AMX");
    }
    let [m, n, k] = [600, 70, 90];
    let (a, b) = (values(m * k, 7), values(n * k, 8));
    let whole = products(&a, &b, [m, n, k], Start::Zero).remove(0);
    for rows in [0..1, 3..20, 250..517] {
        let some = products(&a[rows.start * k..rows.end * k], &b, [rows.len(), n, k], Start::Zero).remove(0);
        let same =
            rows.clone().zip(some.chunks(n + 3)).all(|(row, some)| whole[row * (n + 3)..][..n] == some[..n]);
        assert!(same, "{rows:?}");
    }
}

#[test]
fn what_is_not_finite_is_seen() {
    if !available() {
        return skip(Need::Machine, "a processor with AMX");
    }
    for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        let (mut a, b) = (values(64 * 64, 9), values(64 * 64, 10));
        a[5 * 64 + 3] = bad;
        let found = products(&a, &b, [64, 64, 64], Start::Zero).remove(0);
        for (row, found) in found.chunks(67).enumerate() {
            assert!(found[..64].iter().all(|value| value.is_finite() == (row != 5)), "{bad} in row {row}");
        }
    }
}
