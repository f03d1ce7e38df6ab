// The optimizer's rules on a GPU, in one pass over a part of a chunk: what `chunks/host_step.rs` does on the host.
//
// An element is worked out in fp64 between its one reading and its one writing, so nothing of it needs a block of its own, and
// what it becomes is rounded once. Memory is what is waited for.
//
// make.sh makes step.ptx of this file, which the driver compiles for its GPU.

#define KERNEL extern "C" __attribute__((global)) void
#define INSIDE static __attribute__((device)) inline

// What of a row of threads this one is, and how many there are: it takes every so many-th element.
INSIDE unsigned long long own() {
    unsigned long long block = __nvvm_read_ptx_sreg_ctaid_x();
    return block * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
}
INSIDE unsigned long long all() {
    unsigned long long blocks = __nvvm_read_ptx_sreg_nctaid_x();
    return blocks * __nvvm_read_ptx_sreg_ntid_x();
}

struct Bf16 {
    unsigned short bits;
};

INSIDE float read(float value) { return value; }
INSIDE float read(Bf16 value) { return __builtin_bit_cast(float, unsigned(value.bits) << 16); }
INSIDE void round_to(float& to, float value) { to = value; }
// The nearest, of two the even one; what is not a number as libtorch writes it.
INSIDE void round_to(Bf16& to, float value) {
    unsigned bits = __builtin_bit_cast(unsigned, value);
    bits = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    to.bits = value == value ? (unsigned short)bits : (unsigned short)0x7fc0;
}

INSIDE double fused(double one, double other, double more) { return __builtin_fma(one, other, more); }

// Numbers of a rule in one step; those that it has no use for are whatever.
struct Numbers {
    double rate, decay, first_kept, second_kept, epsilon, shrink;
};

enum Rule { PLAIN_SGD, SGD, ADAM };

template <typename Scalar>
INSIDE void step(unsigned rule, Numbers of, const Scalar* gradients, Scalar* parameters, float* weights, float* first,
                 float* second, unsigned long long count) {
    for (unsigned long long at = own(); at < count; at += all()) {
        double before = weights[at], weight = of.shrink * before;
        double gradient = fused(of.decay, before, read(gradients[at]));
        if (rule == PLAIN_SGD) {
            weight = fused(-of.rate, gradient, weight);
        } else if (rule == SGD) {
            double velocity = fused(of.first_kept, first[at], gradient);
            weight = fused(-of.rate, velocity, weight);
            first[at] = float(velocity);
        } else {
            double mean = fused(of.first_kept, first[at], (1.0 - of.first_kept) * gradient);
            double square = fused(of.second_kept, second[at], (1.0 - of.second_kept) * gradient * gradient);
            weight = fused(-of.rate, mean / (__builtin_sqrt(square) + of.epsilon), weight);
            first[at] = float(mean);
            second[at] = float(square);
        }
        weights[at] = float(weight);
        round_to(parameters[at], float(weight));
    }
}

#define STEP(name, Scalar)                                                                                              \
    KERNEL name(unsigned rule, double rate, double decay, double first_kept, double second_kept, double epsilon,        \
                double shrink, const Scalar* gradients, Scalar* parameters, float* weights, float* first, float* second, \
                unsigned long long count) {                                                                             \
        Numbers numbers = {rate, decay, first_kept, second_kept, epsilon, shrink};                                      \
        step(rule, numbers, gradients, parameters, weights, first, second, count);                                      \
    }

STEP(step_fp32, float)
STEP(step_bf16, Bf16)
