// One update of a parameter by LAMB, in two passes over its values: optim/lamb.rs has the equations and where they come from.

// Constants of the first pass.
struct LambStep {
  float divisor, beta1, beta2;
  float new1, new2;            // 1 - beta
  float correction1, correction2;  // what corrects the moments' bias towards zero, as factors
  float eps, decay;
};

// Updates the moments m and v by the gradient g, puts the step in the gradient's place, and gives the squares of weights and steps, added up
// over each block: [blocks, 2].
KERNEL lamb_make(const float *w, float *g, float *m, float *v, float *squares, long long count, LambStep step) {
  float of_weights = 0.0f, of_steps = 0.0f;
  for (long long i = first_value(); i < count; i += next_value()) {
    const float weight = w[i], gradient = g[i] / step.divisor;
    const float mean = step.beta1 * m[i] + step.new1 * gradient;
    const float square = step.beta2 * v[i] + step.new2 * gradient * gradient;
    const float root = sqrtf(square * step.correction2) + step.eps;
    const float made = step.decay * weight + mean * step.correction1 / root;
    m[i] = mean;
    v[i] = square;
    g[i] = made;
    of_weights += weight * weight;
    of_steps += made * made;
  }
  of_weights = over_block(of_weights, Sum());
  of_steps = over_block(of_steps, Sum());
  if (threadIdx.x == 0) {
    squares[2 * blockIdx.x] = of_weights;
    squares[2 * blockIdx.x + 1] = of_steps;
  }
}

// Takes the steps, as long as the weights are where they are adapted. Each block adds up the squares of all again, in the same order.
KERNEL lamb_take(float *w, const float *steps, const float *squares, int blocks, long long count, float rate,
                 float limit, float eps, int adapted) {
  float of_weights = 0.0f, of_steps = 0.0f;
  for (int i = threadIdx.x; i < blocks; i += blockDim.x) {
    of_weights += squares[2 * i];
    of_steps += squares[2 * i + 1];
  }
  const float weight = sqrtf(over_block(of_weights, Sum())), length = sqrtf(over_block(of_steps, Sum()));
  if (adapted && weight > 0.0f && length > 0.0f) rate *= fminf(weight, limit) / (length + eps);
  for (long long i = first_value(); i < count; i += next_value()) w[i] -= rate * steps[i];
}
