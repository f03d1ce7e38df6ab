// In-place operations with a scale factor, outside autograd.

#include "guard.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

Status shim_multiply(const at::Tensor *tensor, double factor) {
  return guarded([&] {
    const c10::AutoGradMode no_grad(false);
    tensor->mul_(factor);
  });
}

Status shim_add_number(const at::Tensor *tensor, double number) {
  return guarded([&] {
    const c10::AutoGradMode no_grad(false);
    tensor->add_(number);
  });
}

Status shim_divide(const at::Tensor *tensor, double divisor) {
  return guarded([&] {
    const c10::AutoGradMode no_grad(false);
    tensor->div_(divisor);
  });
}

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
