// What tch does not bind: a hook that fires when a parameter's gradient is complete, and the fused
// Adam update. Every function catches: no exception may cross into Rust.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cstring>
#include <memory>
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

}  // namespace

extern "C" {

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

}  // extern "C"
