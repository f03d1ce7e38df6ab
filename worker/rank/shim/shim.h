// What the rank needs of libtorch that tch does not offer, as plain C functions.
//
// Every function that can fail returns a Status and never lets an exception out. A failed one leaves a
// message, which shim_last_error() returns until the next failure on the same thread.
#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

extern "C" {

enum Status : int32_t { STATUS_OK = 0, STATUS_FAILED = 1, STATUS_OUT_OF_MEMORY = 2 };

const char *shim_last_error();

// ---- library.cpp: which libtorch this is ----

// The version that is loaded, and the one that this file was compiled against: major << 16 | minor << 8
// | patch.
uint32_t shim_version_loaded();
uint32_t shim_version_compiled();
// Ends the process at once, without taking libtorch's tables apart first.
[[noreturn]] void shim_end(int32_t exit_code);
// Loads libtorch's CUDA half, which registers itself. Before the first tensor.
Status shim_load_cuda();
// Initialises a CUDA device, so that its allocator has statistics and holds at most this many bytes.
// Once per process.
Status shim_open_cuda(int32_t device, uint64_t capacity);
// Waits for all work of a CUDA device.
Status shim_synchronize(int32_t device);

// ---- memory.cpp: what is allocated ----

struct MemoryCounts {
  uint64_t allocated;
  uint64_t allocated_peak;
  uint64_t reserved;
  uint64_t reserved_peak;
  uint64_t refusals;
};

struct Excess {
  uint64_t asked;
  uint64_t held;
  uint64_t allowed;
};

// Makes libtorch allocate host tensors through an allocator that counts the requested bytes of live
// tensors exactly. Before the first tensor.
void shim_track_host_memory();
// Requests that would exceed this many bytes fail.
void shim_set_host_capacity(uint64_t bytes);
MemoryCounts shim_host_memory();
void shim_reset_host_peak();
// Whether a request was refused since the last call; if so, fills in the last one.
bool shim_take_host_excess(Excess *excess);
// Reads the statistics of libtorch's caching allocator.
Status shim_cuda_memory(int32_t device, MemoryCounts *counts);
Status shim_reset_cuda_peak(int32_t device);

// ---- autograd.cpp: backward passes ----

// A point of the autograd graph where a backward pass can start. It does not keep the tensor's data.
struct GradientRoot;

Status shim_root_of(const at::Tensor *const *outputs, uint64_t count, GradientRoot **root);
void shim_root_free(GradientRoot *root);
// Runs the backward pass from the root with one gradient per output, freeing the graph on the way.
Status shim_root_backward(GradientRoot *root, const at::Tensor *const *gradients, uint64_t count);
// Calls back when the gradient of the tensor is complete.
Status shim_on_gradient(const at::Tensor *tensor, void (*callback)(uint64_t), uint64_t argument);
// Forgets the gradient of a leaf.
Status shim_clear_gradient(const at::Tensor *leaf);

// ---- arithmetic.cpp: in-place operations whose scale factor tch leaves out ----

// tensor += scale * other
Status shim_add_scaled(const at::Tensor *tensor, const at::Tensor *other, double scale);
// tensor += scale * first * second
Status shim_add_product(const at::Tensor *tensor, const at::Tensor *first, const at::Tensor *second,
                        double scale);
// tensor += scale * first / second
Status shim_add_quotient(const at::Tensor *tensor, const at::Tensor *first, const at::Tensor *second,
                         double scale);
}
