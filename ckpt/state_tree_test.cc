#include "ckpt/state_tree.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/safetensors.h"
#include "base/testing/message_of.h"
#include "base/testing/test_files.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// The state of one rank: two shared tensors, two shared numbers, a tensor of its own, and a piece of a tensor of shape
// [5, 2] in column-major order.
struct Rank {
  at::Tensor a = at::zeros({3});
  at::Tensor b = at::zeros({2, 2}, at::kLong);
  int64_t count = 0;
  double rate = 0;
  at::Tensor own = at::zeros({4}, at::kByte);
  at::Tensor piece;
  int64_t begin = 0;

  StateTree Tree() {
    StateTree tree;
    tree.BeginPart("numbers", 2);
    tree.Add("a", a);
    tree.Add("b", b);
    tree.Add("count", count);
    tree.Add("rate", rate);
    tree.BeginPart("random", 1);
    tree.AddOwn("cpu", [this] { return own; }, [this](const at::Tensor& t) { own.copy_(t); });
    if (piece.defined()) {
      tree.BeginPart("moments", 1);
      tree.AddPiece("m", piece, begin, at::empty_strided({5, 2}, {1, 5}));
    }
    return tree;
  }
};

class StateTreeTest : public testing::Test {
 protected:
  // Writes the files of cuts.size() - 1 ranks. Rank i has the elements cuts[i] to cuts[i + 1] - 1 of the whole tensor.
  void Save(const std::vector<int64_t>& cuts) {
    const auto ranks = static_cast<int>(cuts.size()) - 1;
    files_.clear();
    for (int rank = 0; rank < ranks; ++rank) {
      Rank saved = At(cuts[rank], cuts[rank + 1]);
      saved.own.fill_(10 + rank);
      saved.a.fill_(1.5);
      saved.b.fill_(7);
      saved.count = 1'000'000'007;
      saved.rate = 0.1;
      saved.piece.copy_(at::arange(cuts[rank], cuts[rank + 1]));
      files_.push_back(folder_ + "/" + std::to_string(rank));
      const StateTree tree = saved.Tree();
      WriteSafetensors(files_.back(), PartOf(tree, rank, ranks, /*first_bytes=*/0), {});
      versions_ = tree.versions();
    }
  }

  static Rank At(int64_t begin, int64_t end) {
    Rank rank;
    rank.piece = at::zeros({end - begin});
    rank.begin = begin;
    return rank;
  }

  void RestoreInto(Rank& rank, int number = 0, bool as_many_ranks = true) const {
    Restore(rank.Tree(), files_, versions_,
            {.rank = number, .as_many_ranks = as_many_ranks, .sharded = true});
  }

  // Returns the error message of restoring into `rank`, and checks that `count` was not changed.
  std::string ErrorOf(Rank rank) const {
    rank.count = -1;
    const std::string message =
        MessageOf(ExitStatus::kCheckpoint, [&] { RestoreInto(rank, 0, true); });
    EXPECT_EQ(rank.count, -1);
    return message;
  }

  std::string folder_ = NewFolder();
  std::vector<std::string> files_;
  std::map<std::string, int> versions_;
};

TEST_F(StateTreeTest, GivesBackWhatTheRanksHad) {
  Save({0, 3, 10});
  for (int number = 0; number < 2; ++number) {
    Rank rank = number == 0 ? At(0, 3) : At(3, 10);
    RestoreInto(rank, number);
    EXPECT_TRUE(at::equal(rank.a, at::full({3}, 1.5)));
    EXPECT_TRUE(at::equal(rank.b, at::full({2, 2}, 7, at::kLong)));
    EXPECT_EQ(rank.count, 1'000'000'007);
    EXPECT_EQ(rank.rate, 0.1);
    EXPECT_TRUE(at::equal(rank.own, at::full({4}, 10 + number, at::kByte)));
    EXPECT_TRUE(at::equal(rank.piece,
                          at::arange(rank.begin, rank.begin + rank.piece.numel()).to(at::kFloat)));
  }
}

TEST_F(StateTreeTest, WritesWhatIsSharedOnce) {
  Save({0, 4, 8, 10});
  std::map<std::string, int> count;
  for (const std::string& file : files_) {
    for (const auto& [name, tensor] : ReadSafetensors(file, kGivenByUser)) ++count[name];
  }
  for (const auto& [name, times] : count) EXPECT_EQ(times, 1) << name;
  EXPECT_EQ(count.size(), 4u + 3u + 3u);
}

TEST_F(StateTreeTest, CutsPiecesAnew) {
  Save({0, 3, 10});
  for (const auto& [begin, end] : {std::pair{0, 10}, {0, 1}, {2, 7}, {9, 10}, {5, 5}}) {
    Rank rank = At(begin, end);
    RestoreInto(rank, 0, /*as_many_ranks=*/false);
    EXPECT_TRUE(at::equal(rank.piece, at::arange(begin, end).to(at::kFloat)))
        << begin << " " << end;
    EXPECT_TRUE(at::equal(rank.own, at::zeros({4}, at::kByte)));
  }
}

// Restores the pieces of a column-major [5, 2] tensor into a whole tensor, saves that tensor whole (row-major in the
// file), and restores a column-major piece from it.
TEST_F(StateTreeTest, PutsPiecesTogetherAndTakesWholesApart) {
  Save({0, 3, 10});
  const at::Tensor whole = at::zeros({5, 2}).as_strided({5, 2}, {1, 5});
  const auto tree_of = [&](const at::Tensor& tensor) {
    Rank rank;
    StateTree tree;
    tree.BeginPart("moments", 1);
    tree.Add("m", tensor);
    return tree;
  };
  StateTree tree = tree_of(whole);
  tree.BeginPart("numbers", 2);
  Rank rest;
  tree.Add("a", rest.a);
  tree.Add("b", rest.b);
  tree.Add("count", rest.count);
  tree.Add("rate", rest.rate);
  tree.BeginPart("random", 1);
  tree.AddOwn("cpu", [&] { return rest.own; }, [](const at::Tensor&) {});
  Restore(tree, files_, versions_, {});
  EXPECT_TRUE(at::equal(whole, at::arange(10).view({2, 5}).t().to(at::kFloat)));

  const std::string file = folder_ + "/whole";
  WriteSafetensors(file, PartOf(tree, 0, 1, 0), {});
  files_ = {file};
  Rank piece = At(4, 9);
  RestoreInto(piece);
  EXPECT_TRUE(at::equal(piece.piece, at::arange(4, 9).to(at::kFloat)));
}

TEST_F(StateTreeTest, SharesTheWorkByBytes) {
  StateTree tree;
  tree.BeginPart("p", 1);
  for (int i = 0; i < 20; ++i) tree.Add(std::to_string(i), at::zeros({100}));
  std::vector<size_t> bytes;
  for (int rank = 0; rank < 3; ++rank) {
    bytes.push_back(0);
    for (const NamedTensor& part : PartOf(tree, rank, 3, /*first_bytes=*/1600)) {
      bytes.back() += part.tensor.nbytes();
    }
  }
  EXPECT_THAT(bytes, testing::ElementsAre(1600, 3200, 3200));
}

TEST_F(StateTreeTest, NamesWhatDoesNotFit) {
  Save({0, 3, 10});
  Rank rank = At(0, 3);
  rank.a = at::zeros({4});
  EXPECT_THAT(ErrorOf(rank), HasSubstr("numbers.a is Float [3] where this run has Float [4]"));
  rank.a = at::zeros({3}, at::kDouble);
  EXPECT_THAT(ErrorOf(rank), HasSubstr("numbers.a is Float [3] where this run has Double [3]"));
  EXPECT_THAT(ErrorOf(Rank()),
              HasSubstr("checkpoint's moments is of version 1; this program's is 0"));

  versions_["numbers"] = 3;
  EXPECT_THAT(ErrorOf(At(0, 3)),
              HasSubstr("checkpoint's numbers is of version 3; this program's is 2"));
  versions_["numbers"] = 2;
  files_.pop_back();
  EXPECT_THAT(ErrorOf(At(0, 3)), HasSubstr("is not"));

  // First the files have a name (numbers.z) that the tree does not have, and then the tree has a name (numbers.a) that
  // the files do not have.
  files_ = {folder_ + "/one"};
  versions_ = {{"numbers", 2}};
  StateTree tree;
  tree.BeginPart("numbers", 2);
  at::Tensor a = at::zeros({3});
  tree.Add("a", a);
  WriteSafetensors(files_[0], {{"numbers.a", at::ones({3})}, {"numbers.z", at::ones({3})}}, {});
  const auto restore = [&] { Restore(tree, files_, versions_, {}); };
  EXPECT_THAT(MessageOf(ExitStatus::kCheckpoint, restore),
              HasSubstr("numbers.z: this program has no place for it"));
  EXPECT_TRUE(at::equal(a, at::zeros({3})));
  WriteSafetensors(files_[0], {{"numbers.b", at::ones({3})}}, {});
  EXPECT_THAT(MessageOf(ExitStatus::kCheckpoint, restore), HasSubstr("numbers.a is not in it"));
}

TEST_F(StateTreeTest, NamesPiecesThatAreNotThere) {
  Save({0, 3, 6, 10});
  files_.erase(files_.begin() + 1);
  EXPECT_THAT(ErrorOf(At(0, 3)),
              testing::AnyOf(HasSubstr("moments.m is not whole: elements from 3 on"),
                             HasSubstr("is not in it")));
}

}  // namespace
}  // namespace lockstep
