// Reads arrays from NumPy's .npy files.
//
// what can fail -> what the caller sees -> the test that shows it (data/arrays/npy_test.cc)
//   a file that is missing, empty or truncated; an array of another type or shape; fewer or more
//   numbers than its header says -> Error (kData) with path -> Npy.RefusesWhatItCannotRead
//   a label that is no integer or outside [0, classes), a multi-label target that is not 0 or 1, a mask of another size
//   than its image, tokens that are no integers
//     -> Error (kData) with path and, if a single number is wrong, record
//     -> Npy.RefusesTargetsThatDoNotFit, Npy.RefusesMasksAndTextsThatDoNotFit
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset/dataset.h"

namespace lockstep {

struct NpyOptions {
  std::string inputs;  // the path of an array of the shape [samples, ...]
  // The path of an array of the shape [samples], [samples, numbers], or [samples, height, width] for segmentation;
  // empty: the targets are unknown.
  std::string targets{};
  Task task = Task::kClassification;
  int64_t classes = 0;  // as in SampleSpec; 0: the greatest label + 1, or the size of one target
  // The inputs' type, as in SampleSpec. kByte: the inputs are images of unsigned bytes. kLong: the inputs are tokens,
  // integers of the shape [samples, tokens] or [samples, inputs, tokens]. kFloat: the inputs are numbers of any type
  // that MapNpy() supports.
  at::ScalarType dtype = at::kFloat;
};

// Returns a data set of arrays that NumPy saved. The elements of an array may be floats of 16, 32 or 64 bits, integers
// of 8 to 64 bits, or booleans, of either byte order, in C's order or in Fortran's. (Reading a sample of an array in
// Fortran's order takes longer, because its elements lie apart.) Where integers are wanted, such as for labels, floats
// must have integer values. Inputs become float32, except that pixels stay bytes and tokens become int64. MapNpy() maps
// the inputs into memory without reading them, and reads and checks the targets. Throws Error (kData). Read() of the
// data set throws Error (kData) if a token is below 0.
std::shared_ptr<const Dataset> MapNpy(const NpyOptions& options);

struct NpyInfo {
  std::string type;  // NumPy's name of the elements' type, such as "|u1" or "<f4"
  std::vector<int64_t> shape;
};

// How an array of unsigned bytes holds images.
struct PixelLayout {
  std::vector<int64_t> shape;  // of an image: channels, height, width
  bool channels_last = false;  // the array has the channels behind height and width
};

// Returns the layout of images in an array of unsigned bytes of the shape [samples, height, width], [samples, channels,
// height, width] or [samples, height, width, channels]; nullopt for any other array. The channels are taken as last if
// the last dimension is 1 or 3 and the second is not.
std::optional<PixelLayout> PixelLayoutOf(const NpyInfo& info);

// Returns the type and the shape that the header of a .npy file holds. Throws the same errors about the file as
// MapNpy().
NpyInfo ReadNpyInfo(const std::string& path);

// The element of a .npy file that FindNotFinite() has found.
struct NpyElement {
  int64_t sample = 0;
  int64_t number = 0;  // the index of the element within its sample
  std::string text;    // the element, such as "nan"
};

// Returns the first element of a .npy file that is not finite as a float32, which is what models get; nothing if all
// are finite. Throws Error (kData).
std::optional<NpyElement> FindNotFinite(const std::string& path);

// Returns whether all elements of a .npy file are integers by their values, such as 2 and 2.0. Throws Error (kData).
bool HoldsIntegers(const std::string& path);

// Returns the header of a .npy file for an array in row-major order. `type` is NumPy's name of the elements' type, such
// as "|u1" or "<f4".
std::string NpyHeader(std::string_view type, std::span<const int64_t> shape);

}  // namespace lockstep
