// Backward passes: from a point of the graph, with a gradient, and with news on the way.

#include "guard.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>

namespace {

// Where a backward pass starts: gives its gradients away instead of keeping them for the whole pass.
class Giver final : public torch::autograd::Node {
public:
  // The engine wants an input and reads the stream of the device from it; it holds nothing.
  Giver(torch::autograd::edge_list edges, torch::autograd::variable_list gradients, const at::Tensor &input)
      : Node(std::move(edges)), given(std::move(gradients)) {
    add_input_metadata(input);
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list &&) override { return std::move(given); }

private:
  torch::autograd::variable_list given;
};

// Where a backward pass ends.
class Catcher final : public torch::autograd::Node {
public:
  torch::autograd::variable_list apply(torch::autograd::variable_list &&gradients) override {
    caught = std::move(gradients.at(0));
    return {};
  }

  at::Tensor caught;
};

} // namespace

struct MainGradient {
  // Shared with the hooks of its leaves.
  std::shared_ptr<at::Tensor> sum = std::make_shared<at::Tensor>();
};

namespace {

// Runs when autograd has stored a leaf's gradient, and takes it away.
class AddToMain final : public torch::autograd::PostAccumulateGradHook {
public:
  explicit AddToMain(std::shared_ptr<at::Tensor> main) : sum(std::move(main)) {}

  void operator()(const torch::autograd::Variable &leaf) override {
    const at::NoGradGuard no_grad;
    at::Tensor gradient = std::move(leaf.mutable_grad());
    leaf.mutable_grad().reset();
    if (sum->defined()) {
      sum->add_(gradient);
    } else {
      *sum = gradient.to(at::kFloat);
    }
  }

private:
  std::shared_ptr<at::Tensor> sum;
};

} // namespace

struct GradientRoot {
  torch::autograd::edge_list edges;
};

struct GradientCatch {
  std::vector<std::shared_ptr<Catcher>> catchers;
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

Status shim_root_backward(GradientRoot *root, at::Tensor *const *gradients, uint64_t count) {
  // What torch::autograd::backward does, but for who holds the gradients.
  return guarded([&] {
    torch::autograd::variable_list given;
    for (uint64_t index = 0; index < count; ++index) {
      given.push_back(std::move(*gradients[index]));
    }
    const at::Tensor input = at::empty({0}, given.at(0).options());
    const auto giver = std::make_shared<Giver>(std::move(root->edges), std::move(given), input);
    root->edges.clear();
    torch::autograd::Engine::get_default_engine().execute({{giver, 0}}, {input}, /*keep_graph=*/false,
                                                          /*create_graph=*/false, /*accumulate_grad=*/true);
  });
}

Status shim_catch_of(const at::Tensor *const *inputs, uint64_t count, at::Tensor **aliases,
                     GradientCatch **caught) {
  return guarded([&] {
    auto made = std::make_unique<GradientCatch>();
    std::vector<std::unique_ptr<at::Tensor>> tensors;
    for (uint64_t index = 0; index < count; ++index) {
      // A node for each: in a longer chain they come from different layers too.
      auto catcher = std::make_shared<Catcher>();
      auto alias = std::make_unique<at::Tensor>(inputs[index]->variable_data());
      torch::autograd::create_gradient_edge(*alias, catcher);
      made->catchers.push_back(std::move(catcher));
      tensors.push_back(std::move(alias));
    }
    for (uint64_t index = 0; index < count; ++index) {
      aliases[index] = tensors[index].release();
    }
    *caught = made.release();
  });
}

void shim_catch_free(GradientCatch *caught) { delete caught; }

at::Tensor *shim_catch_take(GradientCatch *caught, uint64_t index) {
  if (index >= caught->catchers.size() || !caught->catchers[index]->caught.defined()) {
    return nullptr;
  }
  return new at::Tensor(std::move(caught->catchers[index]->caught));
}

Status shim_on_gradient(const at::Tensor *tensor, void *closure, bool (*run)(void *closure),
                        void (*forget)(void *closure)) {
  return guarded([&] {
    const std::shared_ptr<void> owned(closure, forget);
    tensor->register_hook([owned, run](const at::Tensor &) {
      TORCH_CHECK(run(owned.get()), "what must be done between two layers failed");
    });
  });
}

Status shim_clear_gradient(const at::Tensor *leaf) {
  return guarded([&] { leaf->mutable_grad().reset(); });
}

Status shim_set_gradient(const at::Tensor *leaf, const at::Tensor *gradient) {
  return guarded([&] { leaf->mutable_grad() = *gradient; });
}

MainGradient *shim_main_gradient_new() { return new MainGradient(); }

MainGradient *shim_main_gradient_share(const MainGradient *main) { return new MainGradient(*main); }

void shim_main_gradient_free(MainGradient *main) { delete main; }

Status shim_main_gradient_of(const MainGradient *main, const at::Tensor *leaf) {
  return guarded([&] {
    torch::autograd::impl::set_post_acc_grad_hooks(*leaf, std::make_unique<AddToMain>(main->sum));
  });
}

at::Tensor *shim_main_gradient_get(const MainGradient *main) {
  return main->sum->defined() ? new at::Tensor(*main->sum) : nullptr;
}

void shim_main_gradient_clear(MainGradient *main) { main->sum->reset(); }
