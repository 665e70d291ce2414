// Dropout whose random bits are a function of a seed and an element's index. dropout.py launches these kernels; kernels/cuda/training/dropout.py is the
// Numba version. kernels/shared/dropout.py says which bits an element has; results are bit-identical to those of kernels/cpu/training/dropout.py.
//
// A thread makes one call of Philox, whose bits serve eight elements. Adjacent threads process adjacent elements, and a thread loads its eight elements
// before it computes. bfloat16 is computed in float.

struct bfloat16 {
    unsigned short bits;
};

__device__ __forceinline__ float value(float x) { return x; }
__device__ __forceinline__ double value(double x) { return x; }
__device__ __forceinline__ float value(bfloat16 x) { return __uint_as_float((unsigned)x.bits << 16); }

__device__ __forceinline__ void store(float* to, float x) { *to = x; }
__device__ __forceinline__ void store(double* to, double x) { *to = x; }
__device__ __forceinline__ void store(bfloat16* to, float x) {  // rounds to the nearest, ties to even
    const unsigned bits = __float_as_uint(x);
    to->bits = (unsigned short)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

template <class Number>
struct Computed {
    using type = float;
};
template <>
struct Computed<double> {
    using type = double;
};

// Eight elements of an array, 128 elements apart. Fewer exist if they are the last of an array, that is, if fewer than 897 elements are `left` from the
// first on. The others need no comparison each.
template <class Number>
struct Eight {
    using Value = typename Computed<Number>::type;
    Value values[8] = {};

    __device__ __forceinline__ void load(const Number* from, long long left) {
        if (left > 896)
            for (int i = 0; i < 8; i++) values[i] = value(from[128 * i]);
        else
            for (int i = 0; i < 8; i++)
                if (128 * i < left) values[i] = value(from[128 * i]);
    }
    __device__ __forceinline__ void save(Number* to, long long left) const {
        if (left > 896)
            for (int i = 0; i < 8; i++) store(to + 128 * i, values[i]);
        else
            for (int i = 0; i < 8; i++)
                if (128 * i < left) store(to + 128 * i, values[i]);
    }
};

__device__ __forceinline__ unsigned long long product(unsigned a, unsigned b) {
#ifdef __CUDACC__
    unsigned long long both;  // NVRTC would multiply two 64-bit numbers
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(both) : "r"(a), "r"(b));
    return both;
#else
    return (unsigned long long)a * b;
#endif
}

// The four words of Philox4x32-10 for a counter (call, 0); see kernels/shared/philox.py.
__device__ __forceinline__ void four_words(unsigned long long seed, unsigned long long call, unsigned (&words)[4]) {
    unsigned c0 = (unsigned)call, c1 = (unsigned)(call >> 32), c2 = 0, c3 = 0, k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const unsigned long long p0 = product(0xD2511F53u, c0), p1 = product(0xCD9E8D57u, c2);
        c0 = (unsigned)(p1 >> 32) ^ c1 ^ k0, c2 = (unsigned)(p0 >> 32) ^ c3 ^ k1;
        c1 = (unsigned)p1, c3 = (unsigned)p0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}

__device__ __forceinline__ long long first_call() { return blockIdx.x * (long long)blockDim.x + threadIdx.x; }
__device__ __forceinline__ long long all_threads() { return gridDim.x * (long long)blockDim.x; }
__device__ __forceinline__ long long num_calls(long long size) { return (size + 1023) / 1024 * 128; }
__device__ __forceinline__ long long first_element(long long call) { return (call >> 7 << 10) + (call & 127); }

template <class Value>
__device__ __forceinline__ Value scale(int dropped) { return Value(65536) / Value(65536 - dropped); }

// out = x * scale, or 0 where an element's 16 bits are below `dropped`, and with `clip` also where x is at most 0.
template <class Number>
__device__ __forceinline__ void drop(const Number* x, Number* out, unsigned long long seed, int dropped, bool clip, long long size) {
    using Value = typename Computed<Number>::type;
    const Value by = scale<Value>(dropped);
    for (long long call = first_call(); call < num_calls(size); call += all_threads()) {
        const long long first = first_element(call), left = size - first;
        Eight<Number> eight;
        unsigned words[4];
        eight.load(x + first, left);
        four_words(seed, call, words);
        for (int i = 0; i < 8; i++) {
            const int bits = words[i / 2] >> 16 * (i % 2) & 0xffffu;
            eight.values[i] = bits < dropped || (clip && eight.values[i] <= 0) ? Value(0) : eight.values[i] * by;
        }
        eight.save(out + first, left);
    }
}

// The gradient of `drop` with `clip`, from its results: gradient * scale, or 0 where out is at most 0.
template <class Number>
__device__ __forceinline__ void pass_gradient(const Number* gradient, const Number* out, Number* by_x, int dropped, long long size) {
    using Value = typename Computed<Number>::type;
    const Value by = scale<Value>(dropped);
    for (long long call = first_call(); call < num_calls(size); call += all_threads()) {
        const long long first = first_element(call), left = size - first;
        Eight<Number> eight, results;
        eight.load(gradient + first, left);
        results.load(out + first, left);
        for (int i = 0; i < 8; i++) eight.values[i] = results.values[i] <= 0 ? Value(0) : eight.values[i] * by;
        eight.save(by_x + first, left);
    }
}

#define KERNELS(NUMBER)                                                                                                                          \
    extern "C" __global__ void drop_##NUMBER(const NUMBER* x, NUMBER* out, long long seed, long long dropped, long long clip, long long size) {  \
        drop<NUMBER>(x, out, (unsigned long long)seed, (int)dropped, clip != 0, size);                                                           \
    }                                                                                                                                            \
    extern "C" __global__ void pass_gradient_##NUMBER(const NUMBER* gradient, const NUMBER* out, NUMBER* by_x, long long dropped,                \
                                                      long long size) {                                                                          \
        pass_gradient<NUMBER>(gradient, out, by_x, (int)dropped, size);                                                                          \
    }

KERNELS(float)
KERNELS(bfloat16)
KERNELS(double)
