// An NVTX injection library, for tests. It watches the thread that begins the first NVTX range of the process, and
// writes that thread's ranges to the file $NVTX_NAMES as lines "push NAME" and "pop".
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

namespace {

FILE* file = nullptr;
pthread_t first{};
bool begun = false;

bool IsFirst() {
  if (!begun) {
    begun = true;
    first = pthread_self();
  }
  return pthread_equal(first, pthread_self()) != 0;
}

int NVTX_API Push(const char* name) {
  if (IsFirst()) std::fprintf(file, "push %s\n", name);
  return 0;
}

int NVTX_API Pop() {
  if (IsFirst()) std::fprintf(file, "pop\n");
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const char* path = std::getenv("NVTX_NAMES");
  file = path == nullptr ? nullptr : std::fopen(path, "w");
  if (file == nullptr) return 0;
  setvbuf(file, nullptr, _IOLBF, 0);
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0) {
    return 0;
  }
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(Push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(Pop);
  return 1;
}
