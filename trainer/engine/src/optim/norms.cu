// Norms of chunks of many gradients: optim/clip.rs. The order of a norm's sums depends on the number of its values alone.

// One gradient: optim/clip/card.rs.
struct GradientRow {
  long long first, count;  // its first chunk, its values
  const float *values;
};

// The norm of each chunk, a block each.
KERNEL gradient_norms(const GradientRow *rows, int count, float *norms) {
  const GradientRow row = row_of_block(rows, count);
  const long long begin = (blockIdx.x - row.first) * CHUNK;
  const int values = static_cast<int>(row.count - begin < CHUNK ? row.count - begin : CHUNK);
  const float *const x = row.values + begin;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < values; i += blockDim.x) sum += x[i] * x[i];
  sum = over_block(sum, Sum());
  if (threadIdx.x == 0) norms[blockIdx.x] = sqrtf(sum);
}
