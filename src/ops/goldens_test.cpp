// Every form against values and gradients that tools/goldens.py computed in fp64 by plain loops.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/options.h"
#include "io/safetensors.h"
#include "ops/contract.h"

namespace horner {
namespace {

constexpr double kClose = 1e-12;

class Golden {
 public:
  Golden(const Safetensors& file, std::string name) : file_(file), name_(std::move(name)) {}

  at::Tensor get(const std::string& key) const {  // undefined where the case has none
    const std::string real = name_ + "." + key, complex = real + "_re_im";
    if (file_.contains(complex)) return at::view_as_complex(file_.get(complex).contiguous());
    return file_.contains(real) ? file_.get(real) : at::Tensor();
  }
  at::Tensor leaf(const std::string& key) const {
    const at::Tensor x = get(key);
    return x.defined() ? x.clone().requires_grad_(true) : x;
  }

 private:
  const Safetensors& file_;
  std::string name_;
};

Safetensors open_goldens(const std::string& name) {
  return Safetensors::open("src/ops/goldens/" + name + ".safetensors");
}

void expect_close(const at::Tensor& got, const at::Tensor& golden, const std::string& what) {
  if (!golden.defined()) return;
  EXPECT_LT(relative_error(got, golden), kClose) << what;
}

void expect_case(const Op& op, const Golden& golden, Options options, const std::string& what) {
  Inputs in;
  std::vector<at::Tensor> leaves, expected;
  for (const Input& input : op.inputs) {
    at::Tensor& x = in.*input.tensor;
    x = golden.leaf(std::string(input.name));
    if (!x.defined()) continue;
    leaves.push_back(x);
    expected.push_back(golden.get(fmt::format("d{}", input.name)));
  }
  State state;
  if (const at::Tensor S = golden.leaf("state0"); S.defined()) {
    state.parts = {S};
    leaves.push_back(S);
    expected.push_back(golden.get("dstate0"));
  }
  options.final_state = options.causal;
  options.log_norm = golden.get("norm").defined();
  const Result y = run(op, in, state, options);
  expect_close(y.o, golden.get("o"), what + " o");
  expect_close(y.norm, golden.get("norm"), what + " norm");
  if (golden.get("state").defined())
    expect_close(y.state.parts[0], golden.get("state"), what + " state");
  const auto grads = torch::autograd::grad({y.o}, leaves, {golden.get("do")});
  for (size_t i = 0; i < grads.size(); ++i) {
    expect_close(grads[i], expected[i], fmt::format("{} gradient {}", what, i));
  }
}

TEST(Goldens, EveryFormOfEveryOp) {
  for (const Op& op : ops()) {
    const Safetensors file = open_goldens(std::string(op.name));
    int cases = 0;
    for (const auto& [name, text] : file.metadata()) {
      if (name == "format") continue;
      ++cases;
      Options options = op.defaults;
      from_json(options, Json::parse(text)["options"]);
      for (const char* form : {"recurrent", "parallel", "chunked"}) {
        options.form = form;
        options.chunk = 3;
        expect_case(op, {file, name}, options, fmt::format("{} {} {}", op.name, name, form));
      }
    }
    EXPECT_GE(cases, 4) << op.name;
  }
}

// The direct recurrence of mLSTM = `linear` on transformed inputs.
TEST(Goldens, ExponentialGate) {
  const Safetensors file = open_goldens("mlstm");
  for (const auto& [name, text] : file.metadata()) {
    if (name == "format") continue;
    const Golden golden(file, name);
    for (const char* form : {"recurrent", "parallel", "chunked"}) {
      Inputs in;
      in.q = golden.leaf("q");
      in.k = golden.leaf("k");
      in.v = golden.leaf("v");
      const at::Tensor i = golden.leaf("i"), f = golden.leaf("f");
      State state;
      if (golden.get("C0").defined()) {
        state.parts = {
            at::cat({golden.get("C0"), golden.get("n0").unsqueeze(-1)}, -1), golden.get("m0")};
      }
      Options options;
      options.form = form;
      options.chunk = 4;
      options.final_state = true;
      options.norm = "bounded";
      in.i = i;
      in.g = f;
      const Result y = run(find_op("linear"), in, state, options);
      const std::string what = fmt::format("mlstm {} {}", name, form);
      expect_close(y.o, golden.get("o"), what + " o");
      const at::Tensor S = at::cat({golden.get("C"), golden.get("n").unsqueeze(-1)}, -1);
      const at::Tensor shift =
          (y.state.parts[1] - golden.get("m")).exp().unsqueeze(-1).unsqueeze(-1);
      expect_close(y.state.parts[0] * shift, S, what + " state");
      const std::vector<at::Tensor> leaves = {in.q, in.k, in.v, i, f};
      const auto grads = torch::autograd::grad({y.o}, leaves, {golden.get("do")});
      const char* names[] = {"dq", "dk", "dv", "di", "df"};
      for (size_t n = 0; n < 5; ++n)
        expect_close(grads[n], golden.get(names[n]), what + " " + names[n]);
    }
  }
}

}  // namespace
}  // namespace horner
