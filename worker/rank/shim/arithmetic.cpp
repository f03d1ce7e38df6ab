// In-place operations with a scale factor, outside autograd.

#include "guard.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

Status shim_add_scaled(const at::Tensor *tensor, const at::Tensor *other, double scale) {
  return guarded([&] {
    const c10::AutoGradMode no_grad(false);
    tensor->add_(*other, scale);
  });
}

Status shim_add_product(const at::Tensor *tensor, const at::Tensor *first, const at::Tensor *second,
                        double scale) {
  return guarded([&] {
    const c10::AutoGradMode no_grad(false);
    tensor->addcmul_(*first, *second, scale);
  });
}

Status shim_add_quotient(const at::Tensor *tensor, const at::Tensor *first, const at::Tensor *second,
                         double scale) {
  return guarded([&] {
    const c10::AutoGradMode no_grad(false);
    tensor->addcdiv_(*first, *second, scale);
  });
}
