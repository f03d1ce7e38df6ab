// The recorder of allocations, for the allocators that feed it.
#pragma once

#include <cstdint>

namespace recorder {

// Whether anybody listens. Cheap: allocators ask on every call.
bool is_on() noexcept;
// A block was allocated or freed. May be called from any thread.
void allocated(const void *address, uint64_t bytes) noexcept;
void freed(const void *address) noexcept;
// Something is said of the block at this address; nothing while nobody listens.
void remarked(uint32_t kind, const void *address) noexcept;

} // namespace recorder
