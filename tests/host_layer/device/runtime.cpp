// libcudart.so.13: the runtime's API over libcuda.so.1, as much of it as torch asks for; libraries.py lets whatever else torch links refuse.
//
// Of torch's kernels it runs those that fill memory with one value and those that add a number to int64 values, by which torch numbers things. Others are
// recorded and change nothing; tests/host_layer/torch_kernels.py computes their results.
#include <cuda_runtime_api.h>

#include <cuda.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))
extern "C" CUresult host_layer_launch(CUstream stream, const char* kernel, void (*run)(void*), void* data);

namespace {

thread_local int device_number = 0;
thread_local cudaError_t last_error = cudaSuccess;
std::map<const void*, std::string>& kernel_names() {  // of the stubs that a program launches kernels by
    static std::map<const void*, std::string> names;
    return names;
}

cudaError_t result(CUresult error) {
    if (error) last_error = static_cast<cudaError_t>(error);
    return static_cast<cudaError_t>(error);
}

// Make the device's primary context current for this thread, as the runtime does at the first call that needs one.
void enter(int number) {
    static CUcontext contexts[64];
    if (!contexts[number]) cuDevicePrimaryCtxRetain(&contexts[number], number);
    device_number = number;
    cuCtxSetCurrent(contexts[number]);
}
void enter() {
    CUcontext context;
    cuCtxGetCurrent(&context);
    if (!context) enter(device_number);
}

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

// ---- devices

API cudaError_t cudaGetDevice(int* number) {
    CUcontext context;
    cuCtxGetCurrent(&context);
    *number = device_number;
    if (context) cuCtxGetDevice(number);
    return cudaSuccess;
}
API cudaError_t cudaGetDeviceCount(int* number) { return result(cuDeviceGetCount(number)); }
API cudaError_t cudaSetDevice(int number) {
    int count;
    cuDeviceGetCount(&count);
    if (number < 0 || number >= count) return last_error = cudaErrorInvalidDevice;
    enter(number);
    return cudaSuccess;
}
API cudaError_t cudaDriverGetVersion(int* version) { return result(cuDriverGetVersion(version)); }
API cudaError_t cudaRuntimeGetVersion(int* version) { *version = CUDART_VERSION; return cudaSuccess; }
API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int number) {
    auto ask = [=](CUdevice_attribute attribute) { int value; cuDeviceGetAttribute(&value, attribute, number); return value; };
    *found = {};
    cuDeviceGetName(found->name, sizeof found->name, number);
    cuDeviceGetUuid(reinterpret_cast<CUuuid*>(&found->uuid), number);
    cuDeviceTotalMem(&found->totalGlobalMem, number);
    found->major = ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    found->minor = ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    found->multiProcessorCount = ask(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    found->warpSize = ask(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    found->maxThreadsPerBlock = ask(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    found->maxThreadsPerMultiProcessor = ask(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    found->maxBlocksPerMultiProcessor = 32;
    found->sharedMemPerBlock = ask(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    found->sharedMemPerBlockOptin = found->sharedMemPerMultiprocessor = ask(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    found->regsPerBlock = found->regsPerMultiprocessor = ask(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    found->l2CacheSize = ask(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
    found->memoryBusWidth = ask(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
    for (int i = 0; i < 3; i++) {
        found->maxGridSize[i] = ask(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i));
        found->maxThreadsDim[i] = ask(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i));
    }
    found->unifiedAddressing = found->concurrentKernels = found->canMapHostMemory = 1;
    found->textureAlignment = 512;
    return cudaSuccess;
}
API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int number) {
    return result(cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attribute), number));
}
API cudaError_t cudaDeviceCanAccessPeer(int* can, int from, int to) { return result(cuDeviceCanAccessPeer(can, from, to)); }
API cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
API cudaError_t cudaDeviceGetPCIBusId(char* name, int size, int number) { snprintf(name, size, "0000:%02x:00.0", number); return cudaSuccess; }
API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { return result(cuCtxGetStreamPriorityRange(least, greatest)); }
API cudaError_t cudaDeviceSynchronize() { enter(); return result(cuCtxSynchronize()); }

// ---- memory

API cudaError_t cudaMalloc(void** pointer, size_t bytes) { enter(); return result(cuMemAlloc(reinterpret_cast<CUdeviceptr*>(pointer), bytes)); }
API cudaError_t cudaFree(void* pointer) { enter(); return pointer ? result(cuMemFree(address(pointer))) : cudaSuccess; }
API cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) { enter(); return result(cuMemHostAlloc(pointer, bytes, flags)); }
API cudaError_t cudaFreeHost(void* pointer) { return result(cuMemFreeHost(pointer)); }
API cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned flags) { enter(); return result(cuMemHostRegister(pointer, bytes, flags)); }
API cudaError_t cudaHostUnregister(void* pointer) { return result(cuMemHostUnregister(pointer)); }
API cudaError_t cudaMemGetInfo(size_t* left, size_t* bytes) { enter(); return result(cuMemGetInfo(left, bytes)); }
API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
    enter();
    return bytes ? result(cuMemcpyAsync(address(to), address(from), bytes, stream)) : cudaSuccess;
}
API cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
    return error ? error : result(cuStreamSynchronize(nullptr));
}
API cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
    enter();
    return bytes ? result(cuMemsetD8Async(address(to), value, bytes, stream)) : cudaSuccess;
}
API cudaError_t cudaMemset(void* to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes, nullptr); }
API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* pointer) {
    enter();
    unsigned type = 0;
    cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(pointer));
    *found = {};
    found->type = type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    found->device = type == CU_MEMORYTYPE_DEVICE ? device_number : -1;
    (type == CU_MEMORYTYPE_DEVICE ? found->devicePointer : found->hostPointer) = const_cast<void*>(pointer);
    return cudaSuccess;
}

// ---- streams, events, captures

API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) { enter(); return result(cuStreamCreate(stream, flags)); }
API cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) { return cudaStreamCreateWithFlags(stream, flags); }
API cudaError_t cudaStreamDestroy(cudaStream_t stream) { return result(cuStreamDestroy(stream)); }
API cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) { return result(cuStreamGetPriority(stream, priority)); }
API cudaError_t cudaStreamQuery(cudaStream_t stream) { return static_cast<cudaError_t>(cuStreamQuery(stream)); }
API cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return result(cuStreamSynchronize(stream)); }
API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) { return result(cuStreamWaitEvent(stream, event, flags)); }
API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    return result(cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(mode)));
}
API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) { return result(cuStreamEndCapture(stream, graph)); }
API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    return result(cuStreamIsCapturing(stream, reinterpret_cast<CUstreamCaptureStatus*>(status)));
}
API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t* graph,
                                         const cudaGraphNode_t** nodes, const cudaGraphEdgeData**, size_t* number) {
    return result(cuStreamGetCaptureInfo(stream, reinterpret_cast<CUstreamCaptureStatus*>(status), reinterpret_cast<cuuint64_t*>(id), graph, nodes, nullptr, number));
}
API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    return result(cuThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode*>(mode)));
}
API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) { enter(); return result(cuEventCreate(event, flags)); }
API cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
API cudaError_t cudaEventDestroy(cudaEvent_t event) { return result(cuEventDestroy(event)); }
API cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) { return result(cuEventElapsedTime(ms, begin, end)); }
API cudaError_t cudaEventQuery(cudaEvent_t event) { return static_cast<cudaError_t>(cuEventQuery(event)); }
API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return result(cuEventRecord(event, stream)); }
API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) { return result(cuEventRecord(event, stream)); }
API cudaError_t cudaEventSynchronize(cudaEvent_t event) { return result(cuEventSynchronize(event)); }

// ---- errors, and how libraries find the driver's functions

API cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
API cudaError_t cudaPeekAtLastError() { return last_error; }
API const char* cudaGetErrorName(cudaError_t error) { const char* name; cuGetErrorName(static_cast<CUresult>(error), &name); return name; }
API const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
API cudaError_t cudaProfilerStart() { return cudaSuccess; }
API cudaError_t cudaProfilerStop() { return cudaSuccess; }
API cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** found, unsigned version, unsigned long long flags,
                                                 cudaDriverEntryPointQueryResult* status) {
    CUdriverProcAddressQueryResult ignored;
    cuGetProcAddress(name, found, static_cast<int>(version), flags, &ignored);
    if (!*found) *found = reinterpret_cast<void*>(+[] { return CUDA_ERROR_NOT_SUPPORTED; });
    if (status) *status = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

// ---- kernels: nvcc has a program register the stub by which each is launched

API void** __cudaRegisterFatBinary(void*) { static void* handle; return &handle; }
API void __cudaRegisterFatBinaryEnd(void**) {}
API void __cudaUnregisterFatBinary(void**) {}
API void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
API char __cudaInitModule(void**) { return 1; }
API void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int, void*, void*, void*, void*, int*) { kernel_names()[stub] = name; }

struct Configuration {
    dim3 grid, block;
    size_t shared_bytes;
    void* stream;
};
static thread_local std::vector<Configuration> configurations;
API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void* stream) {
    configurations.push_back({grid, block, shared_bytes, stream});
    return 0;
}
API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
    Configuration last = configurations.back();
    configurations.pop_back();
    *grid = last.grid, *block = last.block, *shared_bytes = last.shared_bytes, *static_cast<void**>(stream) = last.stream;
    return cudaSuccess;
}

// torch's vectorized_elementwise_kernel<N, FillFunctor<T>, std::array<char*, 1>>(int number, FillFunctor<T> value, std::array<char*, 1> data)
struct Fill {
    char* to;
    long number;
    int bytes;
    char value[16];
    static void run(void* data) {
        std::unique_ptr<Fill> fill(static_cast<Fill*>(data));
        for (long i = 0; i < fill->number; i++) memcpy(fill->to + i * fill->bytes, fill->value, fill->bytes);
    }
};
// The same kernel of CUDAFunctorOnSelf_add<long>(other, alpha), with the arrays of result and source.
struct Add {
    long *to, *from, number, other, alpha;
    static void run(void* data) {
        std::unique_ptr<Add> add(static_cast<Add*>(data));
        for (long i = 0; i < add->number; i++) add->to[i] = add->from[i] + add->alpha * add->other;
    }
};

static int bytes_of(char mangled) {  // of a type by its letter in a mangled name
    switch (mangled) {
        case 'l': case 'd': return 8;
        case 'i': case 'f': return 4;
        case 's': return 2;
        default: return 1;
    }
}

static cudaError_t launch(const void* stub, void** values, cudaStream_t stream) {
    enter();
    auto found = kernel_names().find(stub);
    const std::string name = found == kernel_names().end() ? "a kernel that nobody registered" : found->second;
    const std::string fills = "FillFunctorI", adds = "CUDAFunctorOnSelf_addIlE";
    void (*run)(void*) = nullptr;
    void* data = nullptr;
    if (name.find("vectorized_elementwise") != std::string::npos) {
        if (size_t at = name.find(fills); at != std::string::npos) {
            auto* fill = new Fill{*static_cast<char**>(values[2]), *static_cast<int*>(values[0]), bytes_of(name[at + fills.size()]), {}};
            memcpy(fill->value, values[1], fill->bytes);
            run = Fill::run, data = fill;
        } else if (name.find(adds) != std::string::npos) {
            auto** arrays = static_cast<long**>(values[2]);
            auto* numbers = static_cast<long*>(values[1]);
            run = Add::run, data = new Add{arrays[0], arrays[1], *static_cast<int*>(values[0]), numbers[0], numbers[1]};
        }
    }
    return result(host_layer_launch(stream, ("torch's " + name.substr(0, 150)).c_str(), run, data));
}
API cudaError_t cudaLaunchKernel(const void* stub, dim3, dim3, void** values, size_t, cudaStream_t stream) { return launch(stub, values, stream); }
API cudaError_t cudaLaunchCooperativeKernel(const void* stub, dim3, dim3, void** values, size_t, cudaStream_t stream) { return launch(stub, values, stream); }
API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* stub, void** values) { return launch(stub, values, config->stream); }
API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
    *kernel = static_cast<cudaKernel_t>(const_cast<void*>(stub));
    return cudaSuccess;
}
API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void** values, size_t, cudaStream_t stream) { return launch(kernel, values, stream); }
API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) { return result(host_layer_launch(stream, nullptr, function, data)); }
API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, const void*) {
    *found = {};
    found->maxThreadsPerBlock = 1024, found->numRegs = 32, found->binaryVersion = found->ptxVersion = 90;
    return cudaSuccess;
}
API cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* number, const void*, int threads, size_t) { *number = 2048 / threads; return cudaSuccess; }
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* number, const void*, int threads, size_t, unsigned) {
    *number = 2048 / threads;
    return cudaSuccess;
}
