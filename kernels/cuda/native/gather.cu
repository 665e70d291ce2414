// Gather feature rows by node from device, peer and pinned host memory in one launch. gather.py launches these kernels.
//
// A row has `width` words. The array of all rows begins at bases[num_parts], part p of the cached rows at bases[p]. where[v] tells where the row of node v
// is read: if it is negative, from row v of the array of all rows; otherwise it is a slot, and the row is slot / num_parts of part slot % num_parts.
// Without `where` all rows are read from the array of all rows.
//
// threadIdx.x goes along a row, threadIdx.y over rows. Both loads of an iteration are issued before the first store. Reads of the array of all rows
// begin at the last multiple of `line` words before a row, so that a warp reads whole lines of host memory.

template <class Word, class Id>
__device__ __forceinline__ void gather_rows(char* out, const Id* ids, const int* where, const unsigned long long* bases, long long num_ids,
                                            long long num_parts, long long width, long long line) {
    const long long lanes = blockDim.x;
    for (long long i = blockIdx.x * (long long)blockDim.y + threadIdx.y; i < num_ids; i += gridDim.x * (long long)blockDim.y) {
        long long row = ids[i], part = num_parts, first = threadIdx.x;
        const int slot = where ? where[row] : -1;
        if (slot >= 0) {
            part = (unsigned)slot % (unsigned)num_parts;
            row = (unsigned)slot / (unsigned)num_parts;
        }
        const Word* from = (const Word*)bases[part] + row * width;
        Word* to = (Word*)out + i * width;
        if (part == num_parts) first -= (unsigned long long)from / sizeof(Word) & (line - 1);
        for (long long one = first, two = first + lanes; one < width; one += 2 * lanes, two += 2 * lanes) {
            const bool has_one = one >= 0, has_two = two >= 0 && two < width;
            Word a = Word(), b = Word();
            if (has_one) a = __ldg(from + one);
            if (has_two) b = __ldg(from + two);
            if (has_one) to[one] = a;
            if (has_two) to[two] = b;
        }
    }
}

#define GATHER(NAME, WORD, ID)                                                                                                         \
    extern "C" __global__ void NAME(char* out, const ID* ids, const int* where, const unsigned long long* bases, long long num_ids,    \
                                    long long num_parts, long long width, long long line) {                                            \
        gather_rows<WORD, ID>(out, ids, where, bases, num_ids, num_parts, width, line);                                                \
    }
#define GATHER_BOTH(BYTES, WORD) GATHER(gather_placed_##BYTES##_int32, WORD, int) GATHER(gather_placed_##BYTES##_int64, WORD, long long)

GATHER_BOTH(16, uint4)
GATHER_BOTH(8, unsigned long long)
GATHER_BOTH(4, unsigned int)
GATHER_BOTH(2, unsigned short)
GATHER_BOTH(1, unsigned char)
