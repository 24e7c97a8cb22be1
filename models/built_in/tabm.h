// TabM: an ensemble of multi-layer perceptrons that share most of their weights, for tables (Gorishniy, Kotelnikov and
// Babenko, "TabM: Advancing Tabular Deep Learning with Parameter-Efficient Ensembling", ICLR 2025).
//
// Each layer has one weight matrix W for all members. Member m multiplies the layer's inputs element-wise by its own
// vector r_m and the outputs by its own vector s_m, and adds its own bias (BatchEnsemble; Wen, Tran and Ba 2020); ReLU
// and dropout follow. Each member has a last layer of its own. At initialisation the members differ only in the signs
// of the first layer's r and in the last layer.
//
// Each member has a loss of its own: the training loss is the mean of the members' losses, and not the loss of the mean
// prediction. The prediction is the mean of the members' probabilities, or, for regression, of their outputs. A
// training step takes about as long as a step of one perceptron with `members` times as many samples.
//
// Parameters: "layers.I.weight" [outputs, inputs], "layers.I.r" [members, inputs], "layers.I.s" [members, outputs],
// "layers.I.bias" [members, outputs]; "head.weight" [members, classes, inputs], "head.bias" [members, classes].
// Numbers may be divided into bins (number_bins.h) and categorical columns embedded (category_embeddings.h) first; all
// members share these features.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "models/built_in/category_embeddings.h"
#include "models/built_in/number_bins.h"
#include "models/model.h"

namespace lockstep {

class TabM : public Model {
 public:
  explicit TabM(const ModelSpec& spec);

  // Returns, in training, the outputs of all members, [count, members * classes], and otherwise the output of the
  // ensemble, [count, classes].
  at::Tensor Forward(const at::Tensor& input) override;
  at::Tensor LossSum(const at::Tensor& output, const at::Tensor& target) override;
  std::vector<std::string> HeadPrefixes() const override { return {"head."}; }
  std::set<std::string> StackedVectors() const override;

 private:
  struct Layer {
    std::string name;
    at::Tensor weight, r, s, bias;
  };
  // Averages the predictions of the members. `outputs` is [count, members, classes]; the result is [count, classes].
  at::Tensor Together(const at::Tensor& outputs) const;

  std::vector<Layer> layers_;
  at::Tensor head_weight_, head_bias_;
  int64_t members_;
  int64_t classes_;
  double dropout_;
  Task task_;
  NumberBins bins_;
  CategoryEmbeddings embeddings_;
};

}  // namespace lockstep
