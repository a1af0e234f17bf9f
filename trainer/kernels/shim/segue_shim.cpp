// What tch does not bind: a hook that fires when a parameter's gradient is complete, the fused Adam
// update, oneDNN's products, functions whose gradient Rust computes, and what those need to differentiate a part
// of a graph by itself. Every function that can fail catches: no exception may cross into Rust.
#include <ATen/ATen.h>
#include <ATen/SequenceNumber.h>
#include <ATen/Version.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUBlas.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/alignment.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace {

using Callback = void (*)(void *context, size_t parameter);

struct GradReady final : torch::autograd::PostAccumulateGradHook {
  Callback callback;
  void *context;
  size_t parameter;

  GradReady(Callback callback, void *context, size_t parameter)
      : callback(callback), context(context), parameter(parameter) {}

  void operator()(const at::Tensor &) override { callback(context, parameter); }
};

std::vector<at::Tensor> gather(at::Tensor *const *tensors, size_t count) {
  std::vector<at::Tensor> out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) out.push_back(*tensors[i]);
  return out;
}

// The fused updates go value by value on the processor, whatever shapes tensors have; those for cards want one shape. What is for one is for both.
void want_one_shape(const std::vector<at::Tensor> &weights, const std::vector<at::Tensor> &others) {
  for (size_t i = 0; i < weights.size(); ++i) {
    TORCH_CHECK(weights[i].sizes() == others[i].sizes(), "an update of a tensor ", weights[i].sizes(), " by one ",
                others[i].sizes());
  }
}

template <typename F>
bool guarded(char *message, size_t capacity, F &&body) {
  try {
    body();
    return true;
  } catch (const std::exception &error) {
    std::strncpy(message, error.what(), capacity - 1);
  } catch (...) {
    std::strncpy(message, "unknown C++ exception", capacity - 1);
  }
  message[capacity - 1] = '\0';
  return false;
}

using torch::autograd::variable_list;
using MaybeTensor = std::optional<at::Tensor>;

// For a weight with gaps between its rows oneDNN falls back on loops a thousand times slower.
at::Tensor dense(const at::Tensor &weight) {
  return weight.is_contiguous() || weight.t().is_contiguous() ? weight : weight.contiguous();
}

// x [.., in] times weight [out, in] transposed, plus bias [out]; f32 on the CPU. oneDNN's kernels are made
// for the processor at hand. MKL's, which libtorch takes otherwise, reach a tenth to a quarter less on
// processors that are not its maker's.
at::Tensor product(const at::Tensor &x, const at::Tensor &weight, const MaybeTensor &bias) {
  if (!at::globalContext().hasMKLDNN()) return at::linear(x, weight, bias);
  using Schema = at::Tensor(const at::Tensor &, const at::Tensor &, const MaybeTensor &, c10::string_view,
                            c10::List<std::optional<at::Scalar>>, std::optional<c10::string_view>);
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "").typed<Schema>();
  return op.call(x, dense(weight), bias, "none", c10::List<std::optional<at::Scalar>>(), "");
}

// Computes the gradients of `count` inputs from those of `given` outputs, null for those that have none: each an owned
// tensor or null for none. False, with a message, where it could not.
using Backward = bool (*)(void *state, at::Tensor *const *of_outputs, size_t given, at::Tensor **grads, size_t count,
                          char *message, size_t capacity);
using Release = void (*)(void *state);

// A function of Rust's. Its gradient is made once, as the state is used up by it, and has no derivative of its own.
struct FromRust final : torch::autograd::Node {
  const char *what;
  const char *advice;
  Backward backward;
  Release release;
  void *state;
  size_t inputs;

  FromRust(const char *what, const char *advice, Backward backward, Release release, void *state, size_t inputs)
      : what(what), advice(advice), backward(backward), release(release), state(state), inputs(inputs) {}

  ~FromRust() override { release_variables(); }

  std::string name() const override { return what; }

  variable_list apply(variable_list &&grads) override {
    TORCH_CHECK(state, what, " is differentiated once, and it was: ", advice);
    variable_list result(inputs);
    std::vector<at::Tensor *> given;
    for (auto &grad : grads) given.push_back(grad.defined() ? &grad : nullptr);
    if (std::all_of(given.begin(), given.end(), [](auto *grad) { return grad == nullptr; })) return result;
    {
      c10::NoGradGuard no_grad;
      std::vector<at::Tensor *> owned(inputs, nullptr);
      char message[1024] = "";
      const bool done =
          backward(state, given.data(), given.size(), owned.data(), inputs, message, sizeof message);
      for (size_t i = 0; i < inputs; ++i) {
        if (owned[i]) result[i] = *std::unique_ptr<at::Tensor>(owned[i]);
      }
      release_variables();
      TORCH_CHECK(done, message);
    }
    // Gradients are recorded here only where somebody wants to differentiate them (create_graph).
    if (c10::GradMode::is_enabled()) refuse_derivatives(result, grads);
    return result;
  }

  // What Rust has computed has no history, so libtorch would take it for constants and leave its derivatives out without
  // a word. It depends on the function's inputs and on `grads`: whoever differentiates it by one of them passes an error.
  // Whoever does not, as when another part of the graph is differentiated twice, never meets it.
  void refuse_derivatives(variable_list &gradients, const variable_list &grads) const {
    auto edges = next_edges();
    for (const auto &grad : grads) {
      if (grad.defined()) edges.push_back(torch::autograd::impl::gradient_edge(grad));
    }
    auto error = std::shared_ptr<torch::autograd::Error>(
        new torch::autograd::Error(
            std::string("the gradient of ") + what + " has no derivative: " + advice, std::move(edges)),
        torch::autograd::deleteNode);
    for (auto &gradient : gradients) {
      if (!gradient.defined()) continue;
      gradient = gradient.detach();  // it may be a tensor that has a history of its own
      torch::autograd::set_history(gradient, error);
    }
  }

  void release_variables() override {
    if (state) release(std::exchange(state, nullptr));
  }
};

// Whether operations of one kind of device are cast, and to what.
struct Casts {
  bool enabled;
  int32_t kind;
};

// What decides how operations are cast: libtorch's own state, of the thread.
struct Autocast {
  Casts cpu;
  Casts cuda;
  bool cached;
};

Casts casts_of(at::DeviceType device) {
  return {at::autocast::is_autocast_enabled(device), static_cast<int32_t>(at::autocast::get_autocast_dtype(device))};
}

void set_casts(at::DeviceType device, const Casts &casts) {
  at::autocast::set_autocast_enabled(device, casts.enabled);
  at::autocast::set_autocast_dtype(device, static_cast<at::ScalarType>(casts.kind));
}

// A stream in the numbers that libtorch gives it; by the registered implementation of its kind of device, so that nothing of CUDA is linked.
struct StreamNumbers {
  int64_t id;
  int64_t index;
  int64_t type;
};

StreamNumbers numbers(const c10::Stream &stream) {
  const auto packed = stream.pack3();
  return {packed.stream_id, packed.device_index, static_cast<int64_t>(packed.device_type)};
}

c10::Stream stream_of(const StreamNumbers &numbers) {
  return c10::Stream::unpack3(numbers.id, static_cast<c10::DeviceIndex>(numbers.index),
                              static_cast<c10::DeviceType>(numbers.type));
}

c10::Device device_of(int64_t type, int64_t index) {
  return {static_cast<c10::DeviceType>(type), static_cast<c10::DeviceIndex>(index)};
}

// Values of tensors on the processor, where libtorch wants them: `c10::gAlignment` bytes apart, in blocks of plain malloc. libtorch's own allocator
// has them from posix_memalign, for which glibc looks for room of the size and the alignment together, and then gives back what is over: no
// tensor fits where one of its size was freed. Between two steps of equal tensors that leaves a hole for nearly each. What is not here of libtorch's
// own: the count for its profiler, and THP_MEM_ALLOC_ENABLE.
struct Heap final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void *values = bytes == 0 ? nullptr : take(bytes);
    return {values, values, &give_back, c10::DeviceType::CPU};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }

  void copy_data(void *to, const void *from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static_assert(c10::gAlignment % alignof(std::max_align_t) == 0 && sizeof(void *) <= alignof(std::max_align_t));

  // What malloc gives is aligned less, so that the next multiple after it leaves room for where it begins.
  static void *take(size_t bytes) {
    const bool counted = bytes <= static_cast<size_t>(PTRDIFF_MAX) - c10::gAlignment;
    void *block = counted ? std::malloc(bytes + c10::gAlignment) : nullptr;
    TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "no memory for a tensor of ", bytes, " bytes");
    const auto begin = reinterpret_cast<uintptr_t>(block);
    auto values = reinterpret_cast<void **>((begin / c10::gAlignment + 1) * c10::gAlignment);
    values[-1] = block;
    return values;
  }

  static void give_back(void *values) {
    if (values != nullptr) std::free(static_cast<void **>(values)[-1]);
  }
};

}  // namespace

extern "C" {

// A stream beside the one that this thread uses.
bool segue_stream_beside(int64_t type, int64_t index, StreamNumbers *stream, char *message, size_t capacity) {
  return guarded(message, capacity, [&] {
    const auto device = device_of(type, index);
    *stream = numbers(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, /*isHighPriority=*/true));
  });
}

// Makes a stream, and its device, what this thread uses; *before is the stream it used.
bool segue_stream_enter(const StreamNumbers *stream, StreamNumbers *before, char *message, size_t capacity) {
  return guarded(message, capacity, [&] {
    const auto next = stream_of(*stream);
    const c10::impl::VirtualGuardImpl impl(next.device_type());
    impl.setDevice(next.device());
    *before = numbers(impl.exchangeStream(next));
  });
}

// The stream that this thread uses on a device.
bool segue_stream_current(int64_t type, int64_t index, StreamNumbers *stream, char *message, size_t capacity) {
  return guarded(message, capacity, [&] {
    const auto device = device_of(type, index);
    *stream = numbers(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  });
}

// Keeps the tensor's memory, once it is free, until the stream is through with what is queued on it by then.
bool segue_stream_keep(const StreamNumbers *stream, at::Tensor *tensor, char *message, size_t capacity) {
  return guarded(message, capacity, [&] {
    const auto of = stream_of(*stream);
    c10::impl::VirtualGuardImpl(of.device_type()).recordDataPtrOnStream(tensor->storage().data_ptr(), of);
  });
}

// A copy in memory that the accelerator of this process reads and writes by itself; owned by the caller. tch names the device, of which libtorch
// warns in each call.
bool segue_pinned(at::Tensor *tensor, at::Tensor **copy, char *message, size_t capacity) {
  return guarded(message, capacity, [&] { *copy = new at::Tensor(tensor->pin_memory()); });
}

// Copies behind what this thread has queued on the source's device, without waiting for it where the target is memory that the device writes by itself.
bool segue_copy_queued(at::Tensor *target, at::Tensor *source, char *message, size_t capacity) {
  return guarded(message, capacity, [&] {
    at::NoGradGuard no_grad;
    target->copy_(*source, /*non_blocking=*/true);
  });
}

// What the device's driver calls the stream.
bool segue_stream_native(const StreamNumbers *stream, void **native, char *message, size_t capacity) {
  return guarded(message, capacity, [&] { *native = stream_of(*stream).native_handle(); });
}

// A mark behind all that this thread has queued on a device so far; owned by the caller.
bool segue_event_now(int64_t type, int64_t index, c10::Event **event, char *message, size_t capacity) {
  return guarded(message, capacity, [&] {
    const auto device = device_of(type, index);
    auto made = std::make_unique<c10::Event>(device.type());
    made->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    *event = made.release();
  });
}

// Lets what comes on the stream wait for the mark.
bool segue_event_block(c10::Event *event, const StreamNumbers *stream, char *message, size_t capacity) {
  return guarded(message, capacity, [&] { event->block(stream_of(*stream)); });
}

bool segue_event_query(c10::Event *event, bool *passed, char *message, size_t capacity) {
  return guarded(message, capacity, [&] { *passed = event->query(); });
}

void segue_event_free(c10::Event *event) { delete event; }

// The most bytes that tensors on a device have taken at once, as the allocator that is registered for it counts them.
bool segue_peak_bytes(int64_t type, int64_t index, int64_t *bytes, char *message, size_t capacity) {
  return guarded(message, capacity, [&] {
    const auto device = device_of(type, index);
    auto *const allocator = dynamic_cast<c10::DeviceAllocator *>(c10::GetAllocator(device.type()));
    TORCH_CHECK(allocator, "the allocator for ", device.type(), " does not count what it gives");
    *bytes = allocator->getDeviceStats(device.index()).allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
  });
}

// x [.., in] times weight [out, in] transposed, plus bias [out] where it is not null, without a graph; f32
// on the CPU. The caller owns what is written to *y.
bool segue_linear(at::Tensor *x, at::Tensor *weight, at::Tensor *bias, at::Tensor **y, char *message,
                  size_t capacity) {
  return guarded(message, capacity, [&] {
    c10::NoGradGuard no_grad;
    *y = new at::Tensor(product(*x, *weight, bias ? MaybeTensor(*bias) : std::nullopt));
  });
}

// Makes the ys, which have no history, a function of the inputs: backward(state, ..) computes their gradients, at most
// once. release(state) is called once, when no gradient can be asked for any more. `what` names the function in errors,
// `advice` says what to do instead of differentiating twice; both live as long as the program.
bool segue_function(const char *what, const char *advice, at::Tensor *const *ys, size_t y_count,
                    at::Tensor *const *inputs, size_t count, Backward backward, Release release, void *state,
                    char *message, size_t capacity) {
  // Takes the state over, whatever happens.
  auto node = std::shared_ptr<FromRust>(
      new FromRust(what, advice, backward, release, state, count), torch::autograd::deleteNode);
  return guarded(message, capacity, [&] {
    const auto tensors = gather(inputs, count);
    if (!torch::autograd::compute_requires_grad(tensors)) return;
    node->set_next_edges(torch::autograd::collect_next_edges(tensors));
    for (size_t i = 0; i < y_count; ++i) torch::autograd::set_history(*ys[i], node);
  });
}

// The number that the next node of a graph gets that this thread makes.
uint64_t segue_next_node() { return at::sequence_number::peek(); }

// What tells tensors apart that are the same to autograd.
uintptr_t segue_identity(at::Tensor *tensor) { return reinterpret_cast<uintptr_t>(tensor->unsafeGetTensorImpl()); }

// Calls found(context, leaf) for each leaf that the ys depend on, once, with a tensor that the caller owns. An error
// where they depend on a node that was made before node `since`.
bool segue_leaves(at::Tensor *const *ys, size_t count, uint64_t since, void (*found)(void *context, at::Tensor *leaf),
                  void *context, char *message, size_t capacity) {
  using torch::autograd::Node;
  return guarded(message, capacity, [&] {
    std::vector<std::shared_ptr<Node>> open;
    std::unordered_set<Node *> known;
    const auto meet = [&](const torch::autograd::Edge &edge) {
      if (edge.function && known.insert(edge.function.get()).second) open.push_back(edge.function);
    };
    for (const auto &y : gather(ys, count)) meet(torch::autograd::impl::gradient_edge(y));
    while (!open.empty()) {
      const auto node = std::move(open.back());
      open.pop_back();
      if (const auto *leaf = dynamic_cast<torch::autograd::AccumulateGrad *>(node.get())) {
        found(context, new at::Tensor(leaf->variable));
        continue;
      }
      TORCH_CHECK(node->sequence_nr() >= since, "it depends on a tensor, made by ", node->name(),
                  ", that is not among its inputs");
      for (const auto &edge : node->next_edges()) meet(edge);
    }
  });
}

// Gradients of the inputs from those of the ys, through their graph, which is used up by it: owned tensors, or null for
// none. No leaf's .grad is touched, and no hook is called.
bool segue_gradients(at::Tensor *const *ys, at::Tensor *const *of_ys, size_t y_count, at::Tensor *const *inputs,
                     size_t count, at::Tensor **grads, char *message, size_t capacity) {
  return guarded(message, capacity, [&] {
    auto result = torch::autograd::grad(gather(ys, y_count), gather(inputs, count), gather(of_ys, y_count),
                                        /*retain_graph=*/false, /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0; i < count; ++i) {
      grads[i] = result[i].defined() ? new at::Tensor(std::move(result[i])) : nullptr;
    }
  });
}

void segue_autocast(Autocast *state) {
  *state = {casts_of(at::kCPU), casts_of(at::kCUDA), at::autocast::is_autocast_cache_enabled()};
}

void segue_set_autocast(const Autocast *state) {
  set_casts(at::kCPU, state->cpu);
  set_casts(at::kCUDA, state->cuda);
  at::autocast::set_autocast_cache_enabled(state->cached);
}

// Forgets the weights that were cast so far.
void segue_forget_casts() { at::autocast::clear_cache(); }

// c [m, n] (+)= a [m, k] times b [k, n]; rows lie `stride` values apart. One thread.
bool segue_product(size_t m, size_t n, size_t k, const float *a, size_t a_stride, const float *b,
                   size_t b_stride, float *c, size_t c_stride, bool add, char *message, size_t capacity) {
  return guarded(message, capacity, [&] {
    constexpr bool interleaved = false;
    at::native::cpublas::brgemm(m, n, k, a_stride, b_stride, c_stride, add, a, b, c, interleaved);
  });
}

// Calls callback(context, parameter) each time backward has finished accumulating into the leaf's .grad.
bool segue_on_grad_ready(at::Tensor *leaf, Callback callback, void *context, size_t parameter,
                         char *message, size_t capacity) {
  return guarded(message, capacity, [&] {
    torch::autograd::impl::set_post_acc_grad_hooks(
        *leaf, std::make_unique<GradReady>(callback, context, parameter));
  });
}

void segue_remove_grad_hook(at::Tensor *leaf) {
  char ignored[8];
  guarded(ignored, sizeof ignored,
          [&] { torch::autograd::impl::set_post_acc_grad_hooks(*leaf, nullptr); });
}

// Backward from a scalar into the gradients of these leaves alone, hooks included. Keeps the graph where another
// backward follows.
bool segue_backward_into(at::Tensor *scalar, at::Tensor *const *leaves, size_t count, bool keep_graph,
                         char *message, size_t capacity) {
  return guarded(message, capacity, [&] {
    torch::autograd::backward({*scalar}, {}, keep_graph, /*create_graph=*/false, gather(leaves, count));
  });
}

// Takes the gradient out of the leaf: the caller owns the returned tensor, and .grad is undefined
// again. Null where there is none.
at::Tensor *segue_take_grad(at::Tensor *leaf) {
  at::Tensor &grad = leaf->mutable_grad();
  return grad.defined() ? new at::Tensor(std::move(grad)) : nullptr;
}

// Whether this handle is the only one of the tensor, the tensor the only one of its storage, and the storage of its size.
bool segue_is_alone(at::Tensor *tensor) {
  return tensor->use_count() == 1 && tensor->has_storage() && tensor->storage().use_count() == 1 &&
         tensor->storage().nbytes() == tensor->nbytes();
}

// Copies each of `count` values to its target (how = 0), adds it (1), or moves the target to it by `share` of the way (2).
bool segue_put_each(size_t count, at::Tensor *const *targets, at::Tensor *const *values, int32_t how, double share,
                    char *message, size_t capacity) {
  return guarded(message, capacity, [&] {
    c10::NoGradGuard no_grad;
    const auto to = gather(targets, count), from = gather(values, count);
    switch (how) {
      case 0: return at::_foreach_copy_(to, from);
      case 1: return at::_foreach_add_(to, from);
      default: return at::_foreach_lerp_(to, from, share);
    }
  });
}

// One Adam (decoupled = false) or AdamW (true) update of `count` tensors. Gradients are divided by
// *grad_divisor first. steps[i] is a scalar tensor holding the update's number, counted from 1.
bool segue_adam(size_t count, at::Tensor *const *weights, at::Tensor *const *grads,
                at::Tensor *const *means, at::Tensor *const *squares, at::Tensor *const *steps,
                at::Tensor *grad_divisor, double lr, double beta1, double beta2, double weight_decay,
                double eps, bool decoupled, char *message, size_t capacity) {
  return guarded(message, capacity, [&] {
    c10::NoGradGuard no_grad;
    auto w = gather(weights, count), g = gather(grads, count), m = gather(means, count),
         v = gather(squares, count), s = gather(steps, count);
    for (const auto *others : {&g, &m, &v}) want_one_shape(w, *others);
    const std::vector<at::Tensor> no_maxima;
    constexpr bool amsgrad = false, maximize = false;
    if (decoupled) {
      at::_fused_adamw_(w, g, m, v, no_maxima, s, lr, beta1, beta2, weight_decay, eps, amsgrad, maximize,
                        *grad_divisor, std::nullopt);
    } else {
      at::_fused_adam_(w, g, m, v, no_maxima, s, lr, beta1, beta2, weight_decay, eps, amsgrad, maximize,
                       *grad_divisor, std::nullopt);
    }
  });
}

// One step of gradient descent without momentum of `count` tensors. Gradients are divided by *grad_divisor first,
// unless that is null.
bool segue_sgd(size_t count, at::Tensor *const *weights, at::Tensor *const *grads, at::Tensor *grad_divisor,
               double lr, double weight_decay, char *message, size_t capacity) {
  return guarded(message, capacity, [&] {
    c10::NoGradGuard no_grad;
    auto w = gather(weights, count), g = gather(grads, count);
    want_one_shape(w, g);
    const std::vector<at::Tensor> no_buffers;
    constexpr double momentum = 0, dampening = 0;
    constexpr bool nesterov = false, maximize = false, is_first_step = true;
    const auto divisor = grad_divisor ? std::optional<at::Tensor>(*grad_divisor) : std::nullopt;
    at::_fused_sgd_(w, g, no_buffers, weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step,
                    divisor, std::nullopt);
  });
}

// The library's version, and the instructions that its own kernels use here.
void segue_library(char *text, size_t capacity) {
  const std::string found = std::string(TORCH_VERSION) + " with " + at::get_cpu_capability();
  std::strncpy(text, found.c_str(), capacity - 1);
  text[capacity - 1] = 0;
}

// Has the values of tensors on the processor from `Heap` from now on.
void segue_use_heap() {
  // Never destroyed: tensors may outlive the end of main.
  static Heap *const heap = new Heap;
  c10::SetCPUAllocator(heap);
}

void segue_allow_tf32(bool allowed) {
  at::globalContext().setAllowTF32CuBLAS(allowed);
  at::globalContext().setAllowTF32CuDNN(allowed);
}

// The file of the libtorch_cpu that is in use; empty where the loader does not tell.
void segue_library_file(char *text, size_t capacity) {
  Dl_info info;
  const auto somewhere_in_it = reinterpret_cast<const void *>(&at::get_cpu_capability);
  const bool found = dladdr(somewhere_in_it, &info) != 0 && info.dli_fname != nullptr;
  std::strncpy(text, found ? info.dli_fname : "", capacity - 1);
  text[capacity - 1] = 0;
}

}  // extern "C"
