// A stand-in for NVIDIA's library NVML, for tests. A program loads the stand-in instead of NVML if LD_LIBRARY_PATH
// names the stand-in's folder. The stand-in reports simulated GPUs: GPU i has the UUID
// GPU-00000000-0000-0000-0000-00000000000i, and many of its values are those in the code below plus i. Compiled with
// OLD_DRIVER, the stand-in lacks the functions that old drivers do not have. Environment variables:
//
//   NVML_GPUS=N             reports N GPUs instead of 2
//   NVML_DELAY_MS=N         each call takes N milliseconds longer
//   NVML_FAILS=NAME,NAME    these functions return NVML_ERROR_GPU_IS_LOST; "all": all functions except those that find
//                           the GPUs
//   NVML_INIT=CODE          nvmlInit_v2 returns CODE
//   NVML_CAPABILITY=MAJOR.MINOR  the compute capability of GPU 0, instead of 9.0
//   NVML_THROTTLE=BITS      the bit mask of throttle reasons of all GPUs
//   NVML_XID=NUMBER         the first nvmlEventSetWait_v2() reports the Xid error NUMBER, and later calls time out
//   NVML_CALLS=FILE         each call appends a line with the function's name to FILE
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static unsigned int Number(const char* variable, unsigned int otherwise) {
  const char* const text = getenv(variable);
  return text == NULL ? otherwise : (unsigned int)strtoul(text, NULL, 0);
}

static void Delay(void) {
  const long ms = (long)Number("NVML_DELAY_MS", 0);
  const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

static void Count(const char* name) {
  const char* const path = getenv("NVML_CALLS");
  FILE* const file = path == NULL ? NULL : fopen(path, "a");
  if (file == NULL) return;
  fprintf(file, "%s\n", name);
  fclose(file);
}

// Returns whether NVML_FAILS lists the function `name`.
static int Fails(const char* name) {
  const char* const list = getenv("NVML_FAILS");
  if (list == NULL) return 0;
  if (strcmp(list, "all") == 0) return 1;
  const size_t length = strlen(name);
  for (const char* at = list; (at = strstr(at, name)) != NULL; at += length) {
    if ((at == list || at[-1] == ',') && (at[length] == 0 || at[length] == ',')) return 1;
  }
  return 0;
}

static nvmlReturn_t Begin(const char* name) {
  Count(name);
  Delay();
  return Fails(name) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

#define BEGIN()                                \
  do {                                         \
    const nvmlReturn_t code = Begin(__func__); \
    if (code != NVML_SUCCESS) return code;     \
  } while (0)

// Begins each function that finds the GPUs. NVML_FAILS does not apply to these functions.
#define BEGIN_ALWAYS() \
  do {                 \
    Count(__func__);   \
    Delay();           \
  } while (0)

// Returns the GPU's number, from 0. The handle of a GPU is its number plus 1.
static unsigned int NumberOf(nvmlDevice_t gpu) { return (unsigned int)(size_t)gpu - 1; }

nvmlReturn_t nvmlInit_v2(void) {
  BEGIN_ALWAYS();
  return (nvmlReturn_t)Number("NVML_INIT", NVML_SUCCESS);
}

const char* nvmlErrorString(nvmlReturn_t code) {
  return code == NVML_ERROR_LIB_RM_VERSION_MISMATCH ? "Driver/library version mismatch"
                                                    : "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int length) {
  BEGIN();
  snprintf(version, length, "580.95.05");
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count) {
  BEGIN_ALWAYS();
  *count = Number("NVML_GPUS", 2);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* gpu) {
  BEGIN_ALWAYS();
  *gpu = (nvmlDevice_t)(size_t)(index + 1);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t gpu, char* uuid, unsigned int length) {
  BEGIN_ALWAYS();
  snprintf(uuid, length, "GPU-00000000-0000-0000-0000-%012u", NumberOf(gpu));
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t gpu, char* name, unsigned int length) {
  (void)gpu;
  BEGIN();
  snprintf(name, length, "Stand-in GPU");
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t gpu, int* major, int* minor) {
  BEGIN();
  const char* const text = getenv("NVML_CAPABILITY");
  if (NumberOf(gpu) != 0 || text == NULL || sscanf(text, "%d.%d", major, minor) != 2) {
    *major = 9;
    *minor = 0;
  }
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t gpu, nvmlUtilization_t* use) {
  BEGIN();
  use->gpu = 90 + NumberOf(gpu);
  use->memory = 40 + NumberOf(gpu);
  return NVML_SUCCESS;
}

static unsigned long long Gib(unsigned int gib) { return (unsigned long long)gib << 30; }

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t gpu, nvmlMemory_t* memory) {
  BEGIN();
  memory->total = Gib(80);
  memory->used = Gib(72 + NumberOf(gpu));  // includes 1 GiB of the driver
  memory->free = memory->total - memory->used;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t gpu, unsigned int* milliwatts) {
  BEGIN();
  *milliwatts = 684000 + 1000 * NumberOf(gpu);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t gpu, unsigned int* milliwatts) {
  (void)gpu;
  BEGIN();
  *milliwatts = 700000;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t gpu, nvmlTemperatureSensors_t sensor,
                                      unsigned int* celsius) {
  BEGIN();
  if (sensor != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
  *celsius = 64 + NumberOf(gpu);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t gpu, nvmlClockType_t clock, unsigned int* mhz) {
  BEGIN();
  *mhz = (clock == NVML_CLOCK_SM ? 1755 : 2619) + NumberOf(gpu);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t gpu, nvmlClockType_t clock, unsigned int* mhz) {
  (void)gpu;
  BEGIN();
  *mhz = clock == NVML_CLOCK_SM ? 1980 : 2700;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t gpu,
                                                       unsigned long long* reasons) {
  (void)gpu;
  BEGIN();
  *reasons = Number("NVML_THROTTLE", 0);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t gpu, nvmlPcieUtilCounter_t counter,
                                         unsigned int* kilobytes_per_s) {
  (void)gpu;
  BEGIN();
  *kilobytes_per_s = counter == NVML_PCIE_UTIL_TX_BYTES ? 300000 : 1500000;
  return NVML_SUCCESS;
}

#ifndef OLD_DRIVER
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t gpu, nvmlMemory_v2_t* memory) {
  BEGIN();
  if (memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  memory->total = Gib(80);
  memory->reserved = Gib(1);
  memory->used = Gib(71 + NumberOf(gpu));
  memory->free = memory->total - memory->used - memory->reserved;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t gpu,
                                                 unsigned long long* millijoules) {
  BEGIN();
  *millijoules = 5000000 + NumberOf(gpu);
  return NVML_SUCCESS;
}

// Reports the field of the bytes sent over NVLink for GPU 0, and no other field. The value grows by 1 GiB with each
// call. Like driver 580.159, this function reads one element past the `count` fields, and writes to that element if it
// holds the number of a field.
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t gpu, int count, nvmlFieldValue_t* fields) {
  BEGIN();
  static unsigned long long kibibytes = 0;
  kibibytes += 1 << 20;
  for (int i = 0; i < count; ++i) {
    fields[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    if (fields[i].fieldId != NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX || NumberOf(gpu) != 0) continue;
    fields[i].nvmlReturn = NVML_SUCCESS;
    fields[i].valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    fields[i].value.ullVal = kibibytes;
  }
  if (fields[count].fieldId > 0 && fields[count].fieldId < NVML_FI_MAX) {
    fields[count].timestamp = 0x6614d7f5638f3;
  }
  return NVML_SUCCESS;
}

// Reports two processes: the calling process, and its parent process.
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t gpu, unsigned int* count,
                                                     nvmlProcessInfo_t* processes) {
  BEGIN();
  const unsigned int room = *count;
  *count = 2;
  if (room < *count) return NVML_ERROR_INSUFFICIENT_SIZE;
  processes[0].pid = (unsigned int)getpid();
  processes[0].usedGpuMemory = Gib(60 + NumberOf(gpu));
  processes[1].pid = (unsigned int)getppid();
  processes[1].usedGpuMemory = (unsigned long long)NVML_VALUE_NOT_AVAILABLE;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t* set) {
  BEGIN();
  *set = (nvmlEventSet_t)(size_t)1;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
  (void)set;
  BEGIN();
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t gpu, unsigned long long types,
                                      nvmlEventSet_t set) {
  (void)gpu;
  (void)set;
  BEGIN();
  return types == nvmlEventTypeXidCriticalError ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t* event,
                                 unsigned int timeout_ms) {
  (void)set;
  (void)timeout_ms;
  BEGIN();
  static int told = 0;
  if (getenv("NVML_XID") == NULL || told++ != 0) return NVML_ERROR_TIMEOUT;
  event->eventType = nvmlEventTypeXidCriticalError;
  event->eventData = Number("NVML_XID", 0);
  return NVML_SUCCESS;
}
#endif
