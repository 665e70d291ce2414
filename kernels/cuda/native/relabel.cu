// Local ids in order of first appearance, as hoptrain/kernels/cuda/relabel.py does it, for ids of 32 bits: vertex and value share a word
// of 64, so that one compare-and-swap takes a place and writes its value, and an edge costs one sector of the table in place of two.
//
// A batch is a row in each array, blockIdx.y its number. A table's row has `size` places, a power of two. The upper half of a place is its
// vertex, the lower one a value: a local id, or for a vertex that has none yet `known` + the smallest edge that asks for it.

typedef unsigned long long Place;
#define EMPTY (~0ull)

#define EACH(i, begin, end) \
    for (long long i = (begin) + blockIdx.x * (long long)blockDim.x + threadIdx.x; i < (end); i += gridDim.x * (long long)blockDim.x)

__device__ __forceinline__ Place place(int vertex, long long value) {
    return (Place)(unsigned)vertex << 32 | (unsigned)value;
}

// Knuth's multiplicative hashing (TAOCP 3, 6.4).
__device__ __forceinline__ long long hash_of(int vertex) {
    return (Place)vertex * 0x9E3779B97F4A7C15ull >> 32;
}

// The place of a vertex, whose value is lowered to `value`; taken for it if it had none. An old word that is read here does no harm: an
// empty one is settled by the compare-and-swap, and a larger value by the minimum.
__device__ __forceinline__ long long ask(Place* row, long long size, int vertex, long long value) {
    const Place mine = place(vertex, value);
    for (long long slot = hash_of(vertex) & (size - 1);; slot = (slot + 1) & (size - 1)) {
        Place found = *(volatile Place*)(row + slot);
        if (found == EMPTY) found = atomicCAS(row + slot, EMPTY, mine);
        if (found == EMPTY) return slot;
        if (found >> 32 == (unsigned)vertex) {
            if (found > mine) atomicMin(row + slot, mine);
            return slot;
        }
    }
}

extern "C" __global__ void clear_places(Place* table, long long size) {
    Place* row = table + blockIdx.y * size;
    EACH(i, 0, size) row[i] = EMPTY;
}

// Enter source[b, :count[b]] with their places as local ids, and copy them to `nodes`, which may be the same array.
extern "C" __global__ void enter_places(const int* source, long long source_width, const long long* count, Place* table, long long size,
                                        int* nodes, long long nodes_width) {
    const long long b = blockIdx.y;
    EACH(i, 0, count[b]) {
        const int vertex = source[b * source_width + i];
        nodes[b * nodes_width + i] = vertex;
        ask(table + b * size, size, vertex, i);
    }
}

// Let every edge ask for its vertex, and note the vertex's place.
extern "C" __global__ void insert_places(const int* neighbors, long long width, const long long* begin, const long long* end, long long known,
                                         Place* table, long long size, int* slots) {
    const long long b = blockIdx.y;
    EACH(e, begin[b], end[b]) slots[b * width + e] = ask(table + b * size, size, neighbors[b * width + e], known + e);
}

// 1 for the edges whose own value won, else 0; rows of `flags` are one longer than those of `slots`.
extern "C" __global__ void mark_places(const long long* begin, const long long* end, long long known, const Place* table, long long size,
                                       const int* slots, long long width, int* flags) {
    const long long b = blockIdx.y;
    EACH(e, begin[b], end[b]) flags[b * (width + 1) + e] = (unsigned)table[b * size + slots[b * width + e]] == (unsigned)(known + e);
}

// Give new vertices their local ids: those at which `ranks`, the scan of the flags, rises.
extern "C" __global__ void append_places(const int* neighbors, long long width, const long long* begin, const long long* end, const int* slots,
                                         const int* ranks, Place* table, long long size, int* nodes, long long nodes_width) {
    const long long b = blockIdx.y;
    EACH(e, begin[b], end[b]) {
        const int local = ranks[b * (width + 1) + e], vertex = neighbors[b * width + e];
        if (ranks[b * (width + 1) + e + 1] > local) {
            nodes[b * nodes_width + local] = vertex;
            table[b * size + slots[b * width + e]] = place(vertex, local);
        }
    }
}

// The local id of every edge's source.
extern "C" __global__ void look_up_places(const long long* begin, const long long* end, const Place* table, long long size, const int* slots,
                                          long long width, int* local) {
    const long long b = blockIdx.y;
    EACH(e, begin[b], end[b]) local[b * width + e] = (unsigned)table[b * size + slots[b * width + e]];
}
