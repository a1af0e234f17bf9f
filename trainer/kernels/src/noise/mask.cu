// Masks of dropout.

// What `count` values are multiplied by.
KERNEL dropout_factors(float *to, long long count, Drops drops) {
  for (long long i = first_value(); i < count; i += next_value()) to[i] = factor(drops, static_cast<unsigned>(i));
}
