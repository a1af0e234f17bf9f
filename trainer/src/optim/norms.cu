// Norms of many gradients: optim/clip.rs. The order of a norm's sums depends on the number of its values alone.

// One gradient: optim/clip/card.rs.
struct GradientRow {
  long long first, count;  // its first chunk, its values
  const float *values;
};

// Squares of values, added up over each chunk.
KERNEL gradient_squares(const GradientRow *rows, int count, float *squares) {
  const GradientRow row = row_of_block(rows, count);
  const long long begin = (blockIdx.x - row.first) * CHUNK;
  const int values = static_cast<int>(row.count - begin < CHUNK ? row.count - begin : CHUNK);
  const float *const x = row.values + begin;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < values; i += blockDim.x) sum += x[i] * x[i];
  sum = over_block(sum, Sum());
  if (threadIdx.x == 0) squares[blockIdx.x] = sum;
}

// The norm of each gradient, a block each.
KERNEL gradient_norms(const GradientRow *rows, const float *squares, float *norms) {
  const GradientRow &row = rows[blockIdx.x];
  const long long chunks = chunks_of(row);
  float sum = 0.0f;
  for (long long i = threadIdx.x; i < chunks; i += blockDim.x) sum += squares[row.first + i];
  sum = over_block(sum, Sum());
  if (threadIdx.x == 0) norms[blockIdx.x] = sqrtf(sum);
}
