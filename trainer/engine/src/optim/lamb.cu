// One update of all parameters by LAMB, in two passes over their values: optim/lamb.rs has the equations and where they come from.

// One parameter: optim/lamb/card.rs.
struct LambRow {
  long long first, count;  // its first chunk, its values
  float *w, *g, *m, *v;
  float divisor, beta1, beta2;
  float new1, new2;                // 1 - beta
  float correction1, correction2;  // what corrects the moments' bias towards zero, as factors
  float eps, decay;
  float rate, limit;
  float adapted;  // 1 where steps are as long as the weights, else 0
};

// Values that lie side by side, which a card reads at once where their place is a multiple of their size.
struct alignas(16) Four {
  float at[4];
};

DEVICE Four load_four(const float *from, bool aligned) {
  if (aligned) return *reinterpret_cast<const Four *>(from);
  return {{from[0], from[1], from[2], from[3]}};
}

DEVICE void store_four(float *to, const Four &x, bool aligned) {
  if (aligned) {
    *reinterpret_cast<Four *>(to) = x;
  } else {
    for (int i = 0; i < 4; ++i) to[i] = x.at[i];
  }
}

DEVICE bool is_aligned(const float *pointer) { return reinterpret_cast<unsigned long long>(pointer) % sizeof(Four) == 0; }

// Updates one value: the moments, and the step in the gradient's place.
DEVICE void make_value(const LambRow &row, float weight, float &g, float &m, float &v, float &of_weights, float &of_steps) {
  const float gradient = g / row.divisor;
  m = row.beta1 * m + row.new1 * gradient;
  v = row.beta2 * v + row.new2 * gradient * gradient;
  g = row.decay * weight + m * row.correction1 / (sqrtf(v * row.correction2) + row.eps);
  of_weights += weight * weight;
  of_steps += g * g;
}

// Updates the moments m and v by the gradient g, puts the step in the gradient's place, and gives the squares of weights and steps, added up
// over each chunk: [chunks, 2].
KERNEL lamb_make(const LambRow *rows, int count, float *squares) {
  const LambRow row = row_of_block(rows, count);
  const long long begin = (blockIdx.x - row.first) * CHUNK;
  const int values = static_cast<int>(row.count - begin < CHUNK ? row.count - begin : CHUNK);
  float *const w = row.w + begin, *const g = row.g + begin, *const m = row.m + begin, *const v = row.v + begin;
  const bool aligned = is_aligned(w) && is_aligned(g) && is_aligned(m) && is_aligned(v);
  float of_weights = 0.0f, of_steps = 0.0f;
  for (int i = 4 * threadIdx.x; i + 4 <= values; i += 4 * blockDim.x) {
    const Four weights = load_four(w + i, aligned);
    Four gs = load_four(g + i, aligned), ms = load_four(m + i, aligned), vs = load_four(v + i, aligned);
    for (int k = 0; k < 4; ++k) make_value(row, weights.at[k], gs.at[k], ms.at[k], vs.at[k], of_weights, of_steps);
    store_four(g + i, gs, aligned);
    store_four(m + i, ms, aligned);
    store_four(v + i, vs, aligned);
  }
  const int rest = values / 4 * 4 + threadIdx.x;
  if (rest < values) make_value(row, w[rest], g[rest], m[rest], v[rest], of_weights, of_steps);
  of_weights = over_block(of_weights, Sum());
  of_steps = over_block(of_steps, Sum());
  if (threadIdx.x == 0) {
    squares[2 * blockIdx.x] = of_weights;
    squares[2 * blockIdx.x + 1] = of_steps;
  }
}

// What the steps of each parameter, a block each, are multiplied by: as long as the weights are where they are adapted.
KERNEL lamb_rates(const LambRow *rows, const float *squares, float *rates) {
  const LambRow row = rows[blockIdx.x];
  const long long chunks = chunks_of(row);
  float of_weights = 0.0f, of_steps = 0.0f;
  for (long long i = threadIdx.x; i < chunks; i += blockDim.x) {
    of_weights += squares[2 * (row.first + i)];
    of_steps += squares[2 * (row.first + i) + 1];
  }
  const float weight = sqrtf(over_block(of_weights, Sum())), length = sqrtf(over_block(of_steps, Sum()));
  const bool adapts = row.adapted != 0.0f && weight > 0.0f && length > 0.0f;
  if (threadIdx.x == 0) rates[blockIdx.x] = adapts ? row.rate * (fminf(weight, row.limit) / (length + row.eps)) : row.rate;
}

// Takes the steps.
KERNEL lamb_take(const LambRow *rows, int count, const float *rates) {
  const LambRow &row = row_of_block(rows, count);
  const float rate = rates[&row - rows];
  const long long begin = (blockIdx.x - row.first) * CHUNK;
  const int values = static_cast<int>(row.count - begin < CHUNK ? row.count - begin : CHUNK);
  float *const w = row.w + begin;
  const float *const steps = row.g + begin;
  const bool aligned = is_aligned(w) && is_aligned(steps);
  for (int i = 4 * threadIdx.x; i + 4 <= values; i += 4 * blockDim.x) {
    Four weights = load_four(w + i, aligned);
    const Four taken = load_four(steps + i, aligned);
    for (int k = 0; k < 4; ++k) weights.at[k] -= rate * taken.at[k];
    store_four(w + i, weights, aligned);
  }
  const int rest = values / 4 * 4 + threadIdx.x;
  if (rest < values) w[rest] -= rate * steps[rest];
}
