// Attention between the products of a chunk: scores to weights, and back. A block has the row of one query, head and lane, and nothing of
// the size of the scores is written but what products read. Shapes and numbers are those of rows.rs; `all` is heads * lanes.

struct Scores {
  const float *content;     // [all, rows, keys]
  const float *position;    // [all, rows, keys + rows - 1]
  const float *other;       // [all, rows], or null where segments do not count
  const float *of_queries;  // [lanes, rows]
  const float *of_keys;     // [lanes, keys]
  const float *mask;        // [lanes or 1, rows, keys], or null where all is seen
  const int *numbering;     // [rows, 4]
  float *statistics;        // [all, rows, 2]
  // Values from one head and lane, one lane, or one row of the mask to the next.
  long long other_step, of_queries_step, of_keys_step, mask_step, mask_row_step, statistics_step;
  int all, lanes, rows, keys;
};

// The row of a block.
struct Row {
  int n, lane, i;
  const float *content, *position, *of_keys, *mask;
  float segment, other;
  float *statistics;
  int visible;
  unsigned number;  // of its first weight

  DEVICE explicit Row(const Scores &scores) {
    const int rows = scores.rows, keys = scores.keys;
    n = blockIdx.x / rows;
    i = blockIdx.x % rows;
    lane = n % scores.lanes;
    const long long row = static_cast<long long>(n) * rows + i;
    content = scores.content + row * keys;
    // Query i meets key 0 in column rows - 1 - i.
    position = scores.position + row * (keys + rows - 1) + rows - 1 - i;
    of_keys = scores.other ? scores.of_keys + lane * scores.of_keys_step : nullptr;
    segment = scores.other ? scores.of_queries[lane * scores.of_queries_step + i] : 0.0f;
    other = scores.other ? scores.other[n * scores.other_step + i] : 0.0f;
    mask = scores.mask ? scores.mask + lane * scores.mask_step + i * scores.mask_row_step : nullptr;
    statistics = scores.statistics + n * scores.statistics_step + 2 * i;
    const int *numbering = scores.numbering + 4 * i;
    number = static_cast<unsigned>(scores.all) * numbering[0] + static_cast<unsigned>(n) * numbering[1] + numbering[2];
    visible = numbering[3] < keys ? numbering[3] : keys;
  }

  DEVICE bool differs(int j) const { return of_keys && of_keys[j] != segment; }

  DEVICE float score(int j) const {
    float score = content[j] + position[j];
    if (differs(j)) score += other;
    return mask ? score + mask[j] : score;
  }

  // Before dropout.
  DEVICE float weight(int j) const { return expf(score(j) - statistics[0]) * statistics[1]; }
};

template <class T>
DEVICE void weigh(const Scores &scores, T *weights, const Drops &drops) {
  const Row row(scores);
  weights += static_cast<long long>(blockIdx.x) * scores.keys;
  float top = __uint_as_float(0xff800000u);  // -infinity
  for (int j = threadIdx.x; j < row.visible; j += blockDim.x) top = fmaxf(top, row.score(j));
  top = over_block(top, Max());
  float sum = 0.0f;
  for (int j = threadIdx.x; j < row.visible; j += blockDim.x) sum += expf(row.score(j) - top);
  const float inverse = 1.0f / over_block(sum, Sum());
  if (threadIdx.x == 0) {
    row.statistics[0] = top;
    row.statistics[1] = inverse;
  }
  __syncthreads();  // all threads read them below
  for (int j = threadIdx.x; j < scores.keys; j += blockDim.x) {
    const float weight = j < row.visible ? row.weight(j) : 0.0f;
    store(weights + j, weight * factor(drops, row.number + j));
  }
}

template <class T>
DEVICE void weigh_back(const Scores &scores, const float *of_weights, T *weights, T *of_content, T *of_position,
                       float *of_other, const Drops &drops) {
  const Row row(scores);
  const int keys = scores.keys, columns = keys + scores.rows - 1, before = scores.rows - 1 - row.i;
  const long long first = static_cast<long long>(blockIdx.x) * keys;
  of_weights += first;
  weights += first;
  of_content += first;
  of_position += static_cast<long long>(blockIdx.x) * columns;
  float sum = 0.0f;
  for (int j = threadIdx.x; j < keys; j += blockDim.x) {
    const float weight = j < row.visible ? row.weight(j) : 0.0f, dropped = factor(drops, row.number + j);
    store(weights + j, weight * dropped);
    sum += weight * (of_weights[j] * dropped);
  }
  // The gradient of a softmax: w (g - sum of w g), with the weights as they were before dropout.
  const float mean = over_block(sum, Sum());
  float elsewhere = 0.0f;
  for (int j = threadIdx.x; j < keys; j += blockDim.x) {
    const float weight = j < row.visible ? row.weight(j) : 0.0f;
    const float of_score = weight * (of_weights[j] * factor(drops, row.number + j) - mean);
    if (row.differs(j)) elsewhere += of_score;
    store(of_content + j, of_score);
    store(of_position + before + j, of_score);
  }
  // Distances at which the query meets no key: products read them.
  for (int j = threadIdx.x; j < before; j += blockDim.x) store(of_position + j, 0.0f);
  for (int j = before + keys + threadIdx.x; j < columns; j += blockDim.x) store(of_position + j, 0.0f);
  if (!of_other) return;
  elsewhere = over_block(elsewhere, Sum());
  if (threadIdx.x == 0) of_other[blockIdx.x] = elsewhere;
}

#define OF_KIND(kind, T)                                                                                     \
  KERNEL attention_##kind(Scores scores, T *weights, Drops drops) { weigh(scores, weights, drops); }         \
  KERNEL attention_back_##kind(Scores scores, const float *of_weights, T *weights, T *of_content,            \
                               T *of_position, float *of_other, Drops drops) {                               \
    weigh_back(scores, of_weights, weights, of_content, of_position, of_other, drops);                       \
  }
OF_KIND(f32, float)
OF_KIND(bf16, bf16)
OF_KIND(f16, f16)
#undef OF_KIND
