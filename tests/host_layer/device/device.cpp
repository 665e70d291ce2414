// The device itself; see device.h.
#include "device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

Device device;
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static size_t from_environment(const char* name, size_t otherwise) {
    const char* text = getenv(name);
    return text ? strtoull(text, nullptr, 10) : otherwise;
}

void Device::start() {
    if (started) return;
    started = true;
    random.seed(from_environment("HOST_LAYER_SEED", 0));
    memory.start(from_environment("HOST_LAYER_MB", 256) << 20);
    for (size_t i = 0; i < from_environment("HOST_LAYER_DEVICES", 1); i++) contexts.push_back({static_cast<int>(i)});
}

// ---- streams

bool Device::is_ready(const CUstream_st& stream) const {
    if (stream.queue.empty()) return false;
    const Work& work = stream.queue.front();
    if (work.waits_for && work.waits_for->done < work.number) return false;
    auto has_earlier = [&](const CUstream_st& other) { return !other.queue.empty() && other.queue.front().order < work.order; };
    if (&stream == &legacy) return std::none_of(streams.begin(), streams.end(), [&](CUstream other) { return other->blocking && has_earlier(*other); });
    return !stream.blocking || !has_earlier(legacy);
}

// Run what stands at the front of a stream, by preference of `first`; returns whether anything was ready.
bool Device::run_one(std::unique_lock<std::mutex>& lock, CUstream first) {
    std::vector<CUstream> ready;
    if (is_ready(legacy)) ready.push_back(&legacy);
    std::copy_if(streams.begin(), streams.end(), std::back_inserter(ready), [&](CUstream stream) { return is_ready(*stream); });
    if (ready.empty()) return false;
    bool prefers = first && is_ready(*first) && random() % 4;
    CUstream stream = prefers ? first : ready[random() % ready.size()];
    Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    running_ = true;
    runner_ = std::this_thread::get_id();
    lock.unlock();  // a kernel's callback needs Python's lock, whose owner may stand before ours
    if (work.run) work.run();
    lock.lock();
    running_ = false;
    clock_ms_ += 0.001;
    if (work.records) {
        work.records->done = std::max(work.records->done, work.number);
        work.records->at_ms = clock_ms_;
    }
    ran_.notify_all();
    return true;
}

void Device::wait(std::unique_lock<std::mutex>& lock, const Condition& done, CUstream first) {
    while (!done()) {
        if (running_ && runner_ == std::this_thread::get_id()) {
            note("wrong: a kernel waits for the device");
            return;
        }
        if (running_) ran_.wait(lock);
        else if (!run_one(lock, first)) {
            fprintf(stderr, "host_layer: the host waits for what no stream will ever do\n");
            abort();
        }
    }
}

bool Device::is_idle() const {
    return !running_ && legacy.queue.empty() && std::all_of(streams.begin(), streams.end(), [](CUstream stream) { return stream->queue.empty(); });
}

void Device::wait_for_all(std::unique_lock<std::mutex>& lock) {
    wait(lock, [this] { return is_idle(); });
}

void Device::progress(std::unique_lock<std::mutex>& lock) {
    static const int number[] = {0, 0, 1, 2, 4};
    for (int left = number[random() % 5]; left && !running_ && run_one(lock, nullptr); left--) {}
}

CUresult Device::queue(CUstream stream, Work work) {
    if (stream == &legacy)
        for (CUstream other : streams)
            if (other->blocking && other->capture) {
                other->capture->broken = true;
                note("refused: the legacy stream beside a capture");
                return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
            }
    if (stream->capture && stream->capture->broken) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->capture && work.waits_for && work.waits_for->asked && work.waits_for->captured_by != stream) {
        stream->capture->broken = true;
        note("refused: a capture that waits for an event outside of it");
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (work.records) {
        work.number = ++work.records->asked;
        work.records->captured_by = stream->capture ? stream : nullptr;
    }
    work.order = ++order_;
    if (stream->capture) stream->capture->work.push_back(std::move(work));
    else stream->queue.push_back(std::move(work));
    return CUDA_SUCCESS;
}

// Queue a copy. From pageable memory it is staged at once, as the driver does; the caller waits for one to pageable memory.
CUresult Device::copy(CUstream stream, void* to, const void* from, size_t bytes) {
    bool is_from_host = memory.place_of(from, bytes) == Place::pageable, is_to_host = memory.place_of(to, bytes) == Place::pageable;
    if (is_from_host || is_to_host) note(std::string("pageable: ") + (is_from_host ? "to the device" : "to the host"));
    if (!stream->capture && is_from_host) {
        auto staged = std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
        return queue(stream, {[=] { memcpy(to, staged->data(), bytes); }});
    }
    if (stream->capture && (is_from_host || is_to_host)) note("refused: a pageable copy in a capture");
    return queue(stream, {[=] { memmove(to, from, bytes); }});
}

bool Device::refuses(const std::string& what) {
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
    for (CUstream stream : streams) {
        if (!stream->capture || stream->capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        bool is_own = stream->capture->thread == std::this_thread::get_id();
        bool is_for_all = stream->capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (is_own || is_for_all) {
            stream->capture->broken = true;
            note("refused: " + what);
            return true;
        }
    }
    return false;
}

// ---- memory

void Memory::start(size_t bytes) {
    bytes_ = bytes;
    used_ = (1 << 20) + 4096;  // the interpreter of kernels takes addresses below for shared memory
    begin_ = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}

static size_t rounded(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

CUresult Memory::allocate(CUdeviceptr* address, size_t bytes, Place place) {
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    auto found = free_.find(rounded(bytes));
    if (found != free_.end()) {
        *address = found->second;
        free_.erase(found);
    } else {
        size_t begin = rounded(used_);
        if (begin + rounded(bytes) + ALIGNMENT > bytes_) return CUDA_ERROR_OUT_OF_MEMORY;
        *address = reinterpret_cast<CUdeviceptr>(begin_ + begin);
        used_ = begin + rounded(bytes) + ALIGNMENT;  // with a gap behind, where accesses out of bounds go
    }
    memset(reinterpret_cast<void*>(*address), 0xA5, rounded(bytes));  // a pattern that is neither zero nor NaN
    allocations_[*address] = {bytes, place};
    return CUDA_SUCCESS;
}

void Memory::release(CUdeviceptr address) {
    Allocation gone = allocations_.at(address);
    allocations_.erase(address);
    if (gone.registered) return;
    memset(reinterpret_cast<void*>(address), 0xDD, gone.bytes);
    free_.emplace(rounded(gone.bytes), address);
}

const std::pair<const CUdeviceptr, Allocation>* Memory::find(CUdeviceptr address, size_t bytes) const {
    auto next = allocations_.upper_bound(address);
    if (next == allocations_.begin()) return nullptr;
    auto& found = *--next;
    return address + bytes <= found.first + found.second.bytes ? &found : nullptr;
}

Place Memory::place_of(const void* address, size_t bytes) const {
    auto* found = find(reinterpret_cast<CUdeviceptr>(address), bytes);
    return found ? found->second.place : Place::pageable;
}

// ---- kernels

// An ELF file's numbers by their place in it.
template <typename T> static T at(const char* place) {
    T value;
    memcpy(&value, place, sizeof value);
    return value;
}

void read_kernels(CUlib_st& library, const char* cubin) {
    constexpr uint8_t WITH_SIZE = 4, PARAMETER = 0x17, REGISTERS = 0x2f;  // of NVIDIA's attributes: a format, EIATTR_KPARAM_INFO and EIATTR_REGCOUNT
    const char* sections = cubin + at<uint64_t>(cubin + 0x28);
    const auto size = at<uint16_t>(cubin + 0x3A), number = at<uint16_t>(cubin + 0x3C), of_names = at<uint16_t>(cubin + 0x3E);
    const char* names = cubin + at<uint64_t>(sections + of_names * size + 0x18);
    const std::string prefix = ".nv.info.";
    for (int i = 0; i < number; i++) {
        const char* section = sections + i * size;
        std::string name = names + at<uint32_t>(section);
        if (name.compare(0, prefix.size(), prefix)) continue;
        CUkern_st kernel{name.substr(prefix.size()), &library, {}};
        std::map<int, Parameter> parameters;
        const char* entry = cubin + at<uint64_t>(section + 0x18);
        const char* end = entry + at<uint64_t>(section + 0x20);
        while (entry + 4 <= end) {
            const auto format = at<uint8_t>(entry), attribute = at<uint8_t>(entry + 1);
            const char* value = entry + 4;
            if (format == WITH_SIZE && attribute == PARAMETER) parameters[at<uint16_t>(value + 4)] = {at<uint16_t>(value + 6), at<uint32_t>(value + 8) >> 18};
            if (format == WITH_SIZE && attribute == REGISTERS) kernel.registers = at<int>(value + 4);
            entry = value + (format == WITH_SIZE ? at<uint16_t>(entry + 2) : 0);
        }
        for (auto& [_, parameter] : parameters) kernel.parameters.push_back(parameter);
        library.kernels[kernel.name] = kernel;
    }
}
