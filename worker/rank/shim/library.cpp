// Which libtorch is loaded, and its CUDA half.

#include "guard.h"

#include <ATen/Context.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/cuda.h>
#include <torch/headeronly/version.h>

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <sstream>

namespace {

thread_local std::string last_error;

// The upper three bytes of an ABI version are major, minor and patch.
uint32_t without_tag(uint64_t abi_version) { return static_cast<uint32_t>(abi_version >> 40); }

// The allocator's settings with its limit set to a number of bytes. It knows only a share of the device,
// and multiplies it by the size that libtorch sees, which is less than what the driver's tools say.
std::string limited(std::string settings, uint64_t capacity, size_t total) {
  // Half a byte more, because the product is cut to whole bytes: the last block that fits may need all.
  const double share = (static_cast<double>(capacity) + 0.5) / static_cast<double>(total);
  // A comma at the end is accepted of a user, but not one before another setting.
  settings.erase(settings.find_last_not_of(", ") + 1);
  std::ostringstream text;
  text.precision(std::numeric_limits<double>::max_digits10);
  text << settings << (settings.empty() ? "" : ",") << "per_process_memory_fraction:" << std::min(share, 1.0);
  return text.str();
}

// Where the libtorch in use really lies. What the program is linked with may be links to all of it but its
// CUDA half, which would be linked too if it were among them.
std::filesystem::path libtorch_folder() {
  Dl_info found{};
  if (dladdr(reinterpret_cast<const void *>(&at::globalContext), &found) == 0) {
    return {};
  }
  return std::filesystem::canonical(found.dli_fname).parent_path();
}

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
    // A plain name first, so that the loader's search path decides. It is never closed: libtorch keeps
    // pointers into it.
    if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) != nullptr) {
      return;
    }
    const std::string error = dlerror();
    const auto beside = libtorch_folder() / "libtorch_cuda.so";
    if (!std::filesystem::exists(beside)) {
      throw std::runtime_error(error);
    }
    if (dlopen(beside.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      throw std::runtime_error(dlerror());
    }
  });
}

Status shim_open_cuda(int32_t device, uint64_t capacity) {
  return guarded([&] {
    const auto devices = static_cast<int32_t>(torch::cuda::device_count());
    TORCH_CHECK(device >= 0 && device < devices, "there is no CUDA device ", device, ", libtorch finds ",
                devices);
    const c10::Device chosen(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
    const size_t total = c10::getDeviceAllocator(c10::DeviceType::CUDA)->getMemoryInfo(chosen.index()).second;
    // Settings that are not named again go back to their defaults.
    c10::CachingAllocator::setAllocatorSettings(
        limited(c10::CachingAllocator::getAllocatorSettings(), capacity, total));
    // The allocator reads its limit, and begins its statistics, in here.
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).setDevice(chosen);
  });
}

Status shim_synchronize(int32_t device) {
  return guarded([&] {
    const c10::Device computing(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
    c10::Stream(c10::Stream::DEFAULT, computing).synchronize();
  });
}
