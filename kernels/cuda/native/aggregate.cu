// Sums of neighbours' rows over a block's edges. aggregate.py launches these kernels; kernels/cuda/training/aggregate.py is the Numba version.
//
// Destination d has the edges [ptr[d], ptr[d + 1]), and edge e reads row ind[e]. A row has `width` words of N numbers, which `heads` heads share:
// each head has `head_width` words. The row is multiplied by weights[e * heads + head] and by scale[ind[e]], if these are given. With `inverse`,
// sum_rows computes means: a sum is multiplied by 1 / (number of edges), which is written to inverse[d], or 0 for a destination without edges.
//
// Sums are float, or double for double rows. A product is rounded before it is added (no fused operation), and edges are added in order, so that
// the result depends only on the block. A destination with more than 2^piece edges is summed in pieces that begin at multiples of 2^piece:
// sum_pieces writes a sum for each piece, and sum_rows adds these in order. The 2^piece edges from k 2^piece on have two slots in `partial`: 2 k for
// the destination of the first of them, and 2 k + 1 for a destination that begins among them and has more than 2^piece edges.
//
// threadIdx.x goes along a row, threadIdx.y over rows. Four rows are loaded before the first of them is added.

#ifdef __CUDACC__
#define ROLLED _Pragma("unroll 1")  // unrolled loops would take NVRTC several times as long to compile, and would not be faster, since they wait for memory
#else
#define ROLLED
#endif

struct bfloat16 {
    unsigned short bits;
};

template <class Number>
struct Sum {
    using type = float;
};
template <>
struct Sum<double> {
    using type = double;
};

template <int bytes>
struct Bytes;
template <>
struct Bytes<16> {
    using type = uint4;
};
template <>
struct Bytes<8> {
    using type = uint2;
};
template <>
struct Bytes<4> {
    using type = unsigned;
};
template <>
struct Bytes<2> {
    using type = unsigned short;
};

__device__ __forceinline__ unsigned part(const uint4& word, int i) { return i == 0 ? word.x : i == 1 ? word.y : i == 2 ? word.z : word.w; }
__device__ __forceinline__ unsigned part(const uint2& word, int i) { return i == 0 ? word.x : word.y; }
__device__ __forceinline__ unsigned part(unsigned word, int) { return word; }

__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double product(double a, double b) { return __dmul_rn(a, b); }

__device__ __forceinline__ unsigned rounded(float x) {  // to the nearest bfloat16, ties to even
    const unsigned bits = __float_as_uint(x);
    return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

// N numbers of a row, as they stand in memory.
template <class Number, int N>
struct Words;

template <int N>
struct Words<float, N> {
    typename Bytes<4 * N>::type word;
    __device__ __forceinline__ void load(const float* from) { word = __ldg((const typename Bytes<4 * N>::type*)from); }
    __device__ __forceinline__ void numbers(float (&to)[N]) const {
        for (int i = 0; i < N; i++) to[i] = __uint_as_float(part(word, i));
    }
    static __device__ __forceinline__ void store(float* to, const float (&from)[N]) {
        if constexpr (N == 4)
            *(uint4*)to = uint4{__float_as_uint(from[0]), __float_as_uint(from[1]), __float_as_uint(from[2]), __float_as_uint(from[3])};
        else
            for (int i = 0; i < N; i++) to[i] = from[i];
    }
};

template <>
struct Words<float, 8> {
    uint4 low, high;
    __device__ __forceinline__ void load(const float* from) { low = __ldg((const uint4*)from), high = __ldg((const uint4*)from + 1); }
    __device__ __forceinline__ void numbers(float (&to)[8]) const {
        for (int i = 0; i < 4; i++) to[i] = __uint_as_float(part(low, i)), to[i + 4] = __uint_as_float(part(high, i));
    }
    static __device__ __forceinline__ void store(float* to, const float (&from)[8]) {
        ((uint4*)to)[0] = uint4{__float_as_uint(from[0]), __float_as_uint(from[1]), __float_as_uint(from[2]), __float_as_uint(from[3])};
        ((uint4*)to)[1] = uint4{__float_as_uint(from[4]), __float_as_uint(from[5]), __float_as_uint(from[6]), __float_as_uint(from[7])};
    }
};

template <int N>
struct Words<bfloat16, N> {
    typename Bytes<2 * N>::type word;
    __device__ __forceinline__ void load(const bfloat16* from) { word = __ldg((const typename Bytes<2 * N>::type*)from); }
    __device__ __forceinline__ void numbers(float (&to)[N]) const {
        for (int i = 0; i < N; i++) to[i] = __uint_as_float(i & 1 ? part(word, i / 2) & 0xffff0000u : part(word, i / 2) << 16);
    }
    static __device__ __forceinline__ void store(bfloat16* to, const float (&from)[N]) {
        if constexpr (N == 4)
            *(uint2*)to = uint2{rounded(from[0]) | rounded(from[1]) << 16, rounded(from[2]) | rounded(from[3]) << 16};
        else
            for (int i = 0; i < N; i++) to[i].bits = (unsigned short)rounded(from[i]);
    }
};

template <>
struct Words<double, 1> {
    double word;
    __device__ __forceinline__ void load(const double* from) { word = __ldg(from); }
    __device__ __forceinline__ void numbers(double (&to)[1]) const { to[0] = word; }
    static __device__ __forceinline__ void store(double* to, const double (&from)[1]) { to[0] = from[0]; }
};

// The arguments that describe a block, common to all kernels.
template <class Number>
struct Edges {
    using S = typename Sum<Number>::type;
    const int *ptr, *ind;
    const S *weights, *scale;
    const Number* rows;
    int width, head_width, heads, num_rows;

    // Add the word at `column` of the rows that the edges [begin, end) read.
    template <int N>
    __device__ __forceinline__ void add(S (&sum)[N], int begin, int end, int column) const {
        const int head = heads > 1 ? column / head_width : 0;
        ROLLED for (int e = begin; e < end; e += 4) {
            int row[4] = {};
            S by[4] = {S(1), S(1), S(1), S(1)};
            Words<Number, N> words[4] = {};
            for (int i = 0; i < 4; i++)
                if (e + i < end) row[i] = __ldg(ind + e + i);
            for (int i = 0; i < 4; i++)
                if (e + i < end) words[i].load(rows + ((long long)row[i] * width + column) * N);
            if (weights)
                for (int i = 0; i < 4; i++)
                    if (e + i < end) by[i] = __ldg(weights + (long long)(e + i) * heads + head);
            if (scale)
                for (int i = 0; i < 4; i++)
                    if (e + i < end) by[i] = product(by[i], __ldg(scale + row[i]));
            for (int i = 0; i < 4; i++)
                if (e + i < end) {
                    S numbers[N];
                    words[i].numbers(numbers);
                    for (int k = 0; k < N; k++) sum[k] += product(by[i], numbers[k]);
                }
        }
    }
};

// Return the destination of an edge: the last one whose edges begin at or before it.
__device__ __forceinline__ int owner(const int* ptr, int num_rows, int edge) {
    int low = 0, high = num_rows;  // ptr[low] <= edge < ptr[high]
    ROLLED while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (__ldg(ptr + middle) <= edge)
            low = middle;
        else
            high = middle;
    }
    return low;
}

template <class Number, int N>
__device__ __forceinline__ void pieces(const Edges<Number>& edges, typename Sum<Number>::type* partial, int num_edges, int piece) {
    using S = typename Sum<Number>::type;
    const int size = 1 << piece, slots = 2 * (((num_edges - 1) >> piece) + 1);
    ROLLED for (int slot = blockIdx.x * blockDim.y + threadIdx.y; slot < slots; slot += gridDim.x * blockDim.y) {
        const int first = slot / 2 << piece, last = (num_edges - first < size ? num_edges : first + size) - 1;
        const int row = owner(edges.ptr, edges.num_rows, slot & 1 ? last : first), begin = __ldg(edges.ptr + row), end = __ldg(edges.ptr + row + 1);
        if (end - begin <= size || ((slot & 1) && begin <= first)) continue;
        ROLLED for (int column = threadIdx.x; column < edges.width; column += blockDim.x) {
            S sum[N] = {};
            edges.template add<N>(sum, begin > first ? begin : first, end < last + 1 ? end : last + 1, column);
            Words<S, N>::store(partial + ((long long)slot * edges.width + column) * N, sum);
        }
    }
}

template <class Number, class Out, int N>
__device__ __forceinline__ void rows(const Edges<Number>& edges, Out* out, typename Sum<Number>::type* inverse,
                                     const typename Sum<Number>::type* partial, int piece) {
    using S = typename Sum<Number>::type;
    ROLLED for (int row = blockIdx.x * blockDim.y + threadIdx.y; row < edges.num_rows; row += gridDim.x * blockDim.y) {
        const int begin = __ldg(edges.ptr + row), end = __ldg(edges.ptr + row + 1);
        const S by = inverse && end > begin ? S(1) / S(end - begin) : S(inverse == nullptr);
        if (inverse && threadIdx.x == 0) inverse[row] = by;
        ROLLED for (int column = threadIdx.x; column < edges.width; column += blockDim.x) {
            S sum[N] = {};
            if (end - begin <= 1 << piece) {
                edges.template add<N>(sum, begin, end, column);
            } else {
                const int last = (end - 1) >> piece;
                int slot = 2 * (begin >> piece) + ((begin & ((1 << piece) - 1)) != 0);
                ROLLED for (; slot / 2 <= last; slot = (slot | 1) + 1) {
                    Words<S, N> words;
                    S numbers[N];
                    words.load(partial + ((long long)slot * edges.width + column) * N);
                    words.numbers(numbers);
                    for (int i = 0; i < N; i++) sum[i] += numbers[i];
                }
            }
            for (int i = 0; i < N; i++) sum[i] = product(by, sum[i]);
            Words<Out, N>::store(out + ((long long)row * edges.width + column) * N, sum);
        }
    }
}

// Compute the gradients of the weights: for each edge and head the dot product of the row that it reads and its destination's gradient, multiplied by
// inverse[d] if it is given.
template <class Number, int N>
__device__ __forceinline__ void dots(const Edges<Number>& edges, typename Sum<Number>::type* out, const typename Sum<Number>::type* gradient,
                                     const typename Sum<Number>::type* inverse) {
    using S = typename Sum<Number>::type;
    const unsigned heads = edges.heads;
    ROLLED for (int row = blockIdx.x * blockDim.y + threadIdx.y; row < edges.num_rows; row += gridDim.x * blockDim.y) {
        const int begin = __ldg(edges.ptr + row), end = __ldg(edges.ptr + row + 1);
        const S by = inverse ? __ldg(inverse + row) : S(1);
        ROLLED for (unsigned i = threadIdx.x; i < (end - begin) * heads; i += blockDim.x) {
            const int first = i % heads * edges.head_width;
            const Number* from = edges.rows + ((long long)__ldg(edges.ind + begin + i / heads) * edges.width + first) * N;
            const S* own = gradient + ((long long)row * edges.width + first) * N;
            S sum = 0;
            ROLLED for (int column = 0; column < edges.head_width; column++, from += N, own += N) {
                Words<Number, N> words;
                Words<S, N> factors;
                S numbers[N], by_them[N];
                words.load(from);
                factors.load(own);
                words.numbers(numbers);
                factors.numbers(by_them);
                for (int k = 0; k < N; k++) sum += product(numbers[k], by_them[k]);
            }
            out[(long long)begin * heads + i] = product(by, sum);
        }
    }
}

#define EDGES(NUMBER)                                                                                                                       \
    const int *ptr, const int *ind, const Sum<NUMBER>::type *weights, const Sum<NUMBER>::type *scale, const NUMBER *from, long long width,  \
        long long head_width, long long heads, long long num_rows
#define GIVEN(NUMBER) Edges<NUMBER>{ptr, ind, weights, scale, from, (int)width, (int)head_width, (int)heads, (int)num_rows}
#define SUM_PIECES(NUMBER, N)                                                                                                               \
    extern "C" __global__ void sum_pieces_##NUMBER##_##N(EDGES(NUMBER), Sum<NUMBER>::type* partial, long long num_edges, long long piece) { \
        pieces<NUMBER, N>(GIVEN(NUMBER), partial, (int)num_edges, (int)piece);                                                              \
    }
#define SUM_ROWS(NUMBER, OUT, N)                                                                                                            \
    extern "C" __global__ void sum_rows_##NUMBER##_##OUT##_##N(EDGES(NUMBER), OUT* out, Sum<NUMBER>::type* inverse,                         \
                                                               const Sum<NUMBER>::type* partial, long long piece) {                         \
        rows<NUMBER, OUT, N>(GIVEN(NUMBER), out, inverse, partial, (int)piece);                                                             \
    }
#define EDGE_DOTS(NUMBER, N)                                                                                                                \
    extern "C" __global__ void edge_dots_##NUMBER##_##N(EDGES(NUMBER), Sum<NUMBER>::type* out, const Sum<NUMBER>::type* gradient,           \
                                                        const Sum<NUMBER>::type* inverse) {                                                 \
        dots<NUMBER, N>(GIVEN(NUMBER), out, gradient, inverse);                                                                             \
    }
#define OF_ROWS(NUMBER, N) SUM_PIECES(NUMBER, N) EDGE_DOTS(NUMBER, N)

OF_ROWS(float, 4)
OF_ROWS(float, 1)
OF_ROWS(bfloat16, 8)
OF_ROWS(bfloat16, 1)
OF_ROWS(double, 1)
SUM_ROWS(float, float, 4)
SUM_ROWS(float, float, 1)
SUM_ROWS(bfloat16, float, 8)
SUM_ROWS(bfloat16, float, 1)
SUM_ROWS(float, bfloat16, 4)
SUM_ROWS(float, bfloat16, 1)
SUM_ROWS(double, double, 1)
