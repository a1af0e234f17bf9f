// What tch does not bind: a hook that fires when a parameter's gradient is complete, the fused Adam
// update, oneDNN's products, and functions whose gradient Rust computes. Every function that can fail
// catches: no exception may cross into Rust.
#include <ATen/ATen.h>
#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUBlas.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <dlfcn.h>

#include <cstring>
#include <memory>
#include <string>
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

// Computes the gradients of `count` inputs from that of the output, each an owned tensor or null for
// none. False, with a message, where it could not.
using Backward = bool (*)(void *state, at::Tensor *grad, at::Tensor **grads, size_t count, char *message,
                          size_t capacity);
using Release = void (*)(void *state);

// A function of Rust's. Its gradient is made once, as the state is used up by it, and has no derivative of its own.
struct FromRust final : torch::autograd::Node {
  const char *what;
  Backward backward;
  Release release;
  void *state;
  size_t inputs;

  FromRust(const char *what, Backward backward, Release release, void *state, size_t inputs)
      : what(what), backward(backward), release(release), state(state), inputs(inputs) {}

  ~FromRust() override { release_variables(); }

  std::string name() const override { return what; }

  variable_list apply(variable_list &&grads) override {
    TORCH_CHECK(state, what, " is differentiated once, and it was: ", ADVICE);
    variable_list result(inputs);
    if (!grads[0].defined()) return result;
    {
      c10::NoGradGuard no_grad;
      std::vector<at::Tensor *> owned(inputs, nullptr);
      char message[1024] = "";
      const bool done = backward(state, &grads[0], owned.data(), inputs, message, sizeof message);
      for (size_t i = 0; i < inputs; ++i) {
        if (owned[i]) result[i] = *std::unique_ptr<at::Tensor>(owned[i]);
      }
      release_variables();
      TORCH_CHECK(done, message);
    }
    // Gradients are recorded here only where somebody wants to differentiate them (create_graph).
    if (c10::GradMode::is_enabled()) refuse_derivatives(result, grads[0]);
    return result;
  }

  // What Rust has computed has no history, so libtorch would take it for constants and leave its derivatives out without
  // a word. It depends on the function's inputs and on `grad`: whoever differentiates it by one of them passes an error.
  // Whoever does not, as when another part of the graph is differentiated twice, never meets it.
  void refuse_derivatives(variable_list &gradients, const at::Tensor &grad) const {
    auto edges = next_edges();
    edges.push_back(torch::autograd::impl::gradient_edge(grad));
    auto error = std::shared_ptr<torch::autograd::Error>(
        new torch::autograd::Error(
            std::string("the gradient of ") + what + " has no derivative: " + ADVICE, std::move(edges)),
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

  static constexpr const char *ADVICE =
      "it is computed by Segue, not by libtorch; layers with Kernels::Plain can be differentiated any number of times";
};

}  // namespace

extern "C" {

// x [.., in] times weight [out, in] transposed, plus bias [out] where it is not null, without a graph; f32
// on the CPU. The caller owns what is written to *y.
bool segue_linear(at::Tensor *x, at::Tensor *weight, at::Tensor *bias, at::Tensor **y, char *message,
                  size_t capacity) {
  return guarded(message, capacity, [&] {
    c10::NoGradGuard no_grad;
    *y = new at::Tensor(product(*x, *weight, bias ? MaybeTensor(*bias) : std::nullopt));
  });
}

// Makes y, which has no history, a function of the inputs: backward(state, ..) computes their gradients, at most once.
// release(state) is called once, when no gradient can be asked for any more. `what` names the function in errors and
// lives as long as the program.
bool segue_function(const char *what, at::Tensor *y, at::Tensor *const *inputs, size_t count, Backward backward,
                    Release release, void *state, char *message, size_t capacity) {
  // Takes the state over, whatever happens.
  auto node = std::shared_ptr<FromRust>(new FromRust(what, backward, release, state, count), torch::autograd::deleteNode);
  return guarded(message, capacity, [&] {
    const auto tensors = gather(inputs, count);
    if (!torch::autograd::compute_requires_grad(tensors)) return;
    node->set_next_edges(torch::autograd::collect_next_edges(tensors));
    torch::autograd::set_history(*y, node);
  });
}

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

// The library's version, and the instructions that its own kernels use here.
void segue_library(char *text, size_t capacity) {
  const std::string found = std::string(TORCH_VERSION) + " with " + at::get_cpu_capability();
  std::strncpy(text, found.c_str(), capacity - 1);
  text[capacity - 1] = 0;
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
