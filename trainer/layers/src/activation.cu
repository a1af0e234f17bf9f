// Activations with the dropout that follows: layers/activation.rs has the formulas and where they come from.

struct Value {
  float value, slope;
};

DEVICE Value relu(float x) {
  // Not a maximum: what is no number stays none.
  return {x <= 0.0f ? 0.0f : x, x <= 0.0f ? 0.0f : 1.0f};
}

DEVICE Value gelu(float x) {
  const float root_of_half = 0.70710678f, inverse_root_of_2_pi = 0.39894228f;
  const float phi = 0.5f * erfcf(-x * root_of_half), bell = expf(-0.5f * x * x);
  return {x * phi, x * bell * inverse_root_of_2_pi + phi};
}

DEVICE Value gelu_new(float x) {
  const float twice_root_of_2_over_pi = 1.5957691f, cubic = 0.044715f;
  const float end = 10.0f;  // beyond it the sigmoid is 0 or 1
  const float near = fminf(fmaxf(x, -end), end), square = near * near;
  const float sigmoid = 1.0f / (1.0f + expf(-twice_root_of_2_over_pi * near * (square * cubic + 1.0f)));
  const float slope = twice_root_of_2_over_pi * (square * (3.0f * cubic) + 1.0f);
  return {x * sigmoid, x * sigmoid * (1.0f - sigmoid) * slope + sigmoid};
}

DEVICE Value swish(float x) {
  const float sigmoid = 1.0f / (1.0f + expf(-x));
  return {x * sigmoid, x * sigmoid * (1.0f - sigmoid) + sigmoid};
}

DEVICE Value activated(float x, int activation) {
  return activation == 0 ? relu(x) : activation == 1 ? gelu(x) : activation == 2 ? gelu_new(x) : swish(x);
}

// A thread has N columns of `part` rows of `width` values, which a bias is added to first where it is not null.
template <class T, int N>
DEVICE void activate_columns(const T *__restrict__ x, const float *__restrict__ bias, T *__restrict__ y, int rows,
                             int width, int part, int activation, const DropsOfRows &drops) {
  const int first = N * (blockIdx.x * blockDim.x + threadIdx.x);
  if (first >= width) return;
  const int start = blockIdx.y * part, end = start + part < rows ? start + part : rows;
  Values<float, N> added = {};
  if (bias) added = values_at<N>(bias + first);
  for (int row = start; row < end; ++row) {
    const long long i = static_cast<long long>(row) * width + first;
    const Drops &own = drops.of(row);
    const unsigned number = drops.number(row, width) + first;
    Values<T, N> values = values_at<N>(x + i);
    for (int k = 0; k < N; ++k) {
      const float value = activated(load(values.values[k]) + added.values[k], activation).value;
      store(values.values + k, factor(own, number + k) * value);
    }
    values_at<N>(y + i) = values;
  }
}

// The slope is made again of x, and the mask of its number. Sums of columns, the gradient of the bias, are left in `sums`, [parts, width], where
// that is not null.
template <class T, int N>
DEVICE void activate_columns_back(const T *__restrict__ x, const float *__restrict__ bias, const T *__restrict__ grad,
                                  T *__restrict__ of_x, float *__restrict__ sums, int rows, int width, int part,
                                  int activation, const DropsOfRows &drops) {
  const int first = N * (blockIdx.x * blockDim.x + threadIdx.x);
  if (first >= width) return;
  const int start = blockIdx.y * part, end = start + part < rows ? start + part : rows;
  Values<float, N> added = {}, totals = {};
  if (bias) added = values_at<N>(bias + first);
  for (int row = start; row < end; ++row) {
    const long long i = static_cast<long long>(row) * width + first;
    const Drops &own = drops.of(row);
    const unsigned number = drops.number(row, width) + first;
    const Values<T, N> values = values_at<N>(x + i), grads = values_at<N>(grad + i);
    Values<T, N> found;
    for (int k = 0; k < N; ++k) {
      const float slope = activated(load(values.values[k]) + added.values[k], activation).slope;
      const float of_value = load(grads.values[k]) * (factor(own, number + k) * slope);
      totals.values[k] += of_value;
      store(found.values + k, of_value);
    }
    values_at<N>(of_x + i) = found;
  }
  if (sums) values_at<N>(sums + static_cast<long long>(blockIdx.y) * width + first) = totals;
}

// Of as many columns as a thread has: 8, or 1 where there is no such number of them.
#define OF_KIND(kind, T)                                                                                           \
  KERNEL activation_##kind(const T *x, const float *bias, T *y, int rows, int width, int part, int columns,        \
                           int activation, DropsOfRows drops) {                                                          \
    if (columns == 8) activate_columns<T, 8>(x, bias, y, rows, width, part, activation, drops);                    \
    if (columns == 1) activate_columns<T, 1>(x, bias, y, rows, width, part, activation, drops);                    \
  }                                                                                                                \
  KERNEL activation_back_##kind(const T *x, const float *bias, const T *grad, T *of_x, float *sums, int rows,      \
                                int width, int part, int columns, int activation, DropsOfRows drops) {                   \
    if (columns == 8) activate_columns_back<T, 8>(x, bias, grad, of_x, sums, rows, width, part, activation, drops); \
    if (columns == 1) activate_columns_back<T, 1>(x, bias, grad, of_x, sums, rows, width, part, activation, drops); \
  }
OF_KIND(f32, float)
OF_KIND(bf16, bf16)
OF_KIND(f16, f16)
#undef OF_KIND
