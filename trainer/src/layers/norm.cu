// The norm of a residual and a dropped sum: layers/norm.rs. A block has a row.

// y, what it was before it was scaled and moved, and what the row was multiplied by for that.
template <class T>
DEVICE void norm(const T *x, const float *residual, const float *weight, const float *bias, float *y, float *normed,
                 float *scales, int width, float epsilon, const Drops &drops) {
  const long long row = blockIdx.x, first = row * width;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float z = factor(drops, static_cast<unsigned>(first + i)) * load(x[first + i]) + residual[first + i];
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
    const float z = (normed[first + i] - mean) * scale;
    normed[first + i] = z;
    y[first + i] = z * weight[i] + bias[i];
  }
  if (threadIdx.x == 0) scales[row] = scale;
}

// Gradients of x and the residual.
template <class T>
DEVICE void norm_back(const float *grad, const float *normed, const float *scales, const float *weight, T *of_x,
                      float *of_residual, int width, const Drops &drops) {
  const long long row = blockIdx.x, first = row * width;
  float sum = 0.0f, slants = 0.0f;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float of_z = grad[first + i] * weight[i];
    sum += of_z;
    slants += of_z * normed[first + i];
  }
  const float mean = over_block(sum, Sum()) / width, slant = over_block(slants, Sum()) / width;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float of_z = scales[row] * (grad[first + i] * weight[i] - mean - normed[first + i] * slant);
    of_residual[first + i] = of_z;
    store(of_x + first + i, factor(drops, static_cast<unsigned>(first + i)) * of_z);
  }
}

// Gradients of weight and bias from `part` rows a block of the second axis: [parts, 2, width], which are added up by who asks.
KERNEL norm_sums(const float *grad, const float *normed, float *sums, int rows, int width, int part) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= width) return;
  const int first = blockIdx.y * part, end = first + part < rows ? first + part : rows;
  float of_weight = 0.0f, of_bias = 0.0f;
  for (int row = first; row < end; ++row) {
    const long long i = static_cast<long long>(row) * width + column;
    of_weight += grad[i] * normed[i];
    of_bias += grad[i];
  }
  float *to = sums + static_cast<long long>(blockIdx.y) * 2 * width + column;
  to[0] = of_weight;
  to[width] = of_bias;
}

#define OF_KIND(kind, T)                                                                                       \
  KERNEL norm_##kind(const T *x, const float *residual, const float *weight, const float *bias, float *y,      \
                     float *normed, float *scales, int width, float epsilon, Drops drops) {                    \
    norm(x, residual, weight, bias, y, normed, scales, width, epsilon, drops);                                 \
  }                                                                                                            \
  KERNEL norm_back_##kind(const float *grad, const float *normed, const float *scales, const float *weight,    \
                          T *of_x, float *of_residual, int width, Drops drops) {                               \
    norm_back(grad, normed, scales, weight, of_x, of_residual, width, drops);                                  \
  }
OF_KIND(f32, float)
OF_KIND(bf16, bf16)
OF_KIND(f16, f16)
#undef OF_KIND
