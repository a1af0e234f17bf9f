// What tch does not bind: a hook that fires when a parameter's gradient is complete, the fused Adam
// update, oneDNN's products, and functions that know their slope. Every function that can fail catches:
// no exception may cross into Rust.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
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

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using MaybeTensor = std::optional<at::Tensor>;

// oneDNN's kernels are made for the processor at hand. MKL's, which libtorch takes otherwise, reach a
// tenth to a quarter less on processors that are not its maker's.
bool has_onednn_product(const at::Tensor &x) {
  return x.device().is_cpu() && x.scalar_type() == at::kFloat && at::globalContext().hasMKLDNN();
}

// For a weight with gaps between its rows oneDNN falls back on loops a thousand times slower.
at::Tensor dense(const at::Tensor &weight) {
  return weight.is_contiguous() || weight.t().is_contiguous() ? weight : weight.contiguous();
}

// x [.., in] times weight [out, in] transposed, plus bias [out].
at::Tensor product(const at::Tensor &x, const at::Tensor &weight, const MaybeTensor &bias) {
  using Schema = at::Tensor(const at::Tensor &, const at::Tensor &, const MaybeTensor &, c10::string_view,
                            c10::List<std::optional<at::Scalar>>, std::optional<c10::string_view>);
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "").typed<Schema>();
  return op.call(x, dense(weight), bias, "none", c10::List<std::optional<at::Scalar>>(), "");
}

struct Linear final : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext *context, const at::Tensor &x, const at::Tensor &weight,
                            const MaybeTensor &bias) {
    context->save_for_backward({x, weight});
    context->saved_data["biased"] = bias.has_value();
    return product(x, weight, bias);
  }

  static variable_list backward(AutogradContext *context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1];
    const auto grad = grads[0].contiguous();
    const auto rows = grad.reshape({-1, grad.size(-1)});
    at::Tensor for_x, for_weight, for_bias;
    if (context->needs_input_grad(0)) for_x = product(grad, weight.t(), std::nullopt);
    if (context->needs_input_grad(1)) for_weight = rows.t().mm(x.reshape({-1, x.size(-1)}));
    // A bias that is not there has no place among the inputs.
    if (context->saved_data["biased"].toBool() && context->needs_input_grad(2)) for_bias = rows.sum(0);
    return {for_x, for_weight, for_bias};
  }
};

struct WithSlope final : torch::autograd::Function<WithSlope> {
  static at::Tensor forward(AutogradContext *context, const at::Tensor &, const at::Tensor &y,
                            const at::Tensor &slope) {
    context->save_for_backward({slope});
    return y.alias();
  }

  static variable_list backward(AutogradContext *context, variable_list grads) {
    return {grads[0] * context->get_saved_variables()[0], at::Tensor(), at::Tensor()};
  }
};

}  // namespace

extern "C" {

// x [.., in] times weight [out, in] transposed, plus bias [out] where it is not null. The caller owns
// what is written to *y.
bool segue_linear(at::Tensor *x, at::Tensor *weight, at::Tensor *bias, at::Tensor **y, char *message,
                  size_t capacity) {
  return guarded(message, capacity, [&] {
    const MaybeTensor maybe_bias = bias ? MaybeTensor(*bias) : std::nullopt;
    *y = new at::Tensor(has_onednn_product(*x) ? Linear::apply(*x, *weight, maybe_bias)
                                               : at::linear(*x, *weight, maybe_bias));
  });
}

// y as a function of x whose derivative at each place is slope; all of one shape. The caller owns what
// is written to *result.
bool segue_with_slope(at::Tensor *x, at::Tensor *y, at::Tensor *slope, at::Tensor **result, char *message,
                      size_t capacity) {
  return guarded(message, capacity, [&] { *result = new at::Tensor(WithSlope::apply(*x, *y, *slope)); });
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
