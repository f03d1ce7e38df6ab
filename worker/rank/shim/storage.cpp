// The memory behind tensors: finding what autograd saves, and taking memory from a storage or giving it new one while
// every tensor, view and saved variable of it stays what it is.

#include "guard.h"
#include "recorder.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <utility>
#include <vector>

struct WeakStorage {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
};

struct HeldStorage {
  c10::intrusive_ptr<c10::StorageImpl> storage;
};

namespace {

// Where the rank has what it computes with.
std::atomic<c10::DeviceType> computing_on{c10::DeviceType::CPU};

// What was saved since finding began, each storage once. A weak reference keeps the address from being used again, so
// it tells storages apart.
struct Found {
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages;
  std::unordered_set<const c10::StorageImpl *> seen;

  void note(const at::Tensor &tensor) {
    if (tensor.has_storage() && tensor.device().type() == computing_on.load() &&
        seen.insert(tensor.storage().unsafeGetStorageImpl()).second) {
      storages.push_back(tensor.storage().getWeakStorageImpl());
    }
  }
};

// Of this thread's forward passes, while they are looked at.
thread_local std::unique_ptr<Found> found;

// Keeps a saved tensor as autograd does itself: its memory, not its place in the graph, which would be a cycle.
class Keeper final : public torch::autograd::SavedVariableHooks {
public:
  void call_pack_hook(const at::Tensor &tensor) override {
    kept = tensor.variable_data();
    if (found) {
      found->note(tensor);
    }
  }

  at::Tensor call_unpack_hook() override { return kept; }

private:
  at::Tensor kept;
};

class FindingEngine final : public torch::autograd::Engine {
public:
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return found ? std::make_unique<Keeper>() : nullptr;
  }
};

torch::autograd::Engine &finding_engine() {
  // Never destroyed, as libtorch's own.
  static auto *engine = new FindingEngine;
  return *engine;
}

// Addresses at which nothing may be read or written: what is touched while it is away ends the process, and is never
// mistaken for what it was.
void *nowhere(uint64_t bytes) {
  static std::mutex mutex;
  static void *start = nullptr;
  static uint64_t length = 0;
  const std::lock_guard<std::mutex> lock(mutex);
  if (length < bytes) {
    const uint64_t wanted = std::max(bytes, uint64_t{1} << 30);
    // Costs addresses alone. What was there before stays: storages point at it.
    void *fresh = mmap(nullptr, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(fresh != MAP_FAILED, "cannot set ", wanted, " addresses aside");
    start = fresh;
    length = wanted;
  }
  return start;
}

} // namespace

Status shim_prepare_to_find(bool on_cuda) {
  return guarded([&] {
    computing_on.store(on_cuda ? c10::DeviceType::CUDA : c10::DeviceType::CPU);
    torch::autograd::set_default_engine_stub(finding_engine);
  });
}

Status shim_find_begin() {
  return guarded([] { found = std::make_unique<Found>(); });
}

Status shim_find_offer(const at::Tensor *tensor) {
  return guarded([&] {
    if (found) {
      found->note(*tensor);
    }
  });
}

uint64_t shim_find_count() { return found ? found->storages.size() : 0; }

WeakStorage *shim_find_take(uint64_t index) {
  if (!found || index >= found->storages.size()) {
    return nullptr;
  }
  return new WeakStorage{std::move(found->storages[index])};
}

void shim_find_end() { found.reset(); }

Status shim_storage_of(const at::Tensor *tensor, WeakStorage **weak) {
  return guarded([&] { *weak = new WeakStorage{tensor->storage().getWeakStorageImpl()}; });
}

void shim_storage_free(WeakStorage *weak) { delete weak; }

uint64_t shim_storage_id(const WeakStorage *weak) {
  return reinterpret_cast<uint64_t>(weak->storage._unsafe_get_target());
}

HeldStorage *shim_storage_hold(const WeakStorage *weak) {
  auto storage = weak->storage.lock();
  return storage ? new HeldStorage{std::move(storage)} : nullptr;
}

void shim_held_free(HeldStorage *held) { delete held; }

uint64_t shim_held_bytes(const HeldStorage *held) { return held->storage->nbytes(); }

uint64_t shim_held_tensors(const HeldStorage *held) { return held->storage.use_count() - 1; }

void *shim_held_data(const HeldStorage *held) { return held->storage->_mutable_data_ptr_no_checks().get(); }

bool shim_held_is_on_host(const HeldStorage *held) { return held->storage->device_type() == c10::DeviceType::CPU; }

Status shim_held_give_back(HeldStorage *held) {
  return guarded([&] {
    void *data = nowhere(held->storage->nbytes());
    held->storage->set_data_ptr_noswap(c10::DataPtr(data, held->storage->device()));
  });
}

Status shim_held_renew(HeldStorage *held) {
  return guarded([&] {
    c10::Allocator *allocator = c10::GetAllocator(held->storage->device_type());
    held->storage->set_data_ptr_noswap(allocator->allocate(held->storage->nbytes()));
  });
}

Status shim_tape_saved() {
  return guarded([] {
    if (!found) {
      return;
    }
    for (const auto &weak : found->storages) {
      if (const auto storage = weak.lock()) {
        recorder::remarked(TAPE_SAVED, storage->data());
      }
    }
  });
}
