// Cross-entropy of rows of scores: layers/cross_entropy/card.rs. Rows lie `stride` scores apart, a multiple of 8, of which those beyond `words`
// belong to nobody. `bias`, [stride], and `margins`, [rows], may be null.

// What the softmax is taken of: eight scores from number `first` on, with their biases, the target's without its margin; -infinity for those
// beyond the words.
template <class T>
DEVICE void scores_of(const Values<T, 8> &eight, const float *bias, int first, int words, long long target, float margin,
                      float *scores) {
  Values<float, 8> added = {};
  if (bias) added = values_at<8>(bias + first);
  for (int k = 0; k < 8; ++k) {
    const int i = first + k;
    const float score = load(eight.values[k]) + added.values[k] - (i == target ? margin : 0.0f);
    scores[k] = i < words ? score : __uint_as_float(0xff800000u);
  }
}

// -ln P of each row's target, no number where there is no such word, and ln of the sum of the exponentials of the row's scores. A block has a
// row, and reads it once (Milakov and Gimelshein 2018).
template <class T>
DEVICE void cross_entropy(const T *scores, const float *bias, const long long *targets, const float *margins,
                          float *nll, float *log_sums, int words, int stride) {
  const long long row = blockIdx.x, target = targets[row];
  const float margin = margins ? margins[row] : 0.0f, lowest = __uint_as_float(0xff800000u);
  const T *own = scores + row * stride;
  float top = lowest, sum = 0.0f;
  for (int first = 8 * threadIdx.x; first < words; first += 8 * blockDim.x) {
    float z[8], highest = lowest;
    scores_of(values_at<8>(own + first), bias, first, words, target, margin, z);
    for (int k = 0; k < 8; ++k) highest = fmaxf(highest, z[k]);
    if (highest > top) {
      sum *= expf(top - highest);
      top = highest;
    }
    for (int k = 0; k < 8; ++k) sum += expf(z[k] - top);
  }
  const float top_of_row = over_block(top, Max());
  // A thread without scores has a sum of 0.
  const float log_sum = logf(over_block(sum > 0.0f || sum != sum ? sum * expf(top - top_of_row) : 0.0f, Sum()));
  if (threadIdx.x != 0) return;
  log_sums[row] = top_of_row + log_sum;
  const bool known = target >= 0 && target < words;
  const float of_target = known ? load(own[target]) + (bias ? bias[target] : 0.0f) - margin : 0.0f;
  nll[row] = known ? top_of_row - of_target + log_sum : __uint_as_float(0x7fc00000u);
}

// Makes scores their own gradient, grad (P - 1 at the target), and 0 beyond the words. Each thread has eight columns of `part` rows, and leaves
// their sums, which are the gradient of the biases, in `sums`, [parts, stride], where that is not null.
template <class T>
DEVICE void cross_entropy_back(T *scores, const float *bias, const long long *targets, const float *margins,
                               const float *log_sums, const float *grad, float *sums, int rows, int words, int stride,
                               int part) {
  const int first = 8 * (blockIdx.x * blockDim.x + threadIdx.x);
  if (first >= stride) return;
  const int start = blockIdx.y * part, end = start + part < rows ? start + part : rows;
  Values<float, 8> totals = {};
  for (int row = start; row < end; ++row) {
    Values<T, 8> &own = values_at<8>(scores + static_cast<long long>(row) * stride + first), eight = own;
    const long long target = targets[row];
    float z[8];
    scores_of(eight, bias, first, words, target, margins ? margins[row] : 0.0f, z);
    for (int k = 0; k < 8; ++k) {
      const float p = expf(z[k] - log_sums[row]), of_score = grad[row] * (first + k == target ? p - 1.0f : p);
      // Not 0 times a gradient, which may be no number.
      const float found = first + k < words ? of_score : 0.0f;
      totals.values[k] += found;
      store(eight.values + k, found);
    }
    own = eight;
  }
  if (sums) values_at<8>(sums + static_cast<long long>(blockIdx.y) * stride + first) = totals;
}

#define OF_KIND(kind, T)                                                                                             \
  KERNEL cross_entropy_##kind(const T *scores, const float *bias, const long long *targets, const float *margins,    \
                              float *nll, float *log_sums, int words, int stride) {                                  \
    cross_entropy(scores, bias, targets, margins, nll, log_sums, words, stride);                                     \
  }                                                                                                                  \
  KERNEL cross_entropy_back_##kind(T *scores, const float *bias, const long long *targets, const float *margins,     \
                                   const float *log_sums, const float *grad, float *sums, int rows, int words,       \
                                   int stride, int part) {                                                           \
    cross_entropy_back(scores, bias, targets, margins, log_sums, grad, sums, rows, words, stride, part);             \
  }
OF_KIND(f32, float)
OF_KIND(bf16, bf16)
OF_KIND(f16, f16)
#undef OF_KIND
