// Kernels for cards on a host without one, for tests: each source as it is, with the names of CUDA that it uses. The threads of a block are
// taken in turn, from one barrier to the next, so that shared memory and sums over a block are what they are on a card.

// A checked longjmp refuses to go to another stack, which is what is meant here.
#undef _FORTIFY_SOURCE

#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

struct Place {
  unsigned x, y;
};
thread_local Place threadIdx, blockIdx, blockDim, gridDim;

// The threads of a block as contexts of one thread. A context begins with a call of the system; from then on it is changed by jumps, which
// need none.
struct Block {
  static constexpr unsigned SHARE = 6;

  struct Thread {
    ucontext_t start;
    jmp_buf place;
    size_t barriers = 0;
    bool begun = false, done = false;
  };

  std::vector<Thread> threads;
  std::vector<float> exchanged;
  std::vector<unsigned> shares;
  std::function<void()> body;
  jmp_buf scheduler;
  unsigned current = 0;

  explicit Block(unsigned count, std::function<void()> body)
      : threads(count), exchanged(count), shares(count * SHARE), body(std::move(body)) {}

  // Lets the others get as far.
  void wait() {
    auto &own = threads[current];
    ++own.barriers;
    if (_setjmp(own.place) == 0) _longjmp(scheduler, 1);
  }

  // Runs a thread up to its next barrier, or to its end.
  void resume(unsigned thread);

  // From the last thread to the first where `backwards`. False where some threads wait for others that have ended, or at another barrier.
  bool run(bool backwards);
};

thread_local Block *running;

void begin() {
  running->body();
  running->threads[running->current].done = true;
  _longjmp(running->scheduler, 1);
}

void Block::resume(unsigned thread) {
  constexpr size_t STACK = 64 << 10;
  thread_local std::vector<std::unique_ptr<char[]>> stacks;
  while (stacks.size() <= thread) stacks.emplace_back(new char[STACK]);
  auto &own = threads[thread];
  current = thread;
  threadIdx = {thread, 0};
  if (_setjmp(scheduler) != 0) return;
  if (own.begun) _longjmp(own.place, 1);
  own.begun = true;
  getcontext(&own.start);
  own.start.uc_stack.ss_sp = stacks[thread].get();
  own.start.uc_stack.ss_size = STACK;
  own.start.uc_link = nullptr;
  makecontext(&own.start, begin, 0);
  setcontext(&own.start);
}

bool Block::run(bool backwards) {
  running = this;
  const unsigned count = threads.size();
  while (!threads[0].done) {
    for (unsigned i = 0; i < count; ++i) resume(backwards ? count - 1 - i : i);
    for (const auto &thread : threads) {
      if (thread.done != threads[0].done || thread.barriers != threads[0].barriers) return false;
    }
  }
  return true;
}

void __syncthreads() { running->wait(); }

float __shfl_xor_sync(unsigned, float x, int distance) {
  const unsigned own = running->current;
  running->exchanged[own] = x;
  running->wait();
  const float other = running->exchanged[own ^ distance];
  running->wait();
  return other;
}

void __syncwarp() { running->wait(); }

// What each thread of this one's warp has of a product's sides, until `warp_shared`.
const unsigned (*warp_shares(const unsigned (&own)[Block::SHARE]))[Block::SHARE] {
  std::memcpy(&running->shares[running->current * Block::SHARE], own, sizeof own);
  running->wait();
  return reinterpret_cast<const unsigned(*)[Block::SHARE]>(&running->shares[running->current / 32 * 32 * Block::SHARE]);
}

void warp_shared() { running->wait(); }

// What the threads of a block share beside what a kernel declares: not in the memory of threads, which is part of their stacks.
template <class T>
T &memory_of_block() {
  thread_local const std::unique_ptr<T> memory(new T);
  return *memory;
}

unsigned __float_as_uint(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

float __uint_as_float(unsigned bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

#define __shared__ static thread_local
#define SEGUE_EMULATED

// Sources have names of their own each, as they are compiled apart for a card.
#include "../../kernels/src/cards/prelude.cu"
#include "../../kernels/src/noise/mask.cu"
#include "../../layers/src/activation.cu"
#include "../../layers/src/norm.cu"
#include "../../layers/src/cross_entropy.cu"
#include "../../layers/src/attention/chunked/rows.cu"
#include "../../layers/src/attention/flash/flash.cu"
#include "../../engine/src/optim/lamb.cu"
#include "../../engine/src/optim/norms.cu"

template <typename... A, size_t... I>
void unpacked(void (*kernel)(A...), void **arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_reference_t<A> *>(arguments[I])...);
}

FLASH(bf16, 64)
FLASH(f16, 64)
FLASH(bf16, 128)
FLASH(f16, 128)

// With arguments as the driver takes them: a pointer to each.
template <typename... A>
void call(void (*kernel)(A...), void **arguments) {
  unpacked(kernel, arguments, std::index_sequence_for<A...>());
}

struct Kernel {
  const char *name;
  void (*call)(void **);
};

#define ONE(name) {#name, [](void **arguments) { call(name, arguments); }}
#define OF_EACH_KIND(name) ONE(name##_f32), ONE(name##_bf16), ONE(name##_f16)
#define OF_FLASH(width, kind)                                            \
  ONE(flash_##width##_##kind), ONE(flash_placed_##width##_##kind),       \
      ONE(flash_back_##width##_##kind), ONE(flash_placed_back_##width##_##kind)
const Kernel kernels[] = {
    ONE(dropout_factors),    OF_EACH_KIND(activation), OF_EACH_KIND(activation_back), OF_EACH_KIND(norm),
    OF_EACH_KIND(norm_back), OF_EACH_KIND(norm_sums),  OF_EACH_KIND(attention),       OF_EACH_KIND(attention_back),
    OF_EACH_KIND(cross_entropy), OF_EACH_KIND(cross_entropy_back),
    ONE(lamb_make),          ONE(lamb_rates),          ONE(lamb_take),                ONE(gradient_norms),
    OF_FLASH(64, bf16),      OF_FLASH(64, f16),        OF_FLASH(128, bf16),           OF_FLASH(128, f16),
};

}  // namespace

// Runs a kernel of this name as a card would. What went wrong, or null.
extern "C" const char *segue_emulate(const char *name, unsigned grid_x, unsigned grid_y, unsigned threads,
                                     void **arguments, bool backwards) {
  for (const auto &kernel : kernels) {
    if (std::strcmp(kernel.name, name) != 0) continue;
    gridDim = {grid_x, grid_y};
    blockDim = {threads, 1};
    for (unsigned y = 0; y < grid_y; ++y) {
      for (unsigned x = 0; x < grid_x; ++x) {
        blockIdx = {x, y};
        if (!Block(threads, [&] { kernel.call(arguments); }).run(backwards)) return "threads of a block wait at different barriers";
      }
    }
    return nullptr;
  }
  return "there is no such kernel";
}
