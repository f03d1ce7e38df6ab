// Autograd operators whose passes are written in Rust, and bytes from host memory into a tensor.

#include "guard.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace {

// A point of the graph whose backward pass is a closure: called once at most, and freed in any case.
class Operator final : public torch::autograd::Node {
public:
  Operator(bool changes, void *closure, RunClosure run, ForgetClosure forget)
      : changes(changes), closure(closure), run(run), forget(forget) {}

  ~Operator() override { release_variables(); }

  void release_variables() override {
    if (void *left = std::exchange(closure, nullptr)) {
      forget(left);
    }
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list &&gradients) override {
    void *once = std::exchange(closure, nullptr);
    TORCH_CHECK(once != nullptr, "a second backward pass through an operator that keeps nothing for it");
    at::Tensor gradient = std::move(gradients.at(0));
    if (!gradient.defined()) {
      forget(once);
      return {at::Tensor()};
    }
    // What is changed in place must not be seen through another tensor.
    const bool is_seen = changes && (gradient.use_count() > 1 || gradient.storage().use_count() > 1);
    if (is_seen || !gradient.is_contiguous() || gradient.storage_offset() != 0) {
      gradient = gradient.clone(at::MemoryFormat::Contiguous);
    }
    const std::unique_ptr<at::Tensor> result(run(once, new at::Tensor(std::move(gradient))));
    TORCH_CHECK(result != nullptr, "the backward pass of an operator failed");
    return {std::move(*result)};
  }

private:
  bool changes;
  void *closure;
  RunClosure run;
  ForgetClosure forget;
};

} // namespace

Status shim_with_backward(const at::Tensor *input, const at::Tensor *output, bool changes, void *closure,
                          RunClosure run, ForgetClosure forget, at::Tensor **result) {
  return guarded([&] {
    const auto node = std::make_shared<Operator>(changes, closure, run, forget);
    at::Tensor alias = output->variable_data();
    if (c10::GradMode::is_enabled() && input->requires_grad()) {
      node->set_next_edges(torch::autograd::collect_next_edges(*input));
      torch::autograd::create_gradient_edge(alias, node);
    }
    *result = new at::Tensor(std::move(alias));
  });
}

Status shim_fill(const at::Tensor *tensor, const void *bytes, uint64_t count) {
  return guarded([&] {
    const c10::AutoGradMode no_grad(false);
    TORCH_CHECK(count == tensor->nbytes(), "a tensor of ", tensor->nbytes(), " bytes cannot hold ", count);
    // Not written to: from_blob knows no other pointers.
    void *data = const_cast<void *>(bytes);
    tensor->copy_(at::from_blob(data, tensor->sizes(), at::TensorOptions().dtype(tensor->scalar_type())));
  });
}
