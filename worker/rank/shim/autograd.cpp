// Backward passes: from a point of the graph, with a gradient, and with news on the way.

#include "guard.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

struct GradientRoot {
  torch::autograd::edge_list edges;
};

Status shim_root_of(const at::Tensor *const *outputs, uint64_t count, GradientRoot **root) {
  return guarded([&] {
    torch::autograd::edge_list edges;
    for (uint64_t index = 0; index < count; ++index) {
      TORCH_CHECK(outputs[index]->requires_grad(), "a backward pass cannot start where nothing is trained");
      edges.push_back(torch::autograd::impl::gradient_edge(*outputs[index]));
    }
    *root = new GradientRoot{std::move(edges)};
  });
}

void shim_root_free(GradientRoot *root) { delete root; }

Status shim_root_backward(GradientRoot *root, const at::Tensor *const *gradients, uint64_t count) {
  // What torch::autograd::backward does, without the output tensors.
  return guarded([&] {
    torch::autograd::variable_list given;
    for (uint64_t index = 0; index < count; ++index) {
      given.push_back(*gradients[index]);
    }
    torch::autograd::Engine::get_default_engine().execute(root->edges, given, /*keep_graph=*/false,
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
