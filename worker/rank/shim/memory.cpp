// A host allocator that counts live bytes exactly and enforces a capacity, and the statistics of the
// CUDA allocator.

#include "guard.h"
#include "recorder.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <malloc.h>
#include <utility>

namespace {

// What libtorch's kernels expect.
constexpr size_t alignment = 64;

// In front of the data: libtorch demands that the data pointer itself identifies an allocation, and it
// does not say the size when it frees one.
struct Header {
  // Those that are counted.
  uint64_t bytes;
  // What the C library gave, which is aligned less: what it aligns itself it cuts out of more and gives the rest back, at
  // twice the time.
  void *block;
};
static_assert(sizeof(Header) <= alignment);

std::atomic<uint64_t> capacity{std::numeric_limits<uint64_t>::max()};
std::atomic<uint64_t> held{0};
std::atomic<uint64_t> peak{0};

// Whether what this thread allocates is no memory of the device, although it lies where the device's does.
thread_local bool aside = false;

// The latest refusal. Written before the flag is set and read after it.
std::atomic<bool> refused{false};
std::atomic<uint64_t> refused_asked{0};
std::atomic<uint64_t> refused_held{0};
std::atomic<uint64_t> refused_allowed{0};

[[noreturn]] void refuse(uint64_t asked, uint64_t held_now, uint64_t allowed) {
  refused_asked.store(asked);
  refused_held.store(held_now);
  refused_allowed.store(allowed);
  refused.store(true);
  TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory: asked for ", asked, " bytes, holds ", held_now,
                   " of ", allowed, " allowed");
}

void reserve(uint64_t bytes) {
  const uint64_t allowed = capacity.load(std::memory_order_relaxed);
  uint64_t before = held.load(std::memory_order_relaxed);
  do {
    if (before > allowed || bytes > allowed - before) {
      refuse(bytes, before, allowed);
    }
  } while (!held.compare_exchange_weak(before, before + bytes));
  uint64_t highest = peak.load(std::memory_order_relaxed);
  while (highest < before + bytes && !peak.compare_exchange_weak(highest, before + bytes)) {
  }
}

void free_block(void *data) {
  if (data == nullptr) {
    return;
  }
  Header *header = static_cast<Header *>(data) - 1;
  held.fetch_sub(header->bytes);
  if (recorder::is_on()) {
    recorder::freed(data);
  }
  std::free(header->block);
}

class TrackingAllocator final : public c10::Allocator {
public:
  c10::DataPtr allocate(size_t bytes) override {
    void *data = nullptr;
    if (bytes > 0) {
      const uint64_t counted = aside ? 0 : bytes;
      reserve(counted);
      constexpr size_t in_front = sizeof(Header) + alignment;
      void *block =
          bytes > std::numeric_limits<size_t>::max() - in_front ? nullptr : std::malloc(in_front + bytes);
      if (block == nullptr) {
        // The host itself has no more: what is held is all that there is.
        const uint64_t others = held.fetch_sub(counted) - counted;
        refuse(bytes, others, others);
      }
      const auto least = reinterpret_cast<uintptr_t>(block) + sizeof(Header);
      data = reinterpret_cast<void *>((least + alignment - 1) & ~uintptr_t{alignment - 1});
      new (static_cast<Header *>(data) - 1) Header{counted, block};
      if (recorder::is_on() && !aside) {
        recorder::allocated(data, bytes);
      }
    }
    return {data, data, &free_block, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }

  void copy_data(void *destination, const void *source, size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }
};

c10::DeviceAllocator *cuda_allocator() { return c10::getDeviceAllocator(c10::DeviceType::CUDA); }

} // namespace

void shim_track_host_memory() {
#ifdef __GLIBC__
  // A device keeps its memory, so a slot keeps what it once had: blocks of every size come from one heap that never
  // shrinks. What goes back to the system comes again page by page, each fault in the seconds of whoever touches it first.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_ARENA_MAX, 1);
#endif
  // Never destroyed: tensors may outlive every static object.
  static auto *allocator = new TrackingAllocator;
  // Libtorch's own allocators have priority 0.
  c10::SetCPUAllocator(allocator, /*priority=*/1);
}

uint64_t shim_set_host_capacity(uint64_t bytes) { return capacity.exchange(bytes); }

MemoryCounts shim_host_memory() { return {held.load(), peak.load(), 0, 0, 0}; }

bool shim_allocate_aside(bool on) { return std::exchange(aside, on); }

Status shim_set_host_aside(uint64_t bytes) {
  return guarded([&] { reserve(bytes); });
}

void shim_put_host_back(uint64_t bytes) { held.fetch_sub(bytes); }

void shim_reset_host_peak() { peak.store(held.load()); }

bool shim_take_host_excess(Excess *excess) {
  if (!refused.exchange(false)) {
    return false;
  }
  *excess = {refused_asked.load(), refused_held.load(), refused_allowed.load()};
  return true;
}

Status shim_cuda_memory(int32_t device, MemoryCounts *counts) {
  return guarded([&] {
    const auto stats = cuda_allocator()->getDeviceStats(static_cast<c10::DeviceIndex>(device));
    constexpr auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const auto bytes = [](int64_t value) { return static_cast<uint64_t>(value < 0 ? 0 : value); };
    *counts = {bytes(stats.allocated_bytes[all].current), bytes(stats.allocated_bytes[all].peak),
               bytes(stats.reserved_bytes[all].current), bytes(stats.reserved_bytes[all].peak),
               bytes(stats.num_ooms)};
  });
}

Status shim_reset_cuda_peak(int32_t device) {
  return guarded([&] { cuda_allocator()->resetPeakStats(static_cast<c10::DeviceIndex>(device)); });
}
