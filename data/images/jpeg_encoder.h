// EncodeJpeg(): encodes pixels in memory as a JPEG file in memory, with libjpeg.
//
// Promise: the same pixels, kind (chroma subsampling) and quality give the same bytes with the same version of libjpeg.
//
// what can fail -> what the caller sees -> the test that shows it (data/images/jpeg_encoder_test.cc)
//   a side of more than 65,500 pixels, which JPEG cannot say -> Error (kData) -> JpegEncoder.Refuses*
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// How a file is coded.
struct JpegKind {
  const char* name;
  int channels = 3;  // 1 grey, 3 RGB, 4 CMYK
  int h_sampling = 1;
  int v_sampling = 1;
  bool progressive = false;
  int restart_interval = 0;
  bool ycck = false;
  bool optimized = false;  // Huffman tables of the image's own
};

// `samples`: rows without gaps, the channels of a pixel side by side. `quality`: libjpeg's, 1 to 100.
// Throws Error (kData); what it says lacks the path, which the caller adds.
std::string EncodeJpeg(const JpegKind& kind, const uint8_t* samples, int64_t width, int64_t height,
                       int quality);

}  // namespace lockstep
