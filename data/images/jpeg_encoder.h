// EncodeJpeg(): encodes pixels in memory to the bytes of a JPEG file, with libjpeg.
//
// Promise: the same pixels, kind (chroma subsampling) and quality give the same bytes with the same version of libjpeg.
//
// what can fail -> what the caller sees -> the test that shows it (data/images/jpeg_encoder_test.cc)
//   a side of more than 65,500 pixels, which JPEG cannot store -> Error (kData) -> JpegEncoder.Refuses*
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// The settings with which a JPEG file is encoded.
struct JpegKind {
  const char* name;
  int channels = 3;  // 1: grey, 3: RGB, 4: CMYK
  int h_sampling = 1;
  int v_sampling = 1;
  bool progressive = false;
  int restart_interval = 0;
  bool ycck = false;
  bool optimized = false;  // whether the file's Huffman tables are computed for its image
};

// Returns the bytes of a JPEG file. `samples` holds the rows of the image without gaps, and the channels of a pixel lie
// side by side. `quality` is libjpeg's quality, from 1 to 100. Throws Error (kData); its message has no path, so the
// caller must add the path.
std::string EncodeJpeg(const JpegKind& kind, const uint8_t* samples, int64_t width, int64_t height,
                       int quality);

}  // namespace lockstep
