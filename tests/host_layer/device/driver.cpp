// libcuda.so.1: the driver's API over the device of device.h, as much of it as numba-cuda, cuda.core, torch and hoptrain ask for.
//
// Each call is recorded as "call: NAME". Calls for which the host waits for the device are also recorded as "wait: NAME", those that a capture refuses as
// "refused: NAME", and those that CUDA would answer with an error of addresses as "wrong: NAME".
#include "device.h"

#include <cstdio>
#include <cstring>
#include <dlfcn.h>

namespace {

thread_local std::vector<CUcontext> contexts;  // this thread's stack of them
CUcontext current() { return contexts.empty() ? nullptr : contexts.back(); }

// A function's name without the version that cuda.h appends.
std::string plain(std::string name) {
    size_t end = name.rfind("_v");
    return end == std::string::npos ? name : name.substr(0, end);
}

struct Call {
    std::unique_lock<std::mutex> lock;
    explicit Call(const char* function) : lock(device.mutex) {
        device.start();
        device.note("call: " + plain(function));
    }
};

}  // namespace

#define CALL Call call(__func__)
#define NOT_IN_CAPTURE \
    if (device.refuses(plain(__func__))) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
#define WAITS device.note("wait: " + plain(__func__))
#define API extern "C" __attribute__((visibility("default"))) CUresult

// ---- what tests/host_layer/record.py and kernels.py ask for

extern "C" {
typedef void (*KernelRunner)(const char* name, const void* parameters, const uint32_t* offsets, const uint32_t* sizes, int number, const uint32_t* grid,
                             const uint32_t* block, uint32_t shared_bytes);
static KernelRunner run_kernel = nullptr;

void host_layer_run_kernels_by(KernelRunner runner) {
    std::lock_guard lock(device.mutex);
    run_kernel = runner;
}

char* host_layer_memory(size_t* bytes) {
    std::lock_guard lock(device.mutex);
    device.start();
    *bytes = device.memory.bytes();
    return device.memory.begin();
}

// The record as lines "WHAT=NUMBER"; returns how many bytes that takes, and writes them if they fit.
size_t host_layer_record(char* to, size_t size) {
    std::lock_guard lock(device.mutex);
    std::string text;
    for (auto& [what, number] : device.record) text += what + "=" + std::to_string(number) + "\n";
    if (text.size() < size) strcpy(to, text.c_str());
    return text.size() + 1;
}

void host_layer_forget() {
    std::lock_guard lock(device.mutex);
    device.record.clear();
}

CUresult host_layer_launch(CUstream stream, const char* kernel, void (*run)(void*), void* data) {
    std::unique_lock lock(device.mutex);
    if (kernel) device.note(std::string("launch: ") + kernel);
    CUresult error = device.queue(stream_of(stream), {run ? std::function<void()>([=] { run(data); }) : nullptr});
    if (!error && !stream_of(stream)->capture) device.progress(lock);
    return error;
}
}

// ---- start, devices and contexts

API cuInit(unsigned) { CALL; return CUDA_SUCCESS; }
API cuDriverGetVersion(int* version) { CALL; *version = CUDA_VERSION; return CUDA_SUCCESS; }
API cuDeviceGetCount(int* number) { CALL; *number = static_cast<int>(device.contexts.size()); return CUDA_SUCCESS; }
API cuDeviceGet(CUdevice* found, int number) {
    CALL;
    if (number < 0 || number >= static_cast<int>(device.contexts.size())) return CUDA_ERROR_INVALID_DEVICE;
    *found = number;
    return CUDA_SUCCESS;
}
API cuDeviceGetName(char* name, int size, CUdevice number) { CALL; snprintf(name, size, "Played H100 %d", number); return CUDA_SUCCESS; }
API cuDeviceGetUuid(CUuuid* uuid, CUdevice number) { CALL; memset(uuid, number + 1, sizeof *uuid); return CUDA_SUCCESS; }
API cuDeviceTotalMem(size_t* bytes, CUdevice) { CALL; *bytes = device.memory.bytes(); return CUDA_SUCCESS; }

API cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
    CALL;
    static const std::map<int, int> known{
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
        {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2619000},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 50 << 20},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
        {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
        {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
    };
    auto found = known.find(attribute);
    *value = found == known.end() ? 0 : found->second;
    return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice number) {
    CALL; NOT_IN_CAPTURE;
    *context = &device.contexts.at(number);
    (*context)->references++;
    return CUDA_SUCCESS;
}
API cuDevicePrimaryCtxRelease(CUdevice number) { CALL; device.contexts.at(number).references--; return CUDA_SUCCESS; }
API cuDevicePrimaryCtxGetState(CUdevice number, unsigned* flags, int* active) {
    CALL;
    *flags = 0;
    *active = device.contexts.at(number).references > 0;
    return CUDA_SUCCESS;
}
API cuCtxGetCurrent(CUcontext* context) { CALL; *context = current(); return CUDA_SUCCESS; }
API cuCtxSetCurrent(CUcontext context) {
    CALL;
    if (!contexts.empty()) contexts.pop_back();
    if (context) contexts.push_back(context);
    return CUDA_SUCCESS;
}
API cuCtxPushCurrent(CUcontext context) {
    CALL;
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    contexts.push_back(context);
    return CUDA_SUCCESS;
}
API cuCtxPopCurrent(CUcontext* context) {
    CALL;
    if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (context) *context = current();
    contexts.pop_back();
    return CUDA_SUCCESS;
}
API cuCtxGetDevice(CUdevice* number) {
    CALL;
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    *number = current()->device;
    return CUDA_SUCCESS;
}
API cuCtxSynchronize() { CALL; NOT_IN_CAPTURE; WAITS; device.wait_for_all(call.lock); return CUDA_SUCCESS; }
API cuCtxGetStreamPriorityRange(int* least, int* greatest) { CALL; *least = 0; *greatest = -5; return CUDA_SUCCESS; }
API cuDeviceCanAccessPeer(int* can, CUdevice from, CUdevice to) { CALL; *can = from != to; return CUDA_SUCCESS; }

// ---- memory

API cuMemAlloc(CUdeviceptr* address, size_t bytes) {
    CALL; NOT_IN_CAPTURE;
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    device.note("memory of device: " + std::to_string(current()->device));
    return device.memory.allocate(address, bytes, Place::device);
}
API cuMemFree(CUdeviceptr address) {
    CALL; NOT_IN_CAPTURE;
    auto* found = device.memory.find(address, 1);
    if (!found || found->first != address || found->second.place != Place::device) { device.note("wrong: cuMemFree"); return CUDA_ERROR_INVALID_VALUE; }
    WAITS;
    device.wait_for_all(call.lock);
    device.memory.release(address);
    return CUDA_SUCCESS;
}
API cuMemGetInfo(size_t* left, size_t* bytes) {
    CALL;
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    *left = device.memory.left();
    *bytes = device.memory.bytes();
    return CUDA_SUCCESS;
}
API cuMemHostAlloc(void** address, size_t bytes, unsigned) {
    CALL; NOT_IN_CAPTURE;
    return device.memory.allocate(reinterpret_cast<CUdeviceptr*>(address), bytes, Place::pinned);
}
API cuMemFreeHost(void* address) {
    CALL; NOT_IN_CAPTURE;
    if (device.memory.place_of(address, 1) != Place::pinned) { device.note("wrong: cuMemFreeHost"); return CUDA_ERROR_INVALID_VALUE; }
    WAITS;
    device.wait_for_all(call.lock);
    device.memory.release(reinterpret_cast<CUdeviceptr>(address));
    return CUDA_SUCCESS;
}
API cuMemHostGetDevicePointer(CUdeviceptr* found, void* address, unsigned) {
    CALL;
    if (device.memory.place_of(address, 1) != Place::pinned) return CUDA_ERROR_INVALID_VALUE;
    *found = reinterpret_cast<CUdeviceptr>(address);
    return CUDA_SUCCESS;
}
API cuMemHostRegister(void* address, size_t bytes, unsigned) {
    CALL; NOT_IN_CAPTURE;
    if (!address || !bytes) return CUDA_ERROR_INVALID_VALUE;
    if (device.memory.place_of(address, bytes) != Place::pageable) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    device.memory.note(reinterpret_cast<CUdeviceptr>(address), {bytes, Place::pinned, true});
    return CUDA_SUCCESS;
}
API cuMemHostUnregister(void* address) {
    CALL; NOT_IN_CAPTURE;
    auto* found = device.memory.find(reinterpret_cast<CUdeviceptr>(address), 1);
    if (!found || !found->second.registered) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    WAITS;
    device.wait_for_all(call.lock);
    device.memory.release(reinterpret_cast<CUdeviceptr>(address));
    return CUDA_SUCCESS;
}

static CUresult attribute_of(CUpointer_attribute attribute, void* value, CUdeviceptr address) {
    Place place = device.memory.place_of(reinterpret_cast<void*>(address), 1);
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            *static_cast<unsigned*>(value) = place == Place::device ? CU_MEMORYTYPE_DEVICE : place == Place::pinned ? CU_MEMORYTYPE_HOST : 0;
            return place == Place::pageable ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER: *static_cast<CUdeviceptr*>(value) = address; return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int*>(value) = 0; return CUDA_SUCCESS;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}
API cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr address) { CALL; return attribute_of(attribute, value, address); }
API cuPointerGetAttributes(unsigned number, CUpointer_attribute* attributes, void** values, CUdeviceptr address) {
    CALL;
    for (unsigned i = 0; i < number; i++) attribute_of(attributes[i], values[i], address);  // of memory that CUDA does not know it tells zeros
    return CUDA_SUCCESS;
}
API cuMemGetAddressRange(CUdeviceptr* begin, size_t* bytes, CUdeviceptr address) {
    CALL;
    auto* found = device.memory.find(address, 1);
    if (!found) return CUDA_ERROR_NOT_FOUND;
    if (begin) *begin = found->first;
    if (bytes) *bytes = found->second.bytes;
    return CUDA_SUCCESS;
}

// ---- copies

static CUresult copy_queued(Call& call, const char* function, void* to, const void* from, size_t bytes, CUstream handle, bool waits) {
    CUstream stream = stream_of(handle);
    waits |= !stream->capture && device.memory.place_of(to, bytes) == Place::pageable;
    if (CUresult error = device.copy(stream, to, from, bytes)) return error;
    if (waits) {
        device.note("wait: " + plain(function));
        device.wait(call.lock, [=] { return stream->queue.empty(); }, stream);
    } else if (!stream->capture) {
        device.progress(call.lock);
    }
    return CUDA_SUCCESS;
}
#define COPY(to, from, stream, waits) copy_queued(call, __func__, (void*)(to), (const void*)(from), bytes, stream, waits)
#define KNOWN(address) \
    if (device.memory.place_of((void*)(address), bytes) == Place::pageable) { device.note("wrong: " + plain(__func__)); return CUDA_ERROR_INVALID_VALUE; }

API cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) { CALL; NOT_IN_CAPTURE; KNOWN(to); return COPY(to, from, nullptr, true); }
API cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) { CALL; NOT_IN_CAPTURE; KNOWN(from); return COPY(to, from, nullptr, true); }
API cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) { CALL; NOT_IN_CAPTURE; KNOWN(to); KNOWN(from); return COPY(to, from, nullptr, false); }
API cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) { CALL; KNOWN(to); return COPY(to, from, stream, false); }
API cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) { CALL; KNOWN(from); return COPY(to, from, stream, false); }
API cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) { CALL; KNOWN(to); KNOWN(from); return COPY(to, from, stream, false); }
API cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) { CALL; return COPY(to, from, stream, false); }
API cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
    CALL; KNOWN(to);
    return device.queue(stream_of(stream), {[=] { memset(reinterpret_cast<void*>(to), value, bytes); }});
}
API cuMemsetD8(CUdeviceptr to, unsigned char value, size_t bytes) {
    CALL; NOT_IN_CAPTURE; KNOWN(to);
    return device.queue(&device.legacy, {[=] { memset(reinterpret_cast<void*>(to), value, bytes); }});
}

// ---- streams and captures

API cuStreamCreate(CUstream* stream, unsigned flags) {
    CALL; NOT_IN_CAPTURE;
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    *stream = new CUstream_st{current(), !(flags & CU_STREAM_NON_BLOCKING), {}, {}};
    device.streams.insert(*stream);
    return CUDA_SUCCESS;
}
API cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int) { return cuStreamCreate(stream, flags); }
API cuStreamDestroy(CUstream stream) {
    CALL;
    device.wait(call.lock, [=] { return stream->queue.empty(); }, stream);
    device.streams.erase(stream);
    delete stream;
    return CUDA_SUCCESS;
}
API cuStreamSynchronize(CUstream handle) {
    CALL;
    CUstream stream = stream_of(handle);
    if (stream->capture) {
        stream->capture->broken = true;
        device.note("refused: cuStreamSynchronize");
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    WAITS;
    device.wait(call.lock, [=] { return stream->queue.empty(); }, stream);
    return CUDA_SUCCESS;
}
API cuStreamQuery(CUstream stream) { CALL; return stream_of(stream)->queue.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; }
API cuStreamGetCtx(CUstream stream, CUcontext* context) {
    CALL;
    *context = stream_of(stream) == &device.legacy ? current() : stream->context;
    return CUDA_SUCCESS;
}
API cuStreamGetFlags(CUstream stream, unsigned* flags) { CALL; *flags = stream_of(stream)->blocking ? 0 : CU_STREAM_NON_BLOCKING; return CUDA_SUCCESS; }
API cuStreamGetPriority(CUstream, int* priority) { CALL; *priority = 0; return CUDA_SUCCESS; }

static CUstreamCaptureStatus status_of(CUstream stream) {
    if (!stream->capture) return CU_STREAM_CAPTURE_STATUS_NONE;
    return stream->capture->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}
API cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) { CALL; *status = status_of(stream_of(stream)); return CUDA_SUCCESS; }
API cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph, const CUgraphNode** nodes,
                           const CUgraphEdgeData** edges, size_t* number) {
    CALL;
    *status = status_of(stream_of(stream));
    if (id) *id = reinterpret_cast<cuuint64_t>(stream_of(stream));
    if (graph) *graph = nullptr;
    if (nodes) *nodes = nullptr;
    if (edges) *edges = nullptr;
    if (number) *number = 0;
    return CUDA_SUCCESS;
}
API cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
    CALL;
    if (stream_of(stream) == &device.legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    stream->capture = Capture{{}, mode, std::this_thread::get_id()};
    return CUDA_SUCCESS;
}
API cuStreamEndCapture(CUstream stream, CUgraph* graph) {
    CALL;
    if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    Capture capture = std::move(*stream->capture);
    stream->capture.reset();
    *graph = capture.broken ? nullptr : new CUgraph_st{std::move(capture.work)};
    return capture.broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}
API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) { CALL; std::swap(*mode, thread_mode); return CUDA_SUCCESS; }

API cuGraphInstantiateWithFlags(CUgraphExec* whole, CUgraph graph, unsigned long long) { CALL; *whole = new CUgraphExec_st{graph->work}; return CUDA_SUCCESS; }
API cuGraphLaunch(CUgraphExec graph, CUstream stream) {
    CALL;
    for (const Work& work : graph->work)
        if (work.run)
            if (CUresult error = device.queue(stream_of(stream), {work.run})) return error;
    return CUDA_SUCCESS;
}
API cuGraphDestroy(CUgraph graph) { CALL; delete graph; return CUDA_SUCCESS; }
API cuGraphExecDestroy(CUgraphExec graph) { CALL; delete graph; return CUDA_SUCCESS; }

// ---- events

API cuEventCreate(CUevent* event, unsigned) {
    CALL;
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    auto made = std::make_shared<CUevent_st>();
    *event = made.get();
    device.events[*event] = made;
    return CUDA_SUCCESS;
}
API cuEventDestroy(CUevent event) { CALL; device.events.erase(event); return CUDA_SUCCESS; }
API cuEventRecord(CUevent event, CUstream stream) { CALL; return device.queue(stream_of(stream), {nullptr, nullptr, device.events.at(event)}); }
API cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned) { return cuEventRecord(event, stream); }
API cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
    CALL;
    return device.queue(stream_of(stream), {nullptr, device.events.at(event), nullptr, event->asked});
}
API cuEventSynchronize(CUevent handle) {
    CALL; NOT_IN_CAPTURE; WAITS;
    Event event = device.events.at(handle);
    device.wait(call.lock, [event, number = event->asked] { return event->done >= number; });
    return CUDA_SUCCESS;
}
API cuEventQuery(CUevent event) { CALL; NOT_IN_CAPTURE; return event->done >= event->asked ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; }
API cuEventElapsedTime(float* ms, CUevent begin, CUevent end) { CALL; *ms = static_cast<float>(end->at_ms - begin->at_ms); return CUDA_SUCCESS; }

// ---- kernels. A CUfunction is a CUkernel, and a CUmodule a CUlibrary.

API cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned, CUlibraryOption*, void**, unsigned) {
    CALL; NOT_IN_CAPTURE;
    if (memcmp(code, "\x7f" "ELF", 4)) return CUDA_ERROR_INVALID_IMAGE;
    *library = new CUlib_st;
    read_kernels(**library, static_cast<const char*>(code));
    return CUDA_SUCCESS;
}
API cuLibraryUnload(CUlibrary) { CALL; NOT_IN_CAPTURE; return CUDA_SUCCESS; }  // its kernels may still be queued
API cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
    CALL;
    auto found = library->kernels.find(name);
    if (found == library->kernels.end()) return CUDA_ERROR_NOT_FOUND;
    *kernel = &found->second;
    return CUDA_SUCCESS;
}
API cuLibraryGetKernelCount(unsigned* number, CUlibrary library) { CALL; *number = static_cast<unsigned>(library->kernels.size()); return CUDA_SUCCESS; }
API cuKernelGetFunction(CUfunction* function, CUkernel kernel) { CALL; *function = reinterpret_cast<CUfunction>(kernel); return CUDA_SUCCESS; }
API cuKernelGetLibrary(CUlibrary* library, CUkernel kernel) { CALL; *library = kernel->library; return CUDA_SUCCESS; }
API cuKernelGetName(const char** name, CUkernel kernel) { CALL; *name = kernel->name.c_str(); return CUDA_SUCCESS; }
API cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel, CUdevice) {
    CALL;
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
        case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = kernel->registers; break;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = 90; break;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = 49152; break;
        default: *value = 0;
    }
    return CUDA_SUCCESS;
}
API cuKernelSetAttribute(CUfunction_attribute, int, CUkernel, CUdevice) { CALL; return CUDA_SUCCESS; }
API cuKernelGetParamInfo(CUkernel kernel, size_t i, size_t* offset, size_t* bytes) {
    CALL;
    if (i >= kernel->parameters.size()) return CUDA_ERROR_INVALID_VALUE;
    *offset = kernel->parameters[i].offset;
    if (bytes) *bytes = kernel->parameters[i].size;
    return CUDA_SUCCESS;
}
API cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
    return cuKernelGetAttribute(value, attribute, reinterpret_cast<CUkernel>(function), 0);
}
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* number, CUfunction, int threads, size_t) { CALL; *number = 2048 / threads; return CUDA_SUCCESS; }

API cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** values, void**) {
    CALL;
    auto* kernel = reinterpret_cast<CUkernel>(function);
    CUstream stream = stream_of(config->hStream);
    if (stream != &device.legacy && stream->context != current()) { device.note("wrong: a launch with another device current"); return CUDA_ERROR_INVALID_CONTEXT; }
    const std::vector<uint32_t> grid{config->gridDimX, config->gridDimY, config->gridDimZ}, block{config->blockDimX, config->blockDimY, config->blockDimZ};
    const uint32_t threads = block[0] * block[1] * block[2];
    if (!threads || threads > 1024 || !grid[0] || !grid[1] || !grid[2] || grid[1] > 65535 || grid[2] > 65535 || config->sharedMemBytes > 49152) {
        device.note("wrong: a launch beyond the device's limits");
        return CUDA_ERROR_INVALID_VALUE;
    }
    device.note("launch: " + kernel->name);
    auto packed = std::make_shared<std::vector<char>>();
    std::vector<uint32_t> offsets, sizes;
    for (size_t i = 0; i < kernel->parameters.size(); i++) {
        auto [offset, size] = kernel->parameters[i];
        packed->resize(std::max<size_t>(packed->size(), offset + size));
        memcpy(packed->data() + offset, values[i], size);
        offsets.push_back(offset);
        sizes.push_back(size);
    }
    CUresult error = device.queue(stream, {[=, name = kernel->name, shared = config->sharedMemBytes] {
        if (run_kernel) run_kernel(name.c_str(), packed->data(), offsets.data(), sizes.data(), static_cast<int>(sizes.size()), grid.data(), block.data(), shared);
    }});
    if (!error && !stream->capture) device.progress(call.lock);
    return error;
}
API cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream,
                   void** values, void** extra) {
    CUlaunchConfig config{gx, gy, gz, bx, by, bz, shared, stream, nullptr, 0};
    return cuLaunchKernelEx(&config, function, values, extra);
}

// ---- how libraries find all these

API cuGetErrorName(CUresult error, const char** name) {
    static const std::map<int, const char*> known{{CUDA_SUCCESS, "CUDA_SUCCESS"}, {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"}, {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
        {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"}, {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"}};
    auto found = known.find(error);
    *name = found == known.end() ? "an error that the played device has no name for" : found->second;
    return CUDA_SUCCESS;
}
API cuGetErrorString(CUresult error, const char** text) { return cuGetErrorName(error, text); }
API cuGetProcAddress(const char* name, void** found, int, cuuint64_t, CUdriverProcAddressQueryResult* status) {
    CALL;
    Dl_info here;
    dladdr(reinterpret_cast<void*>(&cuInit), &here);
    static void* library = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    *found = nullptr;  // no two versions of a function that is played here take other arguments
    for (const char* version : {"_v3", "_v2", ""})
        if (!*found) *found = dlsym(library, (std::string(name) + version).c_str());
    if (status) *status = *found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
API cuGetExportTable(const void** table, const CUuuid*) { CALL; *table = nullptr; return CUDA_ERROR_NOT_FOUND; }
