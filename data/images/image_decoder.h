// ImageDecoder: decodes a JPEG, PNG, WebP or BMP file in memory to RGB pixels. From a JPEG file it decodes only the
// pixels that are needed to resize a part of the image, the box.
//
// Promise: Part.pixels holds the pixels of Part.box and every pixel around it that a triangle filter may read (with a
// support of max(1, box / output) pixels on each side, as far as the image goes), with one byte for each of R, G and B.
// At full resolution these pixels equal those of a decode of the whole file, bit for bit.
//
// Invariants:
//   1. The decoder keeps nothing from one file to the next except memory. In particular, it does not keep the tables of
//      a JPEG file; libjpeg itself would use them for a later file that has no tables.
//   2. The memory for pixels only grows. Nothing else is allocated except what libjpeg, libpng and libwebp need.
//   3. A JPEG is decoded down to the last row that is needed, so damage below that row is not noticed. The data above
//      or beside the box are parsed, and damage there is an error. A progressive JPEG and all other formats are read
//      whole. Damage is also not noticed if the damaged data still have enough bits for the decoder: libjpeg's quick
//      path for sequential files silently treats a bad Huffman code as the end of a block.
//   4. The decoder ignores the EXIF orientation; data/images/orientation.h turns the pixels. Gamma and colour profiles
//      are ignored.
//
// Protocol, JPEG:
//   1. Open() reads the markers up to the first scan.
//   2. Decode() takes the largest reduction of 1, 2, 4 and 8 (libjpeg's inverse DCT makes these reductions itself, with
//      SIMD code) at which the box still has at least the output's width and height, so that no detail of the output is
//      lost.
//   3. Decode() decodes these columns: whole MCUs around the box and the support, and a margin. The margin is needed
//      because chroma is interpolated between columns, so the outermost decoded column differs from the same column of
//      a decode of the whole image.
//   4. Decode() skips the rows above the box and the support (libjpeg parses but does not transform them), reads the
//      rows of the box and the support, and does not read the rows below.
//
// Chroma is upsampled by libjpeg's 'fancy' method, and the inverse DCT is the accurate one. The fast inverse DCT
// (JDCT_IFAST) would make crops 2 % faster and change a resized 224 x 224 image by 0.9 grey levels on average. Plain
// upsampling would make crops 3 % faster and change the image by 1.0 levels (18 at most). Both together would make
// crops 5 % faster and change the image by 1.4 levels. One core of an AVX-512 Xeon decodes 1,180 whole files a second
// (500 x 375 pixels in 62 KiB at 4:2:0), 1,540 of RandomResizedCrop's boxes for an output of 224 x 224, and 1,440 whole
// files for an output of 100 x 100. Huffman codes take 70 % of the time. Huffman codes are always decoded from the
// file's beginning to the last row that is needed, even if only some columns are needed or the image is reduced.
//
// Colours: grey is repeated in R, G and B. CMYK and YCCK values are taken as inverted, as Adobe writes them, whether
// the file has Adobe's marker or not. They are converted by R = C * K / 255, where C and K are the inverted values of
// cyan and black; G and B come from magenta and yellow. PIL does the same.
//
// Some of libjpeg's warnings are errors here: end of the file, end of a scan's data, bad Huffman or arithmetic codes,
// lost restart markers, scans in an impossible order. After such a warning libjpeg would go on, with grey pixels or
// with the rest of the data. Other warnings are not errors: bytes between segments, unknown JFIF versions and Adobe
// transforms, wrong spectral bounds in a sequential file. Bytes after the image are ignored.
//
// The other formats are decoded whole (data/images/png_file.h, webp.h and bmp.h).
//
// what can fail -> what the caller sees -> the test that shows it (data/images/image_decoder_test.cc)
//   an empty file, another format, no pixels, more than 2^28 pixels -> Open() throws one clear line
//     -> ImageDecoder.RefusesWhatItCannotDecode
//   the file ends early -> Open() or Decode() throws 'truncated' -> *.RefusesTruncatedFiles
//   damaged entropy data, restart markers, checksums -> Decode() throws 'damaged'
//     -> *.RefusesDamage, ImageDecoder.SurvivesMutations
//   any of these errors -> the decoder can decode the next file -> ImageDecoder.WorksAfterErrors
//   a box outside the image, no file open -> Error (kBug) -> ImageDecoder.RefusesToDecodeNothing
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "data/images/image.h"
#include "data/images/image_format.h"

namespace lockstep {

// Throws Error (kData) if an image of this size has no pixels, or more than 2^28 pixels, which can only be a mistake or
// an attack.
void CheckImageSize(const ImageSize& size);

// Each thread must have its own ImageDecoder.
class ImageDecoder {
 public:
  ImageDecoder();
  ~ImageDecoder();
  ImageDecoder(const ImageDecoder&) = delete;
  ImageDecoder& operator=(const ImageDecoder&) = delete;

  // Opens the image in `file` and returns its size. The bytes of `file` must stay valid until the last Decode() of this
  // file. Throws Error (kData); its message has no path, so the caller must add the path.
  ImageSize Open(std::span<const std::byte> file);

  // Returns whether the open file is a JPEG of a kind that every JPEG decoder can read: Huffman codes, 8 bits for each
  // sample, YCbCr in one scan, chroma at full or half resolution in each direction, and an end marker at the end of the
  // file.
  bool IsPlainJpeg() const;

  struct Part {
    ImageView pixels;
    Box box;  // the box that was asked for, in coordinates of `pixels`
  };

  // Decodes the part of the image that is needed to resize `box` to width x height. `box` is in pixels of the whole
  // image, and must contain some of these pixels. The result is valid until the next call of Open() or Decode(). The
  // caller may call Decode() again for another box of the same file. Throws Error (kData), whose message has no path.
  Part Decode(const Box& box, int64_t width, int64_t height);

 private:
  struct Jpeg;

  void OpenJpeg();
  Part DecodeJpeg(const Box& box, int64_t width, int64_t height);
  uint8_t* Reserve(int64_t bytes);

  std::span<const std::byte> file_;
  ImageSize size_;
  ImageFormat format_ = ImageFormat::kNone;
  std::unique_ptr<Jpeg> jpeg_;
  std::unique_ptr<uint8_t[]> pixels_;
  int64_t pixels_bytes_ = 0;
};

}  // namespace lockstep
