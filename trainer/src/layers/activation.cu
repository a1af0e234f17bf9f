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

DEVICE Value activated(float x, int activation) {
  return activation == 0 ? relu(x) : activation == 1 ? gelu(x) : gelu_new(x);
}

template <class T>
DEVICE void activate(const T *x, T *y, long long count, int activation, const Drops &drops) {
  for (long long i = first_value(); i < count; i += next_value()) {
    store(y + i, factor(drops, static_cast<unsigned>(i)) * activated(load(x[i]), activation).value);
  }
}

// The slope is made again of x, and the mask of its number.
template <class T>
DEVICE void activate_back(const T *x, const T *grad, T *of_x, long long count, int activation, const Drops &drops) {
  for (long long i = first_value(); i < count; i += next_value()) {
    const float slope = factor(drops, static_cast<unsigned>(i)) * activated(load(x[i]), activation).slope;
    store(of_x + i, load(grad[i]) * slope);
  }
}

#define OF_KIND(kind, T)                                                                                     \
  KERNEL activation_##kind(const T *x, T *y, long long count, int activation, Drops drops) {                 \
    activate(x, y, count, activation, drops);                                                                \
  }                                                                                                          \
  KERNEL activation_back_##kind(const T *x, const T *grad, T *of_x, long long count, int activation,         \
                                Drops drops) {                                                               \
    activate_back(x, grad, of_x, count, activation, drops);                                                  \
  }
OF_KIND(f32, float)
OF_KIND(bf16, bf16)
OF_KIND(f16, f16)
#undef OF_KIND
