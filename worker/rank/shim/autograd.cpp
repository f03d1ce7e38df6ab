// Backward passes: from a point of the graph, with a gradient, and with news on the way.

#include "guard.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

struct GradientRoot {
  torch::autograd::Edge edge;
};

Status shim_root_of(const at::Tensor *output, GradientRoot **root) {
  return guarded([&] {
    TORCH_CHECK(output->requires_grad(), "a backward pass cannot start where nothing is trained");
    *root = new GradientRoot{torch::autograd::impl::gradient_edge(*output)};
  });
}

void shim_root_free(GradientRoot *root) { delete root; }

Status shim_root_backward(GradientRoot *root, const at::Tensor *gradient) {
  // What torch::autograd::backward does, without the output tensor.
  return guarded([&] {
    torch::autograd::Engine::get_default_engine().execute({root->edge}, {*gradient}, /*keep_graph=*/false,
                                                          /*create_graph=*/false, /*accumulate_grad=*/true);
  });
}

Status shim_on_gradient(const at::Tensor *tensor, void (*callback)(uint64_t), uint64_t argument) {
  return guarded(
      [&] { tensor->register_hook([callback, argument](const at::Tensor &) { callback(argument); }); });
}

Status shim_clear_gradient(const at::Tensor *leaf) {
  return guarded([&] { leaf->mutable_grad().reset(); });
}
