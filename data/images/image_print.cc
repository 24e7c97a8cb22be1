// Prints the pixels of image files for tests/images_test.py: for each file a line with its width and height, followed
// by the bytes of R, G and B of each pixel.
//
//   image_print FILE...

#include <fmt/format.h>

#include <cstdio>
#include <vector>

#include "base/error.h"
#include "base/files/readable_file.h"
#include "data/images/image_decoder.h"

int main(int count, char** arguments) {
  lockstep::ImageDecoder decoder;
  std::vector<std::byte> buffer;
  for (int i = 1; i < count; ++i) {
    try {
      const lockstep::ImageSize size =
          decoder.Open(lockstep::ReadableFile(arguments[i]).ReadWhole(buffer));
      const lockstep::Box all = {0, 0, static_cast<double>(size.width),
                                 static_cast<double>(size.height)};
      const lockstep::ImageView image = decoder.Decode(all, size.width, size.height).pixels;
      fmt::print("{} {}\n", size.width, size.height);
      for (int64_t y = 0; y < size.height; ++y) {
        std::fwrite(image.pixels + y * image.stride, 3, size.width, stdout);
      }
    } catch (const lockstep::Error& error) {
      fmt::print(stderr, "{}: {}\n", arguments[i], error.what());
      return static_cast<int>(error.status());
    }
  }
}
