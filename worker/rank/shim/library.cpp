// Which libtorch is loaded, and its CUDA half.

#include "guard.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/cuda.h>
#include <torch/headeronly/version.h>

#include <dlfcn.h>
#include <unistd.h>

namespace {

thread_local std::string last_error;

// The upper three bytes of an ABI version are major, minor and patch.
uint32_t without_tag(uint64_t abi_version) { return static_cast<uint32_t>(abi_version >> 40); }

} // namespace

void remember_error(const std::string &message) noexcept {
  try {
    last_error = message;
  } catch (...) {
    last_error.clear();
  }
}

const char *shim_last_error() { return last_error.c_str(); }

uint32_t shim_version_loaded() { return without_tag(aoti_torch_abi_version()); }

uint32_t shim_version_compiled() { return without_tag(TORCH_ABI_VERSION); }

void shim_end(int32_t exit_code) { _exit(exit_code); }

Status shim_load_cuda() {
  return guarded([] {
    // A plain name, so that the loader's search path decides. It is never closed: libtorch keeps
    // pointers into it.
    if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      throw std::runtime_error(dlerror());
    }
  });
}

Status shim_open_cuda(int32_t device) {
  return guarded([&] {
    const auto devices = static_cast<int32_t>(torch::cuda::device_count());
    TORCH_CHECK(device >= 0 && device < devices, "there is no CUDA device ", device, ", libtorch finds ",
                devices);
    // The allocator has no statistics of a device, and no limit for it, until this has run.
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    const c10::Device chosen(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
    c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).setDevice(chosen);
  });
}

Status shim_synchronize(int32_t device) {
  return guarded([&] { torch::cuda::synchronize(device); });
}
