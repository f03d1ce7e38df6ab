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
// Requests that would exceed this many bytes fail. Returns what was allowed before.
uint64_t shim_set_host_capacity(uint64_t bytes);
// Whether what the calling thread allocates from now on is counted nowhere; returns what was so far.
bool shim_allocate_aside(bool on);
MemoryCounts shim_host_memory();
// Counts so many bytes as held, for memory that is others' to use, or counts them no more.
Status shim_set_host_aside(uint64_t bytes);
void shim_put_host_back(uint64_t bytes);
void shim_reset_host_peak();
// Whether a request was refused since the last call; if so, fills in the last one.
bool shim_take_host_excess(Excess *excess);
// Reads the statistics of libtorch's caching allocator.
Status shim_cuda_memory(int32_t device, MemoryCounts *counts);
Status shim_reset_cuda_peak(int32_t device);

// ---- recorder.cpp: every allocation and free, in order ----

enum TapeKind : uint32_t { TAPE_ALLOCATED = 0, TAPE_FREED = 1, TAPE_REMARK = 2, TAPE_EDGE = 3, TAPE_SAVED = 4 };

struct TapeEntry {
  uint32_t kind;
  // Of a remark or an edge: what the caller said. Of an allocation: 1 within communication.
  uint32_t code;
  // Where the block is; that of the tensor's memory for an edge or what autograd saved.
  uint64_t address;
  // Of an allocation.
  uint64_t bytes;
};

// Begins a recording. CUDA blocks are recorded for this thread and the backward passes that it starts.
Status shim_tape_begin();
// Blocks allocated from now on are, or no longer are, buffers of collectives.
void shim_tape_communication(bool on);
// Notes something between the events.
void shim_tape_remark(uint32_t code);
// Notes which block holds a tensor.
Status shim_tape_edge(const at::Tensor *tensor, uint32_t code);
// Notes which blocks were found so far, see shim_find_begin.
Status shim_tape_saved();
// Ends the recording and says how many entries it has.
Status shim_tape_end(uint64_t *count);
// Copies this many entries and forgets them all.
void shim_tape_read(TapeEntry *into, uint64_t count);

// ---- storage.cpp: the memory behind tensors ----

// A storage, as long as some tensor holds it.
struct WeakStorage;
// A storage that is held.
struct HeldStorage;

// Makes an engine that finds libtorch's. Before the first backward pass: threads for devices are started once per
// process, for the engine that is then in use. Of a rank on CUDA only memory of CUDA is found: some operators save a few
// numbers on the host, which no device has to hold.
Status shim_prepare_to_find(bool on_cuda);
// From now on what autograd saves in this thread's forward passes is found. That changes neither what it keeps nor
// for how long, but it no longer checks that saved tensors are not written to.
Status shim_find_begin();
// Adds a tensor that is kept for the backward pass by somebody else; nothing while nothing is looked for.
Status shim_find_offer(const at::Tensor *tensor);
// Storages that were found, each once, in order.
uint64_t shim_find_count();
// Moves one of them out.
WeakStorage *shim_find_take(uint64_t index);
void shim_find_end();

Status shim_storage_of(const at::Tensor *tensor, WeakStorage **weak);
void shim_storage_free(WeakStorage *weak);
// Tells storages apart for as long as this reference exists.
uint64_t shim_storage_id(const WeakStorage *weak);
// Null where no tensor holds it any more.
HeldStorage *shim_storage_hold(const WeakStorage *weak);
void shim_held_free(HeldStorage *held);
uint64_t shim_held_bytes(const HeldStorage *held);
// How many others hold it: tensors that are no handles of one another.
uint64_t shim_held_tensors(const HeldStorage *held);
void *shim_held_data(const HeldStorage *held);
bool shim_held_is_on_host(const HeldStorage *held);
// Gives its memory back to the allocator. Whoever touches it now crashes.
Status shim_held_give_back(HeldStorage *held);
// Gives it new memory, as much as it had, with nothing in it.
Status shim_held_renew(HeldStorage *held);

// ---- autograd.cpp: backward passes ----

// A point of the autograd graph where a backward pass can start. It does not keep the tensor's data.
struct GradientRoot;
// Points of the autograd graph where a backward pass ends. They catch the gradients that arrive.
struct GradientCatch;

Status shim_root_of(const at::Tensor *const *outputs, uint64_t count, GradientRoot **root);
void shim_root_free(GradientRoot *root);
// Runs the backward pass from the root with one gradient per output, freeing the graph on the way. The
// gradients are taken: each is freed as soon as the pass needs it no more, and none is left behind.
Status shim_root_backward(GradientRoot *root, at::Tensor *const *gradients, uint64_t count);
// Makes a trained alias of each input, whose gradient is caught. The aliases are the caller's.
Status shim_catch_of(const at::Tensor *const *inputs, uint64_t count, at::Tensor **aliases,
                     GradientCatch **caught);
void shim_catch_free(GradientCatch *caught);
// Moves the gradient of an input out, or returns null where none has arrived.
at::Tensor *shim_catch_take(GradientCatch *caught, uint64_t index);
// Runs a closure when the gradient of the tensor is complete. The backward pass fails where the answer is no. Takes
// the closure, in failure too, and has it forgotten when the graph is.
Status shim_on_gradient(const at::Tensor *tensor, void *closure, bool (*run)(void *closure),
                        void (*forget)(void *closure));
// Forgets the gradient of a leaf.
Status shim_clear_gradient(const at::Tensor *leaf);
// Makes a tensor the gradient of a leaf.
Status shim_set_gradient(const at::Tensor *leaf, const at::Tensor *gradient);

// A gradient in fp32 of leaves that are less precise: what a backward pass computes of them is added to it and
// freed. There is none before the first.
struct MainGradient;

MainGradient *shim_main_gradient_new();
// Another handle of the same.
MainGradient *shim_main_gradient_share(const MainGradient *main);
void shim_main_gradient_free(MainGradient *main);
// From now on the gradients of this leaf are added to it.
Status shim_main_gradient_of(const MainGradient *main, const at::Tensor *leaf);
// Another handle of it, or null where no gradient has arrived.
at::Tensor *shim_main_gradient_get(const MainGradient *main);
// Forgets it, which frees its memory.
void shim_main_gradient_clear(MainGradient *main);

// ---- collective.cpp: operators of autograd that are written in Rust ----

// Runs a closure once with a gradient and frees it. Takes the gradient and returns another, or null where
// it failed.
typedef at::Tensor *(*RunClosure)(void *closure, at::Tensor *gradient);
// Frees a closure that was not run.
typedef void (*ForgetClosure)(void *closure);

// Makes an alias of `output`, which was computed from `input` outside autograd, that depends on it: the
// closure is its backward pass, where autograd needs one. Takes the closure, in failure too. A closure that
// changes the gradient gets one that nobody else sees; any gets one whose storage begins with it.
Status shim_with_backward(const at::Tensor *input, const at::Tensor *output, bool changes, void *closure,
                          RunClosure run, ForgetClosure forget, at::Tensor **result);
// Copies bytes of host memory into a tensor, without a tensor in between.
Status shim_fill(const at::Tensor *tensor, const void *bytes, uint64_t count);

// ---- arithmetic.cpp: in-place operations whose scale factor tch leaves out ----

// tensor *= factor; tensor += number. tch's own lose libtorch's error with the number that they are given.
Status shim_multiply(const at::Tensor *tensor, double factor);
Status shim_add_number(const at::Tensor *tensor, double number);
// tensor /= divisor
Status shim_divide(const at::Tensor *tensor, double divisor);
// tensor += scale * other
Status shim_add_scaled(const at::Tensor *tensor, const at::Tensor *other, double scale);
// tensor += scale * first * second
Status shim_add_product(const at::Tensor *tensor, const at::Tensor *first, const at::Tensor *second,
                        double scale);
// tensor += scale * first / second
Status shim_add_quotient(const at::Tensor *tensor, const at::Tensor *first, const at::Tensor *second,
                         double scale);
}
