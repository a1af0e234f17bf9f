use segue_kernels::simd::{exp, max, sum, vectorised};

/// Heads of attention of a row (Vaswani et al. 2017, §3.2).
#[derive(Debug, Clone, Copy)]
pub struct RowHeads {
    /// How many.
    pub heads: usize,
    /// Values of a row, those of all heads one after the other.
    pub d_model: usize,
}

impl RowHeads {
    /// What `query`, `[d_model]`, reads of positions whose keys and values, `[2 d_model]`, are `from`: to `read`, `[d_model]`. Leaves the weights of each head,
    /// `[heads, positions]`, in `weights`.
    pub fn read(self, query: &[f32], from: &[&[f32]], weights: &mut Vec<f32>, read: &mut [f32]) {
        assert!(from.iter().all(|row| row.len() == 2 * self.d_model) && query.len() == self.d_model);
        weights.clear();
        weights.resize(self.heads * from.len(), 0.0);
        attend(self, query, from, weights, read);
    }
}

vectorised! { fn attend(heads: RowHeads, query: &[f32], from: &[&[f32]], weights: &mut [f32], read: &mut [f32]) = attend_plain; }

#[inline(always)]
fn attend_plain(
    RowHeads { heads, d_model }: RowHeads,
    query: &[f32],
    from: &[&[f32]],
    weights: &mut [f32],
    read: &mut [f32],
) {
    let (count, width) = (from.len(), d_model / heads);
    let scale = 1.0 / (width as f32).sqrt();
    for (position, row) in from.iter().enumerate() {
        let pairs = query.chunks_exact(width).zip(row[..d_model].chunks_exact(width));
        for (head, (query, key)) in pairs.enumerate() {
            weights[head * count + position] = dot(query, key) * scale;
        }
    }
    for row in weights.chunks_exact_mut(count) {
        let top = max(row);
        row.iter_mut().for_each(|score| *score = exp(*score - top));
        let whole = 1.0 / sum(row);
        row.iter_mut().for_each(|weight| *weight *= whole);
    }
    read.fill(0.0);
    for (position, row) in from.iter().enumerate() {
        let pairs = read.chunks_exact_mut(width).zip(row[d_model..].chunks_exact(width));
        for (head, (read, value)) in pairs.enumerate() {
            let weight = weights[head * count + position];
            read.iter_mut().zip(value).for_each(|(read, value)| *read = weight.mul_add(*value, *read));
        }
    }
}

/// Sums that are added up side by side.
const LANES: usize = 16;

/// Σ a b. The last sums are made by halves, so that those of several dot products run in parallel.
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum = a.mul_add(*b, *sum);
        }
    }
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            sums[i] += sums[i + half];
        }
    }
    a_rest.iter().zip(b_rest).fold(sums[0], |sum, (a, b)| a.mul_add(*b, sum))
}

#[cfg(test)]
pub(super) fn assert_plain(x: &[f32], width: usize) {
    let heads = RowHeads { heads: 2, d_model: width };
    let from: Vec<&[f32]> = x[width..].chunks_exact(2 * width).collect();
    let [mut ours, mut plain] = [(); 2].map(|()| (vec![0.0; 2 * from.len()], vec![0.0; width]));
    attend(heads, &x[..width], &from, &mut ours.0, &mut ours.1);
    attend_plain(heads, &x[..width], &from, &mut plain.0, &mut plain.1);
    assert_eq!(ours, plain);
}
