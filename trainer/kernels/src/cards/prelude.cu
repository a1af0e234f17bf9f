// What all kernels have in common: short kinds of numbers, sums over a block, and dropout's hash. It comes before each source, for a card
// and for a host's compiler, which is given the names of CUDA by shim/emulated.cpp.

#ifdef SEGUE_EMULATED
#define DEVICE inline
#define KERNEL static void
#else
#define DEVICE __device__ __forceinline__
#define KERNEL extern "C" __global__ void
#endif

// Numbers of 16 bits, as libtorch lays them out.
struct bf16 {
  unsigned short bits;
};
struct f16 {
  unsigned short bits;
};

DEVICE float load(float x) { return x; }

DEVICE float load(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

DEVICE void store(float *to, float x) { *to = x; }

// To the nearest, of two the even one.
DEVICE void store(bf16 *to, float x) {
  const unsigned bits = __float_as_uint(x);
  const bool is_number = (bits & 0x7fffffffu) <= 0x7f800000u;
  to->bits = is_number ? (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16 : 0x7fc0u;
}

#ifdef SEGUE_EMULATED

DEVICE float load(f16 x) {
  const unsigned sign = (x.bits & 0x8000u) << 16, exponent = (x.bits >> 10) & 31u, mantissa = x.bits & 0x3ffu;
  // Below 2^-14 numbers are multiples of 2^-24.
  if (exponent == 0) return __uint_as_float(sign | __float_as_uint(mantissa * 0x1p-24f));
  return __uint_as_float(sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | mantissa << 13);
}

DEVICE void store(f16 *to, float x) {
  const unsigned bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu;
  unsigned half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;
  } else if (magnitude >= 0x477ff000u) {  // 65520, which is rounded to what is too large
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // 2^-14
    half = static_cast<unsigned>(rintf(__uint_as_float(magnitude) * 0x1p24f));
  } else {
    half = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  to->bits = static_cast<unsigned short>((bits >> 16 & 0x8000u) | half);
}

#else

DEVICE float load(f16 x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
}

DEVICE void store(f16 *to, float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to->bits) : "f"(x)); }

#endif

// Neighbours that are read and written at once, up to 16 bytes in one go. The first lies at a multiple of as many.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Values {
  T values[N];
};

template <int N, class T>
DEVICE const Values<T, N> &values_at(const T *first) {
  return *reinterpret_cast<const Values<T, N> *>(first);
}

template <int N, class T>
DEVICE Values<T, N> &values_at(T *first) {
  return *reinterpret_cast<Values<T, N> *>(first);
}

struct Sum {
  DEVICE float operator()(float a, float b) const { return a + b; }
};
struct Max {
  DEVICE float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Of the values of all threads of a block, in one order, the same in each. A block has a multiple of 32 threads, up to 1024, and all call it.
template <class Operation>
DEVICE float over_block(float x, Operation operation) {
  __shared__ float of_warps[32];
  for (int distance = 16; distance > 0; distance /= 2) {
    x = operation(x, __shfl_xor_sync(0xffffffffu, x, distance));
  }
  __syncthreads();  // what came before has been read
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
  __syncthreads();
  x = of_warps[0];
  for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) x = operation(x, of_warps[warp]);
  return x;
}

// What one place of a pass drops: noise/drops.rs.
struct Drops {
  unsigned keys[2];
  unsigned first;
  unsigned threshold;
  float kept;
};

DEVICE unsigned mixed(unsigned x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

// Whether value i is kept.
DEVICE bool keeps_value(const Drops &drops, unsigned i) {
  return mixed(mixed((drops.first + i) ^ drops.keys[0]) ^ drops.keys[1]) >= drops.threshold;
}

// What value i is multiplied by.
DEVICE float factor(const Drops &drops, unsigned i) { return keeps_value(drops, i) ? drops.kept : 0.0f; }

// What is dropped of rows, of which those from number `rows` on are of another place, and numbered anew.
struct DropsOfRows {
  Drops first, second;
  int rows;

  DEVICE const Drops &of(int row) const { return row < rows ? first : second; }

  // The number of a row's first value.
  DEVICE unsigned number(int row, int width) const {
    return static_cast<unsigned>(row < rows ? row : row - rows) * static_cast<unsigned>(width);
  }
};

// The first value of this thread, and how far it is to the next one, where all threads of a grid share `count` values.
DEVICE long long first_value() { return static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; }

DEVICE long long next_value() { return static_cast<long long>(gridDim.x) * blockDim.x; }

// Values of a tensor that one block takes, where the blocks of a grid share many tensors: cards/table.rs.
enum : long long { CHUNK = 1 << 14 };

// Whose chunk this block has: the last of `count` rows whose first chunk is not behind it.
template <class Row>
DEVICE const Row &row_of_block(const Row *rows, int count) {
  int low = 0;
  for (int high = count; high - low > 1;) {
    const int middle = (low + high) / 2;
    (rows[middle].first <= static_cast<long long>(blockIdx.x) ? low : high) = middle;
  }
  return rows[low];
}

// Number of a row's chunks.
template <class Row>
DEVICE long long chunks_of(const Row &row) {
  return (row.count + CHUNK - 1) / CHUNK;
}
