#include "launch/cli/prepare.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <string>

#include "base/cores.h"
#include "base/say.h"
#include "prepare/images.h"
#include "prepare/shards.h"
#include "prepare/tokens.h"

namespace lockstep {

struct PrepareCommand::Line {
  CLI::App* prepare = nullptr;
  CLI::App* images = nullptr;
  CLI::App* shards = nullptr;
  CLI::App* tokens = nullptr;
  int threads = 0;  // 0: as many as there are cores
  PrepareImagesOptions images_options;
  std::string bad = "stop";
  PrepareShardsOptions shards_options;
  int64_t shard_mib = 256;
  PrepareTokensOptions tokens_options;
};

PrepareCommand::PrepareCommand(CLI::App& app) : line_(std::make_unique<Line>()) {
  Line& line = *line_;
  line.prepare = app.add_subcommand("prepare", "make data ready for training, ahead of time");
  line.prepare->require_subcommand(1);

  PrepareImagesOptions& images = line.images_options;
  line.images = line.prepare->add_subcommand("images", "shrink the images of a folder");
  line.images->add_option("SRC", images.source, "folder of JPEG and PNG files, at any depth")
      ->required();
  line.images->add_option("DST", images.destination, "folder to make")->required();
  line.images->add_option("--size", images.size, "greatest length of the shorter side, in pixels")
      ->required()
      ->check(CLI::Range(1, 65'500));
  line.images->add_option("--quality", images.quality, "of the JPEG files, as libjpeg counts")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  line.images->add_flag("--exif-orientation", images.exif_orientation,
                        "turn pictures as their cameras say");
  line.images->add_option("--bad", line.bad, "what an image that cannot be read does: stop or skip")
      ->check(CLI::IsMember({"stop", "skip"}))
      ->capture_default_str();

  PrepareShardsOptions& shards = line.shards_options;
  line.shards = line.prepare->add_subcommand("shards", "pack an image folder into tar files");
  line.shards->add_option("SRC", shards.source, "folder with a folder of images for each class")
      ->required();
  line.shards->add_option("DST", shards.destination, "folder to make")->required();
  line.shards->add_option("--shard-mib", line.shard_mib, "size of each tar file, in MiB")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  line.shards->add_option("--seed", shards.seed, "of the order of the images")
      ->capture_default_str();

  PrepareTokensOptions& tokens = line.tokens_options;
  line.tokens = line.prepare->add_subcommand("tokens", "encode texts as tokens");
  line.tokens->add_option("FILES", tokens.files, "texts; each is a document")->required();
  line.tokens->add_option("--output", tokens.output, "token file to make")->required();
  line.tokens
      ->add_option("--vocab", tokens.vocabulary,
                   "\"bytes\", or a folder with GPT-2's vocab.json and merges.txt")
      ->capture_default_str();
  line.tokens->add_option("--split-on", tokens.separator,
                          "text between the documents of a file: <|endoftext|>, say");
  line.tokens
      ->add_option("--validation-fraction", tokens.validation_fraction,
                   "share of the text, from its end, that gets files of its own")
      ->check(CLI::Range(0.0, 0.999))
      ->capture_default_str();
  line.tokens
      ->add_option("--shard-tokens", tokens.shard_tokens,
                   "greatest number in one file; the last one may be shorter than a sample, which "
                   "training refuses")
      ->check(CLI::Range(int64_t{1}, int64_t{2'000'000'000}))
      ->capture_default_str();

  for (CLI::App* command : {line.images, line.shards, line.tokens}) {
    command->add_option("--threads", line.threads, "all cores unless given")
        ->check(CLI::Range(1, 4096));
  }
}

PrepareCommand::~PrepareCommand() = default;

bool PrepareCommand::parsed() const { return line_->prepare->parsed(); }

void PrepareCommand::Run() {
  Line& line = *line_;
  const bool live = isatty(STDOUT_FILENO) != 0;
  const auto complete = [&](auto& options) -> const auto& {
    options.threads = line.threads > 0 ? line.threads : UsableCores();
    options.live = live;
    return options;
  };
  std::string done;
  if (line.images->parsed()) {
    line.images_options.skip_bad = line.bad == "skip";
    done = PrepareImages(complete(line.images_options));
  } else if (line.shards->parsed()) {
    line.shards_options.shard_bytes = line.shard_mib << 20;
    done = PrepareShards(complete(line.shards_options));
  } else {
    done = PrepareTokens(complete(line.tokens_options));
  }
  Print("{}\n", done);
}

}  // namespace lockstep
