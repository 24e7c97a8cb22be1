#include "data/images/jpeg_encoder.h"

// These headers must come before jpeglib.h, which needs them.
#include <csetjmp>
#include <cstdio>
// clang-format off
#include <jpeglib.h>
// clang-format on

#include <array>
#include <cstdlib>

#include "base/error.h"

namespace lockstep {
namespace {

// libjpeg's state. libjpeg reports errors by longjmp, which must not skip a destructor. Encode(), which calls libjpeg,
// therefore has no variables with destructors.
struct Encoder {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  std::jmp_buf failed{};
  std::array<char, JMSG_LENGTH_MAX> message{};
  unsigned char* memory = nullptr;
  unsigned long bytes = 0;

  Encoder() {
    info.err = jpeg_std_error(&errors);
    errors.error_exit = &Fail;
    info.client_data = this;
  }
  ~Encoder() {
    jpeg_destroy_compress(&info);
    std::free(memory);
  }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  static void Fail(j_common_ptr info) {
    auto& encoder = *static_cast<Encoder*>(info->client_data);
    info->err->format_message(info, encoder.message.data());
    std::longjmp(encoder.failed, 1);
  }

  // Encodes the image to `memory`. Returns false if libjpeg failed; `message` then holds the reason.
  bool Encode(const JpegKind& kind, const uint8_t* samples, int64_t width, int64_t height,
              int quality) {
    if (setjmp(failed)) return false;
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &memory, &bytes);
    info.image_width = static_cast<JDIMENSION>(width);
    info.image_height = static_cast<JDIMENSION>(height);
    info.input_components = kind.channels;
    info.in_color_space = kind.channels == 1   ? JCS_GRAYSCALE
                          : kind.channels == 3 ? JCS_RGB
                                               : JCS_CMYK;
    jpeg_set_defaults(&info);
    if (kind.ycck) jpeg_set_colorspace(&info, JCS_YCCK);
    jpeg_set_quality(&info, quality, TRUE);
    info.comp_info[0].h_samp_factor = kind.h_sampling;
    info.comp_info[0].v_samp_factor = kind.v_sampling;
    if (kind.channels == 4) {
      info.comp_info[3].h_samp_factor = kind.h_sampling;
      info.comp_info[3].v_samp_factor = kind.v_sampling;
    }
    info.restart_interval = static_cast<unsigned>(kind.restart_interval);
    info.optimize_coding = kind.optimized ? TRUE : FALSE;
    if (kind.progressive) jpeg_simple_progression(&info);
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
      JSAMPROW rows[] = {
          const_cast<JSAMPROW>(samples + info.next_scanline * width * kind.channels)};
      jpeg_write_scanlines(&info, rows, 1);
    }
    jpeg_finish_compress(&info);
    return true;
  }
};

}  // namespace

std::string EncodeJpeg(const JpegKind& kind, const uint8_t* samples, int64_t width, int64_t height,
                       int quality) {
  if (width > JPEG_MAX_DIMENSION || height > JPEG_MAX_DIMENSION) {
    throw DataError("{} x {} pixels: a JPEG file holds at most {} in each direction", width, height,
                    JPEG_MAX_DIMENSION);
  }
  Encoder encoder;
  if (!encoder.Encode(kind, samples, width, height, quality)) {
    throw DataError("cannot be written as JPEG (libjpeg: {})", encoder.message.data());
  }
  return {reinterpret_cast<const char*>(encoder.memory), encoder.bytes};
}

}  // namespace lockstep
