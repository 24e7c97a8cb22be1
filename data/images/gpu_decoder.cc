#include "data/images/gpu_decoder.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/error.h"
#include "data/images/nvjpeg.h"
#include "data/images/resize_on_gpu.h"

namespace lockstep {
namespace {

constexpr int64_t kChannels = 3;

// AllocatePinned() and FreePinned() allocate and free page-locked memory for nvJPEG. They return 0 if they succeed.
int AllocatePinned(void* /*context*/, void** memory, size_t bytes, cudaStream_t /*stream*/) {
  return cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
}

int FreePinned(void* /*context*/, void* memory, size_t /*bytes*/, cudaStream_t /*stream*/) {
  return cudaFreeHost(memory);
}

// Allocate() and Free() allocate and free GPU memory for nvJPEG. They return 0 if they succeed. They use PyTorch's
// allocator: this allocator does not return free memory to the system, so a second allocator might get none.
int Allocate(void* /*context*/, void** memory, size_t bytes, cudaStream_t stream) {
  try {
    *memory = c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, stream);
    return 0;
  } catch (const std::exception&) {  // an exception must not pass through nvJPEG's code
    return 1;
  }
}

int Free(void* /*context*/, void* memory, size_t /*bytes*/, cudaStream_t /*stream*/) {
  c10::cuda::CUDACachingAllocator::raw_delete(memory);
  return 0;
}

void Check(nvjpegStatus_t status, const char* what) {
  if (status == NVJPEG_STATUS_SUCCESS) return;
  if (status == NVJPEG_STATUS_ALLOCATOR_FAILURE) {
    throw BugError(
        "nvJPEG ({}) got no memory on the GPU: take smaller batches, or set data.images.decode: "
        "CPU",
        what);
  }
  throw BugError("nvJPEG ({}) failed with status {}: set data.images.decode: CPU", what,
                 static_cast<int>(status));
}

nvjpegHandle_t NewHandle() {
  nvjpegDevAllocatorV2_t on_gpu{.dev_malloc = &Allocate, .dev_free = &Free, .dev_ctx = nullptr};
  nvjpegPinnedAllocatorV2_t pinned{
      .pinned_malloc = &AllocatePinned, .pinned_free = &FreePinned, .pinned_ctx = nullptr};
  nvjpegHandle_t handle = nullptr;
  Check(LoadedNvjpeg().CreateExV2(NVJPEG_BACKEND_GPU_HYBRID, &on_gpu, &pinned,
                                  NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION, &handle),
        "start");
  return handle;
}

// Returns the nvJPEG handle of the device, which all threads of the process share. The first call makes the handle. The
// handle is never destroyed, because the CUDA driver may shut down before the destructors of static objects run.
nvjpegHandle_t HandleOf(at::Device device) {
  static std::mutex mutex;
  static auto& handles = *new std::map<at::DeviceIndex, nvjpegHandle_t>;
  const std::lock_guard lock(mutex);
  const c10::cuda::CUDAGuard guard(device);
  nvjpegHandle_t& handle = handles[device.index()];
  if (handle == nullptr) handle = NewHandle();
  return handle;
}

int64_t BytesOf(const ImageSize& size) { return kChannels * size.width * size.height; }

}  // namespace

struct GpuDecoder::State {
  // The maximum number of bytes of pixels that one call of nvJPEG decodes. If the images of Cut() have more bytes, they
  // are decoded in several calls.
  static constexpr int64_t kMostBytes = int64_t{256} << 20;

  at::Device device;
  // The stream has a high priority, so that its kernels, which have few blocks, do not wait for training kernels.
  c10::cuda::CUDAStream stream;
  at::cuda::CUDAEvent done{cudaEventDisableTiming | cudaEventBlockingSync};
  nvjpegHandle_t handle;
  nvjpegJpegState_t decoding = nullptr;
  int64_t initialized_for = 0;  // the number of files for which `decoding` is set up; 0: none
  at::Tensor pixels;            // the decoded images, one after the other
  at::Tensor cut;               // the cropped and resized images
  at::Tensor jobs, pinned_jobs;

  explicit State(at::Device device)
      : device(device),
        stream(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index())),
        handle(HandleOf(device)) {
    Check(LoadedNvjpeg().JpegStateCreate(handle, &decoding), "state");
  }

  ~State() {
    cudaStreamSynchronize(stream.stream());
    LoadedNvjpeg().JpegStateDestroy(decoding);
  }

  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void Wait() {
    done.record(stream);
    done.synchronize();
  }

  static void Reserve(at::Tensor& memory, int64_t bytes, at::TensorOptions options) {
    if (memory.defined() && memory.numel() >= bytes) return;
    memory.reset();
    memory = at::empty({bytes}, options.dtype(at::kByte));
  }

  // Decodes the files of the jobs all[i], for each i in `wanted`, to the pixels of places[i].source. Returns false if
  // nvJPEG could not decode one of them.
  bool Decode(std::span<const Job> all, std::span<const int64_t> wanted,
              std::span<const GpuResize> places) {
    const Nvjpeg& nvjpeg = LoadedNvjpeg();
    // nvJPEG decodes Huffman codes on the GPU if a batch has at least this many files, and otherwise on this thread. If
    // there are fewer files, but at least a third of kOnGpu, it is quicker to fill the batch with repeated files. A
    // repeated file is decoded to the same pixels in the same place.
    constexpr int64_t kOnGpu = 51;
    const auto different = static_cast<int64_t>(wanted.size());
    const int64_t count = 3 * different < kOnGpu ? different : std::max(different, kOnGpu);
    if (count != initialized_for) {
      initialized_for = 0;
      Check(nvjpeg.DecodeBatchedInitialize(handle, decoding, static_cast<int>(count), 1,
                                           NVJPEG_OUTPUT_RGBI),
            "batch");
      initialized_for = count;
    }
    std::vector<const unsigned char*> files;
    std::vector<size_t> bytes;
    std::vector<nvjpegImage_t> images(count);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t which = wanted[i % different];
      const Job& job = all[which];
      const ImageView& place = places[which].source;
      files.push_back(reinterpret_cast<const unsigned char*>(job.file.data()));
      bytes.push_back(job.file.size());
      images[i].channel[0] = const_cast<unsigned char*>(place.pixels);
      images[i].pitch[0] = place.stride;
    }
    const nvjpegStatus_t status = nvjpeg.DecodeBatched(handle, decoding, files.data(), bytes.data(),
                                                       images.data(), stream.stream());
    if (status == NVJPEG_STATUS_SUCCESS) return true;
    if (status == NVJPEG_STATUS_ALLOCATOR_FAILURE) Check(status, "decoding");
    Wait();
    initialized_for = 0;  // after an error, the state must be set up again
    return false;
  }

  // Decodes the files of the jobs `wanted` as Decode() does. If a file cannot be decoded, sets the source of its place
  // to a view without pixels.
  void DecodeWhatCanBe(std::span<const Job> all, std::span<const int64_t> wanted,
                       std::span<GpuResize> places) {
    if (Decode(all, wanted, places)) return;
    for (const int64_t i : wanted) {
      if (!Decode(all, std::span(&i, 1), places)) places[i].source = {};
    }
  }
};

std::string GpuDecoder::Unavailable(at::Device device) {
  if (!device.is_cuda()) return "ranks compute on the CPU";
  return LoadedNvjpeg().why_not;
}

GpuDecoder::GpuDecoder(at::Device device) {
  if (const std::string why = Unavailable(device); !why.empty()) {
    throw UsageError("decoding images on {}: {}", device.str(), why);
  }
  const c10::cuda::CUDAGuard guard(device);
  state_ = std::make_unique<State>(device);
}

GpuDecoder::~GpuDecoder() {
  const c10::cuda::CUDAGuard guard(state_->device);
  state_.reset();
}

at::Device GpuDecoder::device() const { return state_->device; }

std::vector<bool> GpuDecoder::Cut(std::span<const Job> jobs, int64_t width, int64_t height,
                                  uint8_t* output) {
  State& state = *state_;
  const c10::cuda::CUDAStreamGuard guard(state.stream);
  const at::TensorOptions on_gpu(state.device);
  const auto count = static_cast<int64_t>(jobs.size());
  const int64_t output_bytes = kChannels * width * height;
  State::Reserve(state.cut, count * output_bytes, on_gpu);
  const auto jobs_bytes = static_cast<int64_t>(count * sizeof(GpuResize));
  State::Reserve(state.jobs, jobs_bytes, on_gpu);
  State::Reserve(state.pinned_jobs, jobs_bytes, at::TensorOptions().pinned_memory(true));
  const std::span resizes(reinterpret_cast<GpuResize*>(state.pinned_jobs.data_ptr<uint8_t>()),
                          count);

  std::vector<bool> is_cut(count);
  for (int64_t begin = 0, end = 0; begin < count; begin = end) {
    int64_t bytes = 0;
    std::vector<int64_t> wanted;
    for (; end < count; ++end) {
      if (jobs[end].file.empty()) continue;
      if (bytes > 0 && bytes + BytesOf(jobs[end].size) > State::kMostBytes) break;
      bytes += BytesOf(jobs[end].size);
      wanted.push_back(end);
    }
    State::Reserve(state.pixels, bytes, on_gpu);
    std::fill(resizes.begin() + begin, resizes.begin() + end, GpuResize{});
    const auto* place = state.pixels.const_data_ptr<uint8_t>();
    for (const int64_t i : wanted) {
      const ImageSize& size = jobs[i].size;
      resizes[i] = {.source = {.pixels = place,
                               .width = size.width,
                               .height = size.height,
                               .stride = kChannels * size.width},
                    .box = jobs[i].box,
                    .mirror = jobs[i].mirror};
      place += BytesOf(size);
    }
    if (!wanted.empty()) state.DecodeWhatCanBe(jobs, wanted, resizes);
    for (const int64_t i : wanted) is_cut[i] = resizes[i].source.pixels != nullptr;

    auto* const on_device = reinterpret_cast<GpuResize*>(state.jobs.data_ptr<uint8_t>()) + begin;
    uint8_t* const cut = state.cut.data_ptr<uint8_t>() + begin * output_bytes;
    const cudaStream_t stream = state.stream.stream();
    C10_CUDA_CHECK(cudaMemcpyAsync(on_device, &resizes[begin], (end - begin) * sizeof(GpuResize),
                                   cudaMemcpyHostToDevice, stream));
    LaunchResize(on_device, end - begin, width, height, cut, stream);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    C10_CUDA_CHECK(cudaMemcpyAsync(output + begin * output_bytes, cut, (end - begin) * output_bytes,
                                   cudaMemcpyDeviceToHost, stream));
    state.Wait();
  }
  return is_cut;
}

}  // namespace lockstep
