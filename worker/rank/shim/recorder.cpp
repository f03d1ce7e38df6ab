// Every allocation and free, in order, with remarks of the rank between them.

#include "guard.h"
#include "recorder.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace {

// An iteration of one layer has some thousand; more is a defect that must not eat the host's memory.
constexpr size_t MAX_ENTRIES = size_t{1} << 22;

std::atomic<bool> recording{false};
std::atomic<bool> communicating{false};
std::mutex mutex;
std::vector<TapeEntry> entries;
bool overflow = false;

void append(const TapeEntry &entry) noexcept {
  const std::lock_guard<std::mutex> lock(mutex);
  if (entries.size() >= MAX_ENTRIES) {
    overflow = true;
    return;
  }
  try {
    entries.push_back(entry);
  } catch (...) {
    overflow = true;
  }
}

// How libtorch's CUDA allocator tells of every block, and the autograd engine passes it on to its threads.
class Listener final : public c10::MemoryReportingInfoBase {
public:
  void reportMemoryUsage(void *address, int64_t bytes, size_t, size_t, c10::Device device) override {
    if (!recording.load() || device.type() != c10::DeviceType::CUDA) {
      return;
    }
    if (bytes >= 0) {
      recorder::allocated(address, static_cast<uint64_t>(bytes));
    } else {
      recorder::freed(address);
    }
  }

  bool memoryProfilingEnabled() const override { return recording.load(); }
};

bool listening = false;

} // namespace

bool recorder::is_on() noexcept { return recording.load(std::memory_order_relaxed); }

void recorder::allocated(const void *address, uint64_t bytes) noexcept {
  const uint32_t code = communicating.load() ? 1 : 0;
  append({TAPE_ALLOCATED, code, reinterpret_cast<uint64_t>(address), bytes});
}

void recorder::freed(const void *address) noexcept {
  append({TAPE_FREED, 0, reinterpret_cast<uint64_t>(address), 0});
}

void recorder::remarked(uint32_t kind, const void *address) noexcept {
  if (is_on()) {
    append({kind, 0, reinterpret_cast<uint64_t>(address), 0});
  }
}

Status shim_tape_begin() {
  return guarded([] {
    if (!listening) {
      // For the rest of the thread's life: it says nothing while nothing is recorded.
      c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Listener>());
      listening = true;
    }
    const std::lock_guard<std::mutex> lock(mutex);
    entries.clear();
    overflow = false;
    recording.store(true);
  });
}

void shim_tape_communication(bool on) { communicating.store(on); }

void shim_tape_remark(uint32_t code) {
  if (recorder::is_on()) {
    append({TAPE_REMARK, code, 0, 0});
  }
}

Status shim_tape_edge(const at::Tensor *tensor, uint32_t code) {
  return guarded([&] {
    const auto address = reinterpret_cast<uint64_t>(tensor->storage().data());
    append({TAPE_EDGE, code, address, 0});
  });
}

Status shim_tape_end(uint64_t *count) {
  return guarded([&] {
    recording.store(false);
    const std::lock_guard<std::mutex> lock(mutex);
    TORCH_CHECK(!overflow, "more than ", MAX_ENTRIES, " allocations in one recording");
    *count = entries.size();
  });
}

void shim_tape_read(TapeEntry *into, uint64_t count) {
  const std::lock_guard<std::mutex> lock(mutex);
  for (uint64_t index = 0; index < count && index < entries.size(); ++index) {
    into[index] = entries[index];
  }
  entries.clear();
  entries.shrink_to_fit();
}
