// A CUDA device played in host memory: streams, events, memory, kernels, and a record of what the host asked for.
//
// driver.cpp puts CUDA's driver API on it and runtime.cpp the runtime API, so that torch's CUDA build and numba-cuda run unchanged on a machine without a
// GPU. Work is queued by stream. It runs a little at each launch and otherwise when the host waits, in an order drawn at random among those that streams and
// events permit, so code that relies on luck fails. Kernels run by a callback into Python or not at all; no speed is played.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <cuda.h>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

struct CUctx_st {
    int device;
    int references = 0;
};

struct CUevent_st {
    uint64_t asked = 0;  // how often it was recorded by the host
    uint64_t done = 0;   // the latest of these that the device has reached
    double at_ms = 0;    // when that was, in invented time
    CUstream captured_by = nullptr;  // the capture that it was last recorded in
};
using Event = std::shared_ptr<CUevent_st>;

// One thing that a stream does: run a function, wait for an event, or record one.
struct Work {
    std::function<void()> run;
    Event waits_for, records;
    uint64_t number = 0;  // of the event's recording
    uint64_t order = 0;   // in which the host queued it
};

struct CUgraph_st {
    std::vector<Work> work;
};
struct CUgraphExec_st {
    std::vector<Work> work;
};

struct Capture {
    std::vector<Work> work;
    CUstreamCaptureMode mode;
    std::thread::id thread;
    bool broken = false;  // something was done that no capture may hold
};

struct CUstream_st {
    CUcontext context;
    bool blocking;  // it and the legacy stream wait for each other
    std::deque<Work> queue;
    std::optional<Capture> capture;
};

// Where one of a kernel's parameters lies among the packed ones.
struct Parameter {
    uint32_t offset, size;
};
struct CUkern_st {
    std::string name;
    CUlibrary library;
    std::vector<Parameter> parameters;
    int registers = 32;
};
struct CUlib_st {
    std::map<std::string, CUkern_st> kernels;
};
void read_kernels(CUlib_st& library, const char* cubin);  // from the .nv.info sections

enum class Place { pageable, pinned, device };
inline constexpr size_t ALIGNMENT = 512;

struct Allocation {
    size_t bytes;
    Place place;
    bool registered = false;  // the host's own memory, page-locked later
};

class Memory {
public:
    void start(size_t bytes);
    CUresult allocate(CUdeviceptr* address, size_t bytes, Place place);
    void release(CUdeviceptr address);                     // the allocation must exist
    void note(CUdeviceptr address, Allocation allocation)  // what CUDA did not allocate
    {
        allocations_[address] = allocation;
    }
    // The allocation that holds all these bytes, or null.
    const std::pair<const CUdeviceptr, Allocation>* find(CUdeviceptr address, size_t bytes) const;
    Place place_of(const void* address, size_t bytes) const;
    size_t bytes() const { return bytes_; }
    size_t left() const { return bytes_ - used_; }
    char* begin() const { return begin_; }

private:
    char* begin_ = nullptr;
    size_t bytes_ = 0, used_ = 0;
    std::map<CUdeviceptr, Allocation> allocations_;
    std::multimap<size_t, CUdeviceptr> free_;  // by size
};

class Device {
public:
    std::mutex mutex;  // held by each call of the API, but not while work runs
    std::map<std::string, long> record;
    Memory memory;
    std::vector<CUctx_st> contexts;  // one for each device
    CUstream_st legacy{nullptr, true, {}, {}};
    std::set<CUstream> streams;
    std::map<CUevent, Event> events;
    std::mt19937_64 random;
    bool started = false;

    void start();  // by environment variables: HOST_LAYER_DEVICES, HOST_LAYER_MB, HOST_LAYER_SEED
    void note(const std::string& what) { record[what]++; }

    CUresult queue(CUstream stream, Work work);
    CUresult copy(CUstream stream, void* to, const void* from, size_t bytes);
    void progress(std::unique_lock<std::mutex>& lock);  // run a few things that are ready
    using Condition = std::function<bool()>;
    void wait(std::unique_lock<std::mutex>& lock, const Condition& done, CUstream first = nullptr);
    void wait_for_all(std::unique_lock<std::mutex>& lock);
    bool is_idle() const;
    bool refuses(const std::string& what);  // whether this thread captures, and may therefore not call it

private:
    std::condition_variable ran_;
    std::thread::id runner_;  // the thread that runs work now
    bool running_ = false;
    uint64_t order_ = 0;
    double clock_ms_ = 0;

    bool is_ready(const CUstream_st& stream) const;
    bool run_one(std::unique_lock<std::mutex>& lock, CUstream first);
};

extern Device device;
extern thread_local CUstreamCaptureMode thread_mode;  // of cuThreadExchangeStreamCaptureMode

inline CUstream stream_of(CUstream handle) {  // null, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are one stream here
    return reinterpret_cast<uintptr_t>(handle) <= 2 ? &device.legacy : handle;
}

// For runtime.cpp: have a stream run a kernel or a function of the host's that the driver's API does not know.
extern "C" CUresult host_layer_launch(CUstream stream, const char* kernel, void (*run)(void*), void* data);
