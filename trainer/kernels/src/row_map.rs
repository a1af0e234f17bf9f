//! Linear maps of rows that stand side by side. A row has the same bits whatever stands beside it, and on every processor: each output sums its products in the
//! order of the inputs, with one rounding for each. Weights are laid out once and read again and again.

/// Columns of a strip of the weights.
const STRIP: usize = 32;

/// The weights of an input to the outputs of a strip.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; STRIP]);

/// x Wᵀ + b of rows, in f32 on the calling thread.
pub struct RowMap {
    /// Strip after strip, of each a line for every input.
    lines: Vec<Line>,
    /// A line for each strip.
    bias: Vec<Line>,
    inputs: usize,
    outputs: usize,
}

impl RowMap {
    /// The map by `weight`, `[outputs, inputs]`, and `bias`, `[outputs]`.
    pub fn new(weight: &[f32], [outputs, inputs]: [usize; 2], bias: Option<&[f32]>) -> Self {
        assert!(weight.len() == outputs * inputs && bias.is_none_or(|bias| bias.len() == outputs));
        let strips = outputs.div_ceil(STRIP);
        let mut lines = vec![Line([0.0; STRIP]); strips * inputs];
        for (output, row) in weight.chunks_exact(inputs.max(1)).enumerate() {
            let strip = &mut lines[output / STRIP * inputs..][..inputs];
            strip.iter_mut().zip(row).for_each(|(line, weight)| line.0[output % STRIP] = *weight);
        }
        let mut start = vec![Line([0.0; STRIP]); strips];
        for (output, bias) in bias.unwrap_or_default().iter().enumerate() {
            start[output / STRIP].0[output % STRIP] = *bias;
        }
        Self { lines, bias: start, inputs, outputs }
    }

    /// Values of a row that it reads, and of one that it gives.
    pub fn sides(&self) -> [usize; 2] {
        [self.inputs, self.outputs]
    }

    /// The map of `x`, `[rows, inputs]`, to `y`, `[rows, outputs]`.
    pub fn apply(&self, x: &[f32], y: &mut [f32]) {
        let rows = y.len().checked_div(self.outputs).unwrap_or(0);
        assert!(x.len() == rows * self.inputs && y.len() == rows * self.outputs);
        for (strip, start) in self.bias.iter().enumerate() {
            let lines = &self.lines[strip * self.inputs..][..self.inputs];
            let columns = strip * STRIP..self.outputs.min((strip + 1) * STRIP);
            let mut row = 0;
            while row < rows {
                let block = Block { x: &x[row * self.inputs..], inputs: self.inputs, lines, start };
                let mut made = [Line([0.0; STRIP]); MOST_ROWS];
                let count = block.make(rows - row, &mut made);
                for (line, y) in made[..count].iter().zip(y[row * self.outputs..].chunks_mut(self.outputs)) {
                    y[columns.clone()].copy_from_slice(&line.0[..columns.len()]);
                }
                row += count;
            }
        }
    }
}

/// Rows that are made side by side, at most: their sums, two vectors a row, take 24 of the 32 registers of AVX-512.
const MOST_ROWS: usize = 12;

/// Some rows in the columns of a strip.
struct Block<'a> {
    x: &'a [f32],
    inputs: usize,
    lines: &'a [Line],
    start: &'a Line,
}

impl Block<'_> {
    /// Makes the first of `left` rows; returns how many.
    fn make(&self, left: usize, to: &mut [Line; MOST_ROWS]) -> usize {
        #[cfg(target_arch = "x86_64")]
        {
            if std::arch::is_x86_feature_detected!("avx512f") {
                // SAFETY: the processor has AVX-512F.
                return unsafe {
                    match left {
                        12.. => twelve(self, to),
                        8.. => eight(self, to),
                        4.. => four(self, to),
                        2.. => two(self, to),
                        _ => one(self, to),
                    }
                };
            }
            if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                // SAFETY: the processor has AVX2 and FMA.
                return unsafe {
                    match left {
                        3.. => three_by_avx2(self, to),
                        2 => two_by_avx2(self, to),
                        _ => one_by_avx2(self, to),
                    }
                };
            }
        }
        let _ = left;
        self.plain(to)
    }

    /// One row.
    fn plain(&self, to: &mut [Line; MOST_ROWS]) -> usize {
        to[0] = *self.start;
        for (line, x) in self.lines.iter().zip(&self.x[..self.inputs]) {
            for (sum, weight) in to[0].0.iter_mut().zip(&line.0) {
                *sum = x.mul_add(*weight, *sum);
            }
        }
        1
    }

    /// Where each of so many rows starts, all of whose inputs are there.
    fn starts<const ROWS: usize>(&self) -> [*const f32; ROWS] {
        assert!(self.lines.len() == self.inputs && self.x.len() >= ROWS * self.inputs && ROWS <= MOST_ROWS);
        std::array::from_fn(|row| self.x[row * self.inputs..].as_ptr())
    }
}

/// Functions that make rows of these numbers, in vectors of so many values. Written out row by row: loops over rows are not unrolled, and their sums would go
/// to memory and back.
#[cfg(target_arch = "x86_64")]
macro_rules! rows {
    ($features:literal, $lanes:literal, $load:ident, $all:ident, $fused:ident, $store:ident: $($name:ident = [$($row:literal)*];)*) => {$(
        #[target_feature(enable = $features)]
        fn $name(block: &Block, to: &mut [Line; MOST_ROWS]) -> usize {
            use std::arch::x86_64::*;
            const ROWS: usize = [$($row),*].len();
            const VECTORS: usize = STRIP / $lanes;
            let rows: [_; ROWS] = block.starts();
            let vector = |line: &Line, number: usize| {
                let start = line.0.as_ptr().wrapping_add(number * $lanes);
                // SAFETY: a line has so many vectors, and begins at a multiple of their size.
                unsafe { $load(start) }
            };
            let mut start = [vector(block.start, 0); VECTORS];
            for number in 1..VECTORS {
                start[number] = vector(block.start, number);
            }
            let mut sums = [start; ROWS];
            for (input, line) in block.lines.iter().enumerate() {
                let mut weights = [vector(line, 0); VECTORS];
                for number in 1..VECTORS {
                    weights[number] = vector(line, number);
                }
                $(
                    // SAFETY: every input of the row is there.
                    let x = $all(unsafe { *rows[$row].wrapping_add(input) });
                    for number in 0..VECTORS {
                        sums[$row][number] = $fused(x, weights[number], sums[$row][number]);
                    }
                )*
            }
            for (to, sums) in to.iter_mut().zip(sums) {
                for (number, sum) in sums.into_iter().enumerate() {
                    // SAFETY: as of reading.
                    unsafe { $store(to.0.as_mut_ptr().wrapping_add(number * $lanes), sum) };
                }
            }
            ROWS
        }
    )*};
}

#[cfg(target_arch = "x86_64")]
rows! {
    "avx512f", 16, _mm512_load_ps, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_store_ps:
    twelve = [0 1 2 3 4 5 6 7 8 9 10 11];
    eight = [0 1 2 3 4 5 6 7];
    four = [0 1 2 3];
    two = [0 1];
    one = [0];
}

#[cfg(target_arch = "x86_64")]
rows! {
    "avx2,fma", 8, _mm256_load_ps, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_store_ps:
    three_by_avx2 = [0 1 2];
    two_by_avx2 = [0 1];
    one_by_avx2 = [0];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(count: usize, speed: f32) -> Vec<f32> {
        (0..count).map(|i| (i as f32 * speed).sin()).collect()
    }

    #[test]
    fn rows_are_those_of_double_precision() {
        for [rows, outputs, inputs] in
            [[1, 1, 1], [3, 31, 5], [12, 32, 16], [25, 100, 70], [0, 4, 3], [11, 64, 0]]
        {
            let (x, weight, bias) =
                (wave(rows * inputs, 0.7), wave(outputs * inputs, 1.3), wave(outputs, 0.9));
            let map = RowMap::new(&weight, [outputs, inputs], Some(&bias));
            let mut y = vec![f32::NAN; rows * outputs];
            map.apply(&x, &mut y);
            for (at, y) in y.iter().enumerate() {
                let (row, output) = (at / outputs, at % outputs);
                let pairs = x[row * inputs..][..inputs].iter().zip(&weight[output * inputs..]);
                let exact: f64 = pairs.map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
                let error = f64::from(*y) - exact - f64::from(bias[output]);
                assert!(error.abs() < 1e-5, "{rows} {outputs} {inputs}: {error}");
            }
        }
    }

    /// By every routine that the processor has, whatever stands beside it: the bits of the plain loop.
    #[test]
    fn a_row_has_the_same_bits_beside_any_others() {
        let (rows, outputs, inputs) = (27, 70, 90);
        let (x, weight, bias) = (wave(rows * inputs, 0.7), wave(outputs * inputs, 1.3), wave(outputs, 0.9));
        let map = RowMap::new(&weight, [outputs, inputs], Some(&bias));
        let mut alone = Vec::new();
        for row in x.chunks(inputs) {
            for (output, bias) in bias.iter().enumerate() {
                let pairs = row.iter().zip(&weight[output * inputs..]);
                alone.push(pairs.fold(*bias, |sum, (x, w)| x.mul_add(*w, sum)));
            }
        }
        for count in 1..=rows {
            let mut y = vec![0.0; count * outputs];
            map.apply(&x[(rows - count) * inputs..], &mut y);
            assert_eq!(y, alone[(rows - count) * outputs..], "{count} rows");
        }
        let block = Block { x: &x, inputs, lines: &map.lines[..inputs], start: &map.bias[0] };
        let mut made = [Line([0.0; STRIP]); MOST_ROWS];
        let mut check = |make: &dyn Fn(&mut [Line; MOST_ROWS]) -> usize| {
            let count = make(&mut made);
            let expected = alone.chunks(outputs).map(|row| &row[..STRIP]);
            assert!(made[..count].iter().zip(expected).all(|(made, row)| made.0 == row), "{count} rows");
        };
        check(&|to| block.plain(to));
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            // SAFETY: the processor has AVX2 and FMA.
            unsafe {
                check(&|to| one_by_avx2(&block, to));
                check(&|to| two_by_avx2(&block, to));
                check(&|to| three_by_avx2(&block, to));
            }
        }
    }
}
