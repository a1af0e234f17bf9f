// Attention with relative positions in one pass over the keys (Dao et al. 2022), in 16 bits with sums in 32: a block has ROWS queries of one
// head and lane, a warp 16 of them, and takes the keys KEYS at a time. Scores by distance are a product of their own, of 16 queries and the
// SPAN distances between them and a tile's keys, whose rows are shifted into place through shared memory. Shapes and numbers are those of
// card.rs; `all` is heads * lanes, heads first.

constexpr int KEYS = 64;
constexpr int SPAN = KEYS + 16;     // one more than distances, so that it is a multiple of 16
constexpr int SCORES_STEP = 84;     // floats of a row of scores by distance: few banks are asked for twice
constexpr int GRADIENTS_STEP = 88;  // numbers of 16 bits of a row of their gradients: rows begin in different banks
constexpr float LOG2_E = 1.4426950408889634f;

struct Attention {
  const void *q;         // [lanes, query, heads, width], rows of these and of all below at multiples of 16 bytes
  const void *k, *v;     // [lanes, key, heads, width]
  const void *r;         // [distance, heads, width]
  const void *position;  // scores by distance where queries stand anywhere, [all, query, position_step], or null
  const int *places;     // where they stand, [lanes, query], or null
  const float *u, *w;    // added to queries for contents and for distances, [heads, width]
  const float *b, *s;    // and for segments, or null
  const float *of_queries, *of_keys;  // segments: [lanes, query] and [lanes, key]
  const unsigned *seen;               // a bit a key, [lanes or 1, query, seen_row_step], or null where all are seen
  const int *numbering;               // [query, 4], as in chunks.rs
  float *statistics;                  // [all, query]: log2 of the sum of exponentials
  unsigned *kept;                     // what dropout keeps, [all, blocks, tiles of keys, threads], or null: a bit a weight of a thread
  // Values from one lane to the next, and from one row to the next.
  long long q_lane_step, q_row_step, k_lane_step, k_row_step, v_lane_step, v_row_step, r_row_step;
  long long of_queries_step, of_keys_step, seen_lane_step, seen_row_step, position_step;
  int heads, lanes, queries, keys, distances, width, segment;
  int first_head;  // of those that this grid is for
  float scale;
};

// What lies by head is of those heads alone that the grid is for: `all` is their number times that of lanes.
struct Gradients {
  const void *read, *of_read;     // what the queries have read and its gradient, [lanes, query, heads * width]
  void *contents, *positions;     // (q + u) * scale and (q + w) * scale, [all, query, width]
  void *of_read_by_head;          // [all, query, width]
  void *weights, *of_contents;    // after dropout, and of scores by content, [all, query, keys_step]
  void *of_positions;             // of scores by distance, [all, query, position_step]
  void *of_q;                     // [lanes, query, heads, width]
  float *of_vectors;              // of u, of w, and of s but for b - u, by blocks of queries, [all, blocks, 3, width]
  float *of_other;                // [all, query], or null
  long long keys_step;
};

#ifdef SEGUE_EMULATED
#define UNROLL
#define SHARED(Type, name) Type &name = memory_of_block<Type>()
#else
#define UNROLL _Pragma("unroll")
// Tiles begin where the pattern of their rows' order does: card.rs asks for that much more.
// As an offset, so that the compiler sees that it is shared memory.
#define SHARED(Type, name)                                                           \
  extern __shared__ uint4 of_block[];                                                \
  const unsigned place_of_block = static_cast<unsigned>(__cvta_generic_to_shared(of_block)); \
  Type &name = *reinterpret_cast<Type *>(of_block + (ALIGNMENT - place_of_block % ALIGNMENT) % ALIGNMENT / sizeof(uint4))
#endif

constexpr int ALIGNMENT = 1024;

// Products of 64 queries at once, whose right sides no thread has to load: Hopper's, for a card of just that capability.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool BY_GROUPS = true;
#else
constexpr bool BY_GROUPS = false;
#endif

// ---- products

template <class T>
DEVICE unsigned packed(float low, float high);

#ifdef SEGUE_EMULATED

template <class T>
DEVICE unsigned packed(float low, float high) {
  T pair[2];
  store(pair, low);
  store(pair + 1, high);
  return pair[0].bits | static_cast<unsigned>(pair[1].bits) << 16;
}

template <class T>
DEVICE unsigned two_of(const T *low, const T *high) {
  return low->bits | static_cast<unsigned>(high->bits) << 16;
}

#else

template <>
DEVICE unsigned packed<bf16>(float low, float high) {
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

template <>
DEVICE unsigned packed<f16>(float low, float high) {
  unsigned both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

DEVICE unsigned shared_address(const void *at) { return static_cast<unsigned>(__cvta_generic_to_shared(at)); }

#endif

// sums [16, 8] += a [16, 16] * b [8, 16] transposed; a thread has of each what PTX's m16n8k16 says.
template <class T>
DEVICE void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);

#ifdef SEGUE_EMULATED

template <class T>
DEVICE void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const unsigned own[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const unsigned(*of_warp)[6] = warp_shares(own);
  const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  const auto half = [](unsigned bits, int which) {
    T number;
    number.bits = static_cast<unsigned short>(bits >> 16 * which);
    return load(number);
  };
  UNROLL
  for (int i = 0; i < 4; ++i) {
    const int m = row + i / 2 * 8, n = column + i % 2;
    for (int k = 0; k < 16; ++k) {
      const float left = half(of_warp[m % 8 * 4 + k % 8 / 2][m / 8 + k / 8 * 2], k % 2);
      sums[i] += left * half(of_warp[n * 4 + k % 8 / 2][4 + k / 8], k % 2);
    }
  }
  warp_shared();
}

#else

template <>
DEVICE void multiply<bf16>(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
DEVICE void multiply<f16>(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif

// Rows of WIDTH numbers in shared memory. Eight numbers, 16 bytes, lie together; where, goes by the row, so that the same numbers of eight rows
// lie in different banks.
template <int WIDTH>
DEVICE int place(int row, int column) {
  return row * WIDTH + ((column / 8) ^ (row % 8)) * 8 + column % 8;
}

// [16, 16] of a matrix from `row` and `column` on, as the left side of a product. `at` says where a number lies.
template <class T, class At>
DEVICE void load_left(unsigned (&a)[4], const T *matrix, At at, int row, int column) {
#ifdef SEGUE_EMULATED
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2;
  UNROLL
  for (int i = 0; i < 4; ++i) {
    const T *low = matrix + at(row + g + i % 2 * 8, column + t + i / 2 * 8);
    a[i] = two_of(low, low + 1);
  }
#else
  const int thread = threadIdx.x % 32;
  const unsigned address = shared_address(matrix + at(row + thread % 16, column + thread / 16 * 8));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(address));
#endif
}

// [8, 32] from `row` and `column` on, as the transposed right side of two products.
template <class T, int WIDTH>
DEVICE void load_rows(unsigned (&b)[4], const T *tile, int row, int column) {
#ifdef SEGUE_EMULATED
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2;
  UNROLL
  for (int i = 0; i < 4; ++i) {
    const T *low = tile + place<WIDTH>(row + g, column + t + i * 8);
    b[i] = two_of(low, low + 1);
  }
#else
  const int thread = threadIdx.x % 32;
  const unsigned address = shared_address(tile + place<WIDTH>(row + thread % 8, column + thread / 8 * 8));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(address));
#endif
}

// [16, 16] from `row` and `column` on, as the right side of two products.
template <class T, int WIDTH>
DEVICE void load_columns(unsigned (&b)[4], const T *tile, int row, int column) {
#ifdef SEGUE_EMULATED
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2;
  UNROLL
  for (int i = 0; i < 4; ++i) {
    const int first = row + t + i % 2 * 8, own = column + g + i / 2 * 8;
    b[i] = two_of(tile + place<WIDTH>(first, own), tile + place<WIDTH>(first + 1, own));
  }
#else
  const int thread = threadIdx.x % 32;
  const unsigned address = shared_address(tile + place<WIDTH>(row + thread % 16, column + thread / 16 * 8));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(address));
#endif
}

// ---- products of a group of four warps

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Where a tile of rows of 128 bytes lies, as such products take it: eight rows are 1024 bytes, in the order that `place` has.
DEVICE unsigned long long descriptor(const void *tile) {
  return (shared_address(tile) >> 4 & 0x3fffull) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Products begun so far are one lot.
DEVICE void close_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits for all lots but the last `LEFT`.
template <int LEFT>
DEVICE void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

#define SUMS(x)                                                                                                           \
  "+f"(x[0][0]), "+f"(x[0][1]), "+f"(x[0][2]), "+f"(x[0][3]), "+f"(x[1][0]), "+f"(x[1][1]), "+f"(x[1][2]), "+f"(x[1][3]), \
      "+f"(x[2][0]), "+f"(x[2][1]), "+f"(x[2][2]), "+f"(x[2][3]), "+f"(x[3][0]), "+f"(x[3][1]), "+f"(x[3][2]),            \
      "+f"(x[3][3]), "+f"(x[4][0]), "+f"(x[4][1]), "+f"(x[4][2]), "+f"(x[4][3]), "+f"(x[5][0]), "+f"(x[5][1]),            \
      "+f"(x[5][2]), "+f"(x[5][3]), "+f"(x[6][0]), "+f"(x[6][1]), "+f"(x[6][2]), "+f"(x[6][3]), "+f"(x[7][0]),            \
      "+f"(x[7][1]), "+f"(x[7][2]), "+f"(x[7][3])
#define OF_32                                                                                                          \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30," \
  "%31}"

template <class T>
DEVICE void group_rows(float (&sums)[8][4], unsigned long long left, unsigned long long right, int add);
template <class T>
DEVICE void group_columns(float (&sums)[8][4], const unsigned (&a)[4], unsigned long long right);

#define GROUPS(T, name)                                                                                                  \
  template <>                                                                                                            \
  DEVICE void group_rows<T>(float (&sums)[8][4], unsigned long long left, unsigned long long right, int add) {          \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32." name "." name       \
                 " " OF_32 ", %32, %33, p, 1, 1, 0, 0;}"                                                                 \
                 : SUMS(sums)                                                                                            \
                 : "l"(left), "l"(right), "r"(add));                                                                     \
  }                                                                                                                      \
  template <>                                                                                                            \
  DEVICE void group_columns<T>(float (&sums)[8][4], const unsigned (&a)[4], unsigned long long right) {                 \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." name "." name " " OF_32                                   \
                 ", {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"                                                                 \
                 : SUMS(sums)                                                                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right));                                              \
  }
GROUPS(bf16, "bf16")
GROUPS(f16, "f16")
#undef GROUPS

#else

DEVICE void begin_products() {}
DEVICE void close_products() {}
template <int LEFT>
DEVICE void await_products() {}

#endif

// Keeps the compiler from using sums before they are there.
template <int N>
DEVICE void settle(float (&sums)[N][4]) {
  if (!BY_GROUPS) return;
  UNROLL
  for (int i = 0; i < N; ++i) {
    UNROLL
    for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(sums[i][e])::"memory");
  }
}

// sums [16, KEYS] of a warp = its rows of `own` [64, WIDTH] times `tile` [KEYS, WIDTH] transposed.
template <class T, int WIDTH>
DEVICE void by_rows(float (&sums)[KEYS / 8][4], const T *own, const T *tile) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (WIDTH == 64) {
    UNROLL
    for (int k = 0; k < WIDTH / 16; ++k) group_rows<T>(sums, descriptor(own) + 2 * k, descriptor(tile) + 2 * k, k > 0);
    return;
  }
#endif
  const auto at = [](int row, int column) { return place<WIDTH>(row, column); };
  const int first = threadIdx.x / 32 * 16;
  UNROLL
  for (int i = 0; i < KEYS / 8; ++i) {
    UNROLL
    for (int e = 0; e < 4; ++e) sums[i][e] = 0.0f;
  }
  UNROLL
  for (int column = 0; column < WIDTH; column += 32) {
    unsigned a[4], next[4], b[4];
    load_left(a, own, at, first, column);
    load_left(next, own, at, first, column + 16);
    UNROLL
    for (int i = 0; i < KEYS / 8; ++i) {
      load_rows<T, WIDTH>(b, tile, 8 * i, column);
      multiply<T>(sums[i], a, b[0], b[1]);
      multiply<T>(sums[i], next, b[2], b[3]);
    }
  }
}

// sums [16, WIDTH] of a warp += a [16, KEYS] times `tile` [KEYS, WIDTH].
template <class T, int WIDTH>
DEVICE void by_columns(float (&sums)[WIDTH / 8][4], const unsigned (&a)[KEYS / 16][4], const T *tile) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (WIDTH == 64) {
    UNROLL
    for (int k = 0; k < KEYS / 16; ++k) group_columns<T>(sums, a[k], descriptor(tile) + 128 * k);
    return;
  }
#endif
  UNROLL
  for (int k = 0; k < KEYS / 16; ++k) {
    UNROLL
    for (int column = 0; column < WIDTH; column += 16) {
      unsigned b[4];
      load_columns<T, WIDTH>(b, tile, 16 * k, column);
      multiply<T>(sums[column / 8], a[k], b[0], b[1]);
      multiply<T>(sums[column / 8 + 1], a[k], b[2], b[3]);
    }
  }
}

// A warp's [16, KEYS] of sums as the left side of products.
template <class T>
DEVICE void as_left(unsigned (&a)[KEYS / 16][4], const float (&x)[KEYS / 8][4]) {
  UNROLL
  for (int k = 0; k < KEYS / 16; ++k) {
    UNROLL
    for (int i = 0; i < 4; ++i) a[k][i] = packed<T>(x[2 * k + i / 2][i % 2 * 2], x[2 * k + i / 2][i % 2 * 2 + 1]);
  }
}

// ---- copies

struct alignas(16) Eight {
  unsigned pairs[4];
};

// Begins to copy 16 bytes to shared memory, or zeros.
DEVICE void fetch(void *to, const void *from, bool there) {
#ifdef SEGUE_EMULATED
  *static_cast<Eight *>(to) = there ? *static_cast<const Eight *>(from) : Eight{};
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0));
#endif
}

// The same of four bytes.
DEVICE void fetch_number(float *to, const float *from) {
#ifdef SEGUE_EMULATED
  *to = *from;
#else
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from));
#endif
}

// Two to the power of x.
DEVICE float power(float x) {
#ifdef SEGUE_EMULATED
  return exp2f(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

// Waits until what this thread has begun to copy is there.
DEVICE void fetched() {
#ifndef SEGUE_EMULATED
  asm volatile("cp.async.wait_all;" ::: "memory");
  // Products of groups read shared memory by a way of their own.
  if (BY_GROUPS) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Begins to copy KEYS rows, from row `first` of `count` on, zeros where there are none.
template <class T, int WIDTH>
DEVICE void fetch_rows(T *tile, const T *from, long long step, int first, int count, int width) {
  constexpr int PARTS = WIDTH / 8, AT_ONCE = 128 / PARTS;
  const int row = threadIdx.x / PARTS, column = threadIdx.x % PARTS * 8;
  const T *source = from + (first + row) * step + column;
  // Rows at a distance of a multiple of 8 have one order.
  T *to = tile + place<WIDTH>(row, column);
  UNROLL
  for (int i = 0; i < KEYS / AT_ONCE; ++i) {
    const int at = first + row + i * AT_ONCE;
    const bool there = at >= 0 && at < count && column < width;
    fetch(to + i * AT_ONCE * WIDTH, there ? source : from, there);
    source += AT_ONCE * step;
  }
}

DEVICE float low_of(unsigned pair, bf16) { return __uint_as_float(pair << 16); }
DEVICE float high_of(unsigned pair, bf16) { return __uint_as_float(pair & 0xffff0000u); }
DEVICE float low_of(unsigned pair, f16) { return load(f16{static_cast<unsigned short>(pair)}); }
DEVICE float high_of(unsigned pair, f16) { return load(f16{static_cast<unsigned short>(pair >> 16)}); }

template <class T>
DEVICE void unpack(float (&to)[8], const Eight &from) {
  UNROLL
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = low_of(from.pairs[i], T());
    to[2 * i + 1] = high_of(from.pairs[i], T());
  }
}

template <class T>
DEVICE Eight pack(const float (&from)[8]) {
  Eight to;
  UNROLL
  for (int i = 0; i < 4; ++i) to.pairs[i] = packed<T>(from[2 * i], from[2 * i + 1]);
  return to;
}

// ---- a block

// Tiles of a block in shared memory, ahead by one where there is room.
template <class T, int WIDTH, int WARPS>
struct alignas(ALIGNMENT) Tiles {
  static constexpr int SLABS = WARPS / 4 + 2;  // of KEYS distances: those of this tile, and the next one's
  T k[2][KEYS * WIDTH], v[2][KEYS * WIDTH], r[SLABS][KEYS * WIDTH];
  union Scratch {
    float scores[16 * SCORES_STEP];  // [16, SPAN]
    T gradients[16 * GRADIENTS_STEP];
  } scratch[WARPS];
  float codes[2][KEYS];  // segments of the keys
  float other[16 * WARPS], mean[16 * WARPS];
  float sums[WARPS][2][WIDTH];
};

template <class T, int WIDTH, int WARPS, bool BACK>
struct Shared : Tiles<T, WIDTH, WARPS> {
  // Queries for contents and distances, and the gradient of what is read.
  T own[BACK ? 3 : 2][16 * WARPS * WIDTH];
};

// What a thread knows of one of its two queries.
struct Query {
  int i, visible;
  unsigned number;  // of its first weight
  const unsigned *seen;
  float segment, other;

  DEVICE Query(const Attention &of, int n, int i, float other) : i(i), other(other) {
    const bool there = i < of.queries;
    const int lane = n % of.lanes, row = there ? i : 0;
    const int *numbering = of.numbering + 4 * row;
    visible = there ? (numbering[3] < of.keys ? numbering[3] : of.keys) : 0;
    number = static_cast<unsigned>(of.heads * of.lanes) * numbering[0] + static_cast<unsigned>(n) * numbering[1] + numbering[2];
    seen = of.seen ? of.seen + lane * of.seen_lane_step + row * of.seen_row_step : nullptr;
    segment = of.s ? of.of_queries[lane * of.of_queries_step + row] : 0.0f;
  }

  // Which keys of a tile it sees.
  DEVICE void words_of(int tile, unsigned (&words)[2]) const {
    UNROLL
    for (int i = 0; i < 2; ++i) {
      const int left = visible - tile * KEYS - 32 * i;
      words[i] = left <= 0 ? 0u : left >= 32 ? 0xffffffffu : (1u << left) - 1u;
      if (seen && left > 0) words[i] &= seen[2 * tile + i];
    }
  }
};

template <class T, int WIDTH, int WARPS, bool PLACED>
struct Rows {
  static constexpr int ROWS = 16 * WARPS;
  using Own = Tiles<T, WIDTH, WARPS>;

  const Attention &attention;
  Own &tiles;
  const T *k, *v, *r;
  int own;  // of the heads and lanes of this grid
  int n, head, lane, first, warp, end;

  DEVICE Rows(const Attention &attention, Own &tiles) : attention(attention), tiles(tiles) {
    own = blockIdx.y;
    n = attention.first_head * attention.lanes + own;
    head = n / attention.lanes;
    lane = n % attention.lanes;
    first = blockIdx.x * ROWS;
    warp = threadIdx.x / 32;
    k = static_cast<const T *>(attention.k) + lane * attention.k_lane_step + head * attention.width;
    v = static_cast<const T *>(attention.v) + lane * attention.v_lane_step + head * attention.width;
    r = static_cast<const T *>(attention.r) + head * attention.width;
    const int i = first + threadIdx.x % ROWS;
    const int visible = i < attention.queries ? attention.numbering[4 * i + 3] : 0;
    end = static_cast<int>(over_block(static_cast<float>(visible), Max()));
    if (end > attention.keys) end = attention.keys;
  }

  // Queries with what is added to them, [ROWS, WIDTH] each, and what their scores have more between segments.
  DEVICE void take_queries(T *contents, T *positions, T *to_contents, T *to_positions) {
    constexpr int PARTS = WIDTH / 8;
    const Attention &of = attention;
    for (int i = threadIdx.x; i < ROWS * PARTS; i += blockDim.x) {
      const int row = i / PARTS, column = i % PARTS * 8, at = first + row;
      const bool there = at < of.queries && column < of.width;
      float q[8] = {}, added[8];
      if (there) {
        const T *from = static_cast<const T *>(of.q) + lane * of.q_lane_step + at * of.q_row_step + head * of.width + column;
        unpack<T>(q, *reinterpret_cast<const Eight *>(from));
      }
      const int vector = head * of.width + column;
      const long long to = (static_cast<long long>(own) * of.queries + at) * of.width + column;
      UNROLL
      for (int e = 0; e < 8; ++e) added[e] = there ? (q[e] + of.u[vector + e]) * of.scale : 0.0f;
      const Eight for_contents = pack<T>(added);
      *reinterpret_cast<Eight *>(contents + place<WIDTH>(row, column)) = for_contents;
      if (there && to_contents) *reinterpret_cast<Eight *>(to_contents + to) = for_contents;
      if (!PLACED) {
        UNROLL
        for (int e = 0; e < 8; ++e) added[e] = there ? (q[e] + of.w[vector + e]) * of.scale : 0.0f;
        const Eight for_positions = pack<T>(added);
        *reinterpret_cast<Eight *>(positions + place<WIDTH>(row, column)) = for_positions;
        if (there && to_positions) *reinterpret_cast<Eight *>(to_positions + to) = for_positions;
      }
      if (of.s) {
        float other = 0.0f;
        UNROLL
        for (int e = 0; e < 8 && there; ++e) other += (q[e] + of.b[vector + e]) * of.s[vector + e];
        other = over_parts(other);
        if (column == 0) tiles.other[row] = other * of.scale;
      }
    }
  }

  // The sum over the threads that have the parts of a row.
  DEVICE float over_parts(float x) {
    for (int distance = WIDTH / 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
  }

  // Of the distances between these queries and the keys of a tile, the first.
  DEVICE int first_distance(int tile) const { return attention.queries - ROWS - first + tile * KEYS; }

  DEVICE T *slab(int number) { return tiles.r[number % Own::SLABS]; }

  DEVICE void fetch_slab(int number) {
    if (PLACED) return;
    fetch_rows<T, WIDTH>(slab(number), r, attention.r_row_step, first_distance(number), attention.distances, attention.width);
  }

  DEVICE void fetch_tile(int tile) {
    fetch_rows<T, WIDTH>(tiles.k[tile % 2], k, attention.k_row_step, tile * KEYS, attention.keys, attention.width);
    fetch_rows<T, WIDTH>(tiles.v[tile % 2], v, attention.v_row_step, tile * KEYS, attention.keys, attention.width);
    fetch_slab(tile + WARPS / 4);
    const int j = tile * KEYS + threadIdx.x;
    if (attention.s && threadIdx.x < KEYS && j < attention.keys) {
      fetch_number(&tiles.codes[tile % 2][threadIdx.x], attention.of_keys + lane * attention.of_keys_step + j);
    }
  }

  DEVICE void fetch_first() {
    for (int number = 0; number < WARPS / 4; ++number) fetch_slab(number);
    fetch_tile(0);
  }

  // What dropout keeps of a thread's weights of a tile: bit 4 i + e is that of `sums[i][e]`.
  DEVICE unsigned keeps(const Drops &drops, const Query (&queries)[2], int tile) const {
    unsigned kept = 0;
    UNROLL
    for (int bit = 0; bit < 32; ++bit) {
      const int column = bit / 4 * 8 + threadIdx.x % 4 * 2 + bit % 2;
      if (keeps_value(drops, queries[bit % 4 / 2].number + tile * KEYS + column)) kept |= 1u << bit;
    }
    return kept;
  }

  // Where they are.
  DEVICE long long bits(int tile) const {
    const int tiles = (attention.keys + KEYS - 1) / KEYS;
    return ((static_cast<long long>(n) * gridDim.x + blockIdx.x) * tiles + tile) * blockDim.x + threadIdx.x;
  }

  // Rows of distances of a warp in the window of a tile, from number `i` on.
  DEVICE const T *distances(int tile, int i) {
    const int row = ROWS - 16 - 16 * warp + i;
    return slab(tile + row / KEYS) + row % KEYS * WIDTH;
  }
};

// Scores by distance of a warp's 16 queries, [16, SPAN].
template <class T, int WIDTH, int WARPS, bool PLACED>
DEVICE void distance_scores(float *to, Rows<T, WIDTH, WARPS, PLACED> &block, int tile, const T *positions) {
  const int warp = block.warp, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2;
  const auto at = [](int row, int column) { return place<WIDTH>(row, column); };
  float sums[SPAN / 8][4] = {};
  UNROLL
  for (int column = 0; column < WIDTH; column += 32) {
    unsigned a[4], next[4], b[4];
    load_left(a, positions, at, 16 * warp, column);
    load_left(next, positions, at, 16 * warp, column + 16);
    UNROLL
    for (int i = 0; i < SPAN / 8; ++i) {
      load_rows<T, WIDTH>(b, block.distances(tile, 8 * i), 0, column);
      multiply<T>(sums[i], a, b[0], b[1]);
      multiply<T>(sums[i], next, b[2], b[3]);
    }
  }
  UNROLL
  for (int i = 0; i < SPAN / 8; ++i) {
    UNROLL
    for (int e = 0; e < 4; ++e) to[(g + e / 2 * 8) * SCORES_STEP + 8 * i + t + e % 2] = sums[i][e];
  }
}

// Scores of a warp's 16 queries for the keys of a tile; -infinity where a key is not seen. A thread has queries `g` and
// `g + 8` of them, and of each eight keys two.
// `beside` begins another product, which is there at the end.
template <class T, int WIDTH, int WARPS, bool PLACED, class Beside>
DEVICE void score(float (&scores)[KEYS / 8][4], Rows<T, WIDTH, WARPS, PLACED> &block, const Query (&queries)[2], int tile,
                  const T *contents, const T *positions, Beside beside) {
  const Attention &of = block.attention;
  const int warp = block.warp, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2;
  float *by_distance = block.tiles.scratch[warp].scores;
  const T *keys = block.tiles.k[tile % 2];
  if (BY_GROUPS && WIDTH == 64) {
    // Distances between all queries of the block and the keys; a warp keeps those of its own.
    float earlier[KEYS / 8][4], later[KEYS / 8][4];
    begin_products();
    if (!PLACED) {
      by_rows<T, WIDTH>(earlier, positions, block.slab(tile));
      by_rows<T, WIDTH>(later, positions, block.slab(tile + 1));
      close_products();
    }
    by_rows<T, WIDTH>(scores, contents, keys);
    beside();
    close_products();
    if (!PLACED) {
      await_products<1>();
      settle(earlier);
      settle(later);
      const int before = 6 - 2 * warp;
      UNROLL
      for (int i = 0; i < 2 * KEYS / 8; ++i) {
        if (i < before || i >= before + SPAN / 8) continue;
        UNROLL
        for (int e = 0; e < 4; ++e) {
          const float score = i < KEYS / 8 ? earlier[i % (KEYS / 8)][e] : later[i % (KEYS / 8)][e];
          by_distance[(g + e / 2 * 8) * SCORES_STEP + 8 * (i - before) + t + e % 2] = score;
        }
      }
    }
    await_products<0>();
    settle(scores);
  } else {
    if (!PLACED) distance_scores(by_distance, block, tile, positions);
    by_rows<T, WIDTH>(scores, contents, keys);
    beside();
  }
  __syncwarp();  // all scores by distance are there
  UNROLL
  for (int half = 0; half < 2; ++half) {
    const Query &query = queries[half];
    const int row = g + 8 * half;
    unsigned words[2];
    query.words_of(tile, words);
    if (!PLACED) {
      const float *shifted = by_distance + row * SCORES_STEP + 15 - row + t;
      UNROLL
      for (int i = 0; i < KEYS / 8; ++i) {
        scores[i][2 * half] += shifted[8 * i];
        scores[i][2 * half + 1] += shifted[8 * i + 1];
      }
    } else if (query.visible > tile * KEYS) {
      const int stands = of.places[block.lane * of.queries + query.i];
      const T *position = static_cast<const T *>(of.position) +
                          (static_cast<long long>(block.n) * of.queries + query.i) * of.position_step + of.segment - 1 - stands +
                          tile * KEYS + t;
      // Of keys behind the last there is none.
      const int left = of.keys - tile * KEYS - t;
      UNROLL
      for (int i = 0; i < KEYS / 8; ++i) {
        UNROLL
        for (int e = 0; e < 2; ++e) scores[i][2 * half + e] += 8 * i + e < left ? load(position[8 * i + e]) : 0.0f;
      }
    }
    if (of.s) {
      const float *codes = block.tiles.codes[tile % 2] + t;
      UNROLL
      for (int i = 0; i < KEYS / 8; ++i) {
        UNROLL
        for (int e = 0; e < 2; ++e) scores[i][2 * half + e] += codes[8 * i + e] != query.segment ? query.other : 0.0f;
      }
    }
    if ((words[0] & words[1]) == 0xffffffffu) continue;
    // Bit 8 i + e of what is left is that of key 8 i + t + e.
    const unsigned own[2] = {words[0] >> t, words[1] >> t};
    UNROLL
    for (int i = 0; i < KEYS / 8; ++i) {
      UNROLL
      for (int e = 0; e < 2; ++e) {
        if (!(own[i / 4] >> (8 * (i % 4) + e) & 1u)) scores[i][2 * half + e] = __uint_as_float(0xff800000u);
      }
    }
  }
  __syncwarp();  // they may be written again
}

// The largest value, or the sum, over the four threads that have a row.
template <class Operation>
DEVICE float over_row(float x, Operation operation) {
  x = operation(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return operation(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

template <class T, int WIDTH, int WARPS, bool PLACED>
DEVICE void attend(const Attention &of, T *to, const Drops &drops) {
  using Memory = Shared<T, WIDTH, WARPS, false>;
  SHARED(Memory, memory);
  Rows<T, WIDTH, WARPS, PLACED> block(of, memory);
  const int warp = block.warp, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2;
  block.take_queries(memory.own[0], memory.own[1], nullptr, nullptr);
  block.fetch_first();
  fetched();
  __syncthreads();
  const int first = block.first + 16 * warp + g;
  const Query queries[2] = {Query(of, block.n, first, memory.other[16 * warp + g]),
                            Query(of, block.n, first + 8, memory.other[16 * warp + g + 8])};
  float read[WIDTH / 8][4] = {}, top[2], sum[2] = {0.0f, 0.0f};
  top[0] = top[1] = __uint_as_float(0xff800000u);
  const int tiles = (block.end + KEYS - 1) / KEYS;
  for (int tile = 0; tile < tiles; ++tile) {
    fetched();
    __syncthreads();
    if (tile + 1 < tiles) block.fetch_tile(tile + 1);
    float scores[KEYS / 8][4];
    score(scores, block, queries, tile, memory.own[0], memory.own[1], [] {});
    unsigned kept = 0xffffffffu;
    if (drops.threshold) {
      kept = block.keeps(drops, queries, tile);
      of.kept[block.bits(tile)] = kept;
    }
    UNROLL
    for (int half = 0; half < 2; ++half) {
      float most = top[half];
      UNROLL
      for (int i = 0; i < KEYS / 8; ++i) most = fmaxf(most, fmaxf(scores[i][2 * half], scores[i][2 * half + 1]));
      most = over_row(most, Max());
      // Nothing is seen yet where it is -infinity.
      const float base = most == __uint_as_float(0xff800000u) ? 0.0f : most * LOG2_E;
      const float before = power(top[half] * LOG2_E - base);
      top[half] = most;
      float all = 0.0f;
      UNROLL
      for (int i = 0; i < KEYS / 8; ++i) {
        UNROLL
        for (int e = 0; e < 2; ++e) {
          float &value = scores[i][2 * half + e];
          value = power(value * LOG2_E - base);
          all += value;
          if (!(kept >> (4 * i + 2 * half + e) & 1u)) value = 0.0f;
        }
      }
      sum[half] = sum[half] * before + all;
      UNROLL
      for (int i = 0; i < WIDTH / 8; ++i) {
        read[i][2 * half] *= before;
        read[i][2 * half + 1] *= before;
      }
    }
    unsigned a[KEYS / 16][4];
    as_left<T>(a, scores);
    settle(read);
    begin_products();
    by_columns<T, WIDTH>(read, a, block.tiles.v[tile % 2]);
    close_products();
    await_products<0>();
    settle(read);
  }
  UNROLL
  for (int half = 0; half < 2; ++half) {
    const float all = over_row(sum[half], Sum());
    const int i = queries[half].i;
    if (i >= of.queries) continue;
    // Infinite where nothing is seen: weights made of it are 0.
    const float inverse = all > 0.0f ? drops.kept / all : 0.0f;
    if (t == 0) {
      of.statistics[static_cast<long long>(block.n) * of.queries + i] = all > 0.0f ? top[half] * LOG2_E + log2f(all) : __uint_as_float(0x7f800000u);
    }
    T *row = to + ((static_cast<long long>(block.lane) * of.queries + i) * of.heads + block.head) * of.width;
    UNROLL
    for (int column = 0; column < WIDTH; column += 8) {
      if (column >= of.width) break;
      const unsigned both = packed<T>(read[column / 8][2 * half] * inverse, read[column / 8][2 * half + 1] * inverse);
      *reinterpret_cast<unsigned *>(row + column + t) = both;
    }
  }
}

// Sums of `x` over the rows of a warp, by column.
template <int WIDTH>
DEVICE void sum_rows(float (&x)[WIDTH / 8][4], float scale, float *to) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2;
  UNROLL
  for (int i = 0; i < WIDTH / 8; ++i) {
    UNROLL
    for (int e = 0; e < 2; ++e) {
      float sum = (x[i][e] + x[i][2 + e]) * scale;
      for (int distance = 16; distance >= 4; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
      if (g == 0) to[8 * i + t + e] = sum;
    }
  }
}

template <class T, int WIDTH, int WARPS, bool PLACED>
DEVICE void attend_back(const Attention &of, const Gradients &to, const Drops &drops) {
  constexpr int ROWS = 16 * WARPS, PARTS = WIDTH / 8;
  using Memory = Shared<T, WIDTH, WARPS, true>;
  SHARED(Memory, memory);
  Rows<T, WIDTH, WARPS, PLACED> block(of, memory);
  const int warp = block.warp, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4 * 2, thread = threadIdx.x % 32;
  T *contents = memory.own[0], *positions = memory.own[1], *of_read = memory.own[2];
  block.take_queries(contents, positions, static_cast<T *>(to.contents), static_cast<T *>(to.positions));
  for (int i = threadIdx.x; i < ROWS * PARTS; i += blockDim.x) {
    const int row = i / PARTS, column = i % PARTS * 8, query = block.first + row;
    Eight grad = {};
    float mean = 0.0f;
    if (query < of.queries && column < of.width) {
      const long long from = ((static_cast<long long>(block.lane) * of.queries + query) * of.heads + block.head) * of.width + column;
      grad = *reinterpret_cast<const Eight *>(static_cast<const T *>(to.of_read) + from);
      float grads[8], reads[8];
      unpack<T>(grads, grad);
      unpack<T>(reads, *reinterpret_cast<const Eight *>(static_cast<const T *>(to.read) + from));
      UNROLL
      for (int e = 0; e < 8; ++e) mean += grads[e] * reads[e];
      const long long by_head = (static_cast<long long>(block.own) * of.queries + query) * of.width + column;
      *reinterpret_cast<Eight *>(static_cast<T *>(to.of_read_by_head) + by_head) = grad;
    }
    *reinterpret_cast<Eight *>(of_read + place<WIDTH>(row, column)) = grad;
    // The sum of weights times their gradients is what was read times its gradient, with dropout too.
    mean = block.over_parts(mean);
    if (column == 0) memory.mean[row] = mean;
  }
  block.fetch_first();
  fetched();
  __syncthreads();
  const int own = 16 * warp + g, first = block.first + own;
  const Query queries[2] = {Query(of, block.n, first, memory.other[own]), Query(of, block.n, first + 8, memory.other[own + 8])};
  const float mean[2] = {memory.mean[own], memory.mean[own + 8]};
  float statistics[2], elsewhere[2] = {0.0f, 0.0f};
  UNROLL
  for (int half = 0; half < 2; ++half) {
    const int i = queries[half].i;
    statistics[half] = i < of.queries ? of.statistics[static_cast<long long>(block.n) * of.queries + i] : __uint_as_float(0x7f800000u);
  }
  float by_content[WIDTH / 8][4] = {}, by_position[WIDTH / 8][4] = {};
  // Where this thread's rows of weights and of gradients of scores begin, and its warp's rows of gradients of scores by distance.
  T *weights_of_row[2], *contents_of_row[2];
  UNROLL
  for (int half = 0; half < 2; ++half) {
    const int i = queries[half].i < of.queries ? queries[half].i : 0;
    const long long row = (static_cast<long long>(block.own) * of.queries + i) * to.keys_step + t;
    weights_of_row[half] = static_cast<T *>(to.weights) + row;
    contents_of_row[half] = static_cast<T *>(to.of_contents) + row;
  }
  const int first_of_warp = block.first + 16 * warp, rows_of_warp = of.queries - first_of_warp;
  T *const positions_of_warp =
      static_cast<T *>(to.of_positions) + (static_cast<long long>(block.own) * of.queries + first_of_warp) * of.position_step;
  const int tiles = (block.end + KEYS - 1) / KEYS;
  T *scratch = memory.scratch[warp].gradients;
  const auto in_scratch = [](int row, int column) { return row * GRADIENTS_STEP + column; };
  for (int tile = 0; tile < tiles; ++tile) {
    fetched();
    __syncthreads();
    if (tile + 1 < tiles) block.fetch_tile(tile + 1);
    float weights[KEYS / 8][4], grads[KEYS / 8][4];
    score(weights, block, queries, tile, contents, positions,
          [&] { by_rows<T, WIDTH>(grads, of_read, block.tiles.v[tile % 2]); });
    settle(grads);
    const unsigned kept = drops.threshold ? of.kept[block.bits(tile)] : 0xffffffffu;
    UNROLL
    for (int half = 0; half < 2; ++half) {
      const Query &query = queries[half];
      // Numbers of the row's part that there is room for.
      const long long room = query.i < of.queries ? to.keys_step - tile * KEYS - t : 0;
      T *of_weights = weights_of_row[half] + tile * KEYS, *of_contents = contents_of_row[half] + tile * KEYS;
      UNROLL
      for (int i = 0; i < KEYS / 8; ++i) {
        float dropped[2];
        UNROLL
        for (int e = 0; e < 2; ++e) {
          const float weight = power(weights[i][2 * half + e] * LOG2_E - statistics[half]);
          const float times = kept >> (4 * i + 2 * half + e) & 1u ? drops.kept : 0.0f;
          float &grad = grads[i][2 * half + e];
          dropped[e] = weight * times;
          // The gradient of a softmax: w (g - sum of w g), with the weights as they were before dropout.
          grad = weight * (grad * times - mean[half]);
        }
        const unsigned both = packed<T>(dropped[0], dropped[1]);
        const unsigned gradients = packed<T>(grads[i][2 * half], grads[i][2 * half + 1]);
        if (8 * i < room) {
          *reinterpret_cast<unsigned *>(of_weights + 8 * i) = both;
          *reinterpret_cast<unsigned *>(of_contents + 8 * i) = gradients;
        }
      }
      if (of.s) {
        const float *codes = block.tiles.codes[tile % 2] + t;
        UNROLL
        for (int i = 0; i < KEYS / 8; ++i) {
          UNROLL
          for (int e = 0; e < 2; ++e) elsewhere[half] += codes[8 * i + e] != query.segment ? grads[i][2 * half + e] : 0.0f;
        }
      }
    }
    // Of distances: shifted back, with zeros where a query and the keys of this tile do not meet.
    UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = g + 8 * half;
      UNROLL
      for (int i = 0; i < KEYS / 8; ++i) {
        UNROLL
        for (int e = 0; e < 2; ++e) store(scratch + in_scratch(row, 15 - row + 8 * i + t + e), grads[i][2 * half + e]);
      }
      for (int i = t; i < t + 2; ++i) {
        for (int column = i; column < 16; column += 8) {
          store(scratch + in_scratch(row, column < 15 - row ? column : KEYS + column), 0.0f);
        }
      }
    }
    __syncwarp();
    unsigned a[KEYS / 16][4];
    as_left<T>(a, grads);
    if (BY_GROUPS && WIDTH == 64) {
      settle(by_content);
      settle(by_position);
      begin_products();
      by_columns<T, WIDTH>(by_content, a, block.tiles.k[tile % 2]);
      unsigned shifted[2][KEYS / 16][4];
      UNROLL
      for (int half = 0; half < 2 && !PLACED; ++half) {
        UNROLL
        for (int k = 0; k < KEYS / 16; ++k) {
          // Of the block's distances a warp has five times sixteen, from 48 less sixteen for each warp before it on.
          const int own = 4 * half + k - (3 - warp);
          unsigned(&part)[4] = shifted[half][k];
          part[0] = part[1] = part[2] = part[3] = 0;
          if (own >= 0 && own < SPAN / 16) load_left(part, static_cast<const T *>(scratch), in_scratch, 0, 16 * own);
        }
      }
      if (!PLACED) {
        begin_products();
        by_columns<T, WIDTH>(by_position, shifted[0], block.slab(tile));
        by_columns<T, WIDTH>(by_position, shifted[1], block.slab(tile + 1));
      }
      close_products();
    } else {
      by_columns<T, WIDTH>(by_content, a, block.tiles.k[tile % 2]);
      UNROLL
      for (int i = 0; i < SPAN / 16 && !PLACED; ++i) {
        unsigned own[4], b[4];
        load_left(own, static_cast<const T *>(scratch), in_scratch, 0, 16 * i);
        const T *rows = block.distances(tile, 16 * i);
        UNROLL
        for (int column = 0; column < WIDTH; column += 16) {
          load_columns<T, WIDTH>(b, rows, 0, column);
          multiply<T>(by_position[column / 8], own, b[0], b[1]);
          multiply<T>(by_position[column / 8 + 1], own, b[2], b[3]);
        }
      }
    }
    // The column of a row's first key of the tile is one less in each next row, where queries stand in order.
    T *of_row = positions_of_warp;
    const int last = of.segment - 1 + tile * KEYS;
    UNROLL
    for (int row = 0; row < 16; ++row) {
      if (row >= rows_of_warp) break;
      const int stands = PLACED ? of.places[block.lane * of.queries + first_of_warp + row] : first_of_warp + row;
      const int column = last - stands + thread;
      const T *from = scratch + in_scratch(row, 15 - row) + thread;
      if (column >= 0 && column < of.position_step) of_row[column] = from[0];
      if (column >= -32 && column + 32 < of.position_step) of_row[column + 32] = from[32];
      of_row += of.position_step;
    }
    await_products<0>();
    settle(by_content);
    settle(by_position);
    __syncwarp();  // the scratch may be written again
  }
  // Keys that no query of the block sees, and distances at which a query meets no key: products read them.
  for (int row = 0; row < 16; ++row) {
    const int i = block.first + 16 * warp + row;
    if (i >= of.queries) break;
    const long long number = static_cast<long long>(block.own) * of.queries + i;
    for (long long j = tiles * KEYS + thread; j < to.keys_step; j += 32) {
      store(static_cast<T *>(to.weights) + number * to.keys_step + j, 0.0f);
      store(static_cast<T *>(to.of_contents) + number * to.keys_step + j, 0.0f);
    }
    const int before = of.segment - 1 - (PLACED ? of.places[block.lane * of.queries + i] : i);
    T *of_positions = static_cast<T *>(to.of_positions) + number * of.position_step;
    for (int j = thread; j < before; j += 32) store(of_positions + j, 0.0f);
    for (long long j = before + tiles * KEYS + thread; j < of.position_step; j += 32) store(of_positions + j, 0.0f);
  }
  UNROLL
  for (int half = 0; half < 2; ++half) {
    const float other = over_row(elsewhere[half], Sum());
    const int i = queries[half].i;
    if (t == 0) memory.other[16 * warp + g + 8 * half] = other;
    if (i >= of.queries) continue;
    if (to.of_other && t == 0) to.of_other[static_cast<long long>(block.own) * of.queries + i] = other;
    T *row = static_cast<T *>(to.of_q) + ((static_cast<long long>(block.lane) * of.queries + i) * of.heads + block.head) * of.width;
    UNROLL
    for (int column = 0; column < WIDTH; column += 8) {
      if (column >= of.width) break;
      float sums[2];
      UNROLL
      for (int e = 0; e < 2; ++e) {
        const float products = by_content[column / 8][2 * half + e] + by_position[column / 8][2 * half + e];
        sums[e] = (products + (of.s ? other * of.s[block.head * of.width + column + t + e] : 0.0f)) * of.scale;
      }
      *reinterpret_cast<unsigned *>(row + column + t) = packed<T>(sums[0], sums[1]);
    }
  }
  sum_rows<WIDTH>(by_content, of.scale, memory.sums[warp][0]);
  sum_rows<WIDTH>(by_position, of.scale, memory.sums[warp][1]);
  __syncthreads();
  for (int i = threadIdx.x; i < 3 * of.width; i += blockDim.x) {
    const int vector = i / of.width, column = i % of.width;
    float sum = 0.0f;
    if (vector < 2) {
      for (int each = 0; each < WARPS; ++each) sum += memory.sums[each][vector][column];
    } else if (of.s) {
      for (int row = 0; row < ROWS; ++row) sum += memory.other[row] * load(contents[place<WIDTH>(row, column)]);
    }
    to.of_vectors[(static_cast<long long>(block.own) * gridDim.x + blockIdx.x) * 3 * of.width + i] = sum;
  }
}

// What card.rs asks for.
constexpr DEVICE int bytes_of_block(int width, int own) {
  const int known = 4 * (16 * SCORES_STEP + 32 + 2 * width) * 4 + 2 * KEYS * 4;
  return 7 * KEYS * width * 2 + (known + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + own * 64 * width * 2;
}

#define FLASH(kind, width)                                                                                       \
  static_assert(sizeof(Shared<kind, width, 4, false>) == bytes_of_block(width, 2), "more or less shared memory");   \
  static_assert(sizeof(Shared<kind, width, 4, true>) == bytes_of_block(width, 3), "more or less shared memory");    \
  KERNEL flash_##width##_##kind(Attention of, kind *to, Drops drops) { attend<kind, width, 4, false>(of, to, drops); } \
  KERNEL flash_placed_##width##_##kind(Attention of, kind *to, Drops drops) {                                    \
    attend<kind, width, 4, true>(of, to, drops);                                                                 \
  }                                                                                                              \
  KERNEL flash_back_##width##_##kind(Attention of, Gradients to, Drops drops) {                                  \
    attend_back<kind, width, 4, false>(of, to, drops);                                                           \
  }                                                                                                              \
  KERNEL flash_placed_back_##width##_##kind(Attention of, Gradients to, Drops drops) {                           \
    attend_back<kind, width, 4, true>(of, to, drops);                                                            \
  }
