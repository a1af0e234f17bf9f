// The norm of a residual and a dropped sum: layers/norm.rs. A block has a row.

// y, the same in the kind of x where `rounded` is not null, what it was before it was scaled and moved, and what the row was multiplied by for
// that. `added` is the bias of x, or null.
template <class T>
DEVICE void norm(const T *x, const float *added, const float *residual, const float *weight, const float *bias, float *y,
                 T *rounded, float *normed, float *scales, int width, float epsilon, const DropsOfRows &drops) {
  const long long row = blockIdx.x, first = row * width;
  const Drops &own = drops.of(row);
  const unsigned number = drops.number(row, width);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float mapped = load(x[first + i]) + (added ? added[i] : 0.0f);
    const float z = factor(own, number + i) * mapped + residual[first + i];
    normed[first + i] = z;
    sum += z;
  }
  const float mean = over_block(sum, Sum()) / width;
  float squares = 0.0f;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float away = normed[first + i] - mean;
    squares += away * away;
  }
  const float scale = 1.0f / sqrtf(over_block(squares, Sum()) / width + epsilon);
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float z = (normed[first + i] - mean) * scale, found = z * weight[i] + bias[i];
    normed[first + i] = z;
    y[first + i] = found;
    if (rounded) store(rounded + first + i, found);
  }
  if (threadIdx.x == 0) scales[row] = scale;
}

// What comes back to y and to what is rounded of it, of which one may be null.
template <class T>
DEVICE float both(const float *grad, const T *of_rounded, long long i) {
  return (grad ? grad[i] : 0.0f) + (of_rounded ? load(of_rounded[i]) : 0.0f);
}

// Gradients of x and the residual.
template <class T>
DEVICE void norm_back(const float *grad, const T *of_rounded, const float *normed, const float *scales,
                      const float *weight, T *of_x, float *of_residual, int width, const DropsOfRows &drops) {
  const long long row = blockIdx.x, first = row * width;
  const Drops &own = drops.of(row);
  const unsigned number = drops.number(row, width);
  float sum = 0.0f, slants = 0.0f;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float of_z = both(grad, of_rounded, first + i) * weight[i];
    sum += of_z;
    slants += of_z * normed[first + i];
  }
  const float mean = over_block(sum, Sum()) / width, slant = over_block(slants, Sum()) / width;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float of_y = both(grad, of_rounded, first + i) * weight[i];
    const float of_z = scales[row] * (of_y - mean - normed[first + i] * slant);
    of_residual[first + i] = of_z;
    store(of_x + first + i, factor(own, number + i) * of_z);
  }
}

// Gradients of weight and bias, and of the bias of x, which gets what x gets, from `part` rows a block of the second axis: [parts, 3, width], or
// [parts, 2, width] where `of_x` is null. They are added up by who asks.
template <class T>
DEVICE void norm_sums(const float *grad, const T *of_rounded, const float *normed, const T *of_x, float *sums, int rows,
                      int width, int part) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= width) return;
  const int first = blockIdx.y * part, end = first + part < rows ? first + part : rows;
  float of_weight = 0.0f, of_bias = 0.0f, of_added = 0.0f;
  for (int row = first; row < end; ++row) {
    const long long i = static_cast<long long>(row) * width + column;
    const float of_y = both(grad, of_rounded, i);
    of_weight += of_y * normed[i];
    of_bias += of_y;
    if (of_x) of_added += load(of_x[i]);
  }
  float *to = sums + static_cast<long long>(blockIdx.y) * (of_x ? 3 : 2) * width + column;
  to[0] = of_weight;
  to[width] = of_bias;
  if (of_x) to[2 * width] = of_added;
}

#define OF_KIND(kind, T)                                                                                            \
  KERNEL norm_##kind(const T *x, const float *added, const float *residual, const float *weight, const float *bias, \
                     float *y, T *rounded, float *normed, float *scales, int width, float epsilon, DropsOfRows drops) {   \
    norm(x, added, residual, weight, bias, y, rounded, normed, scales, width, epsilon, drops);                      \
  }                                                                                                                 \
  KERNEL norm_back_##kind(const float *grad, const T *of_rounded, const float *normed, const float *scales,         \
                          const float *weight, T *of_x, float *of_residual, int width, DropsOfRows drops) {               \
    norm_back(grad, of_rounded, normed, scales, weight, of_x, of_residual, width, drops);                           \
  }                                                                                                                 \
  KERNEL norm_sums_##kind(const float *grad, const T *of_rounded, const float *normed, const T *of_x, float *sums,  \
                          int rows, int width, int part) {                                                          \
    norm_sums(grad, of_rounded, normed, of_x, sums, rows, width, part);                                             \
  }
OF_KIND(f32, float)
OF_KIND(bf16, bf16)
OF_KIND(f16, f16)
#undef OF_KIND
