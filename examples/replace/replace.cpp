// Replaces softmax in a LibTorch model. The lines that differ from a model with torch's attention are marked.
#include <horner/horner.h>
#include <torch/nn.h>

#include <iostream>

struct Block : torch::nn::Module {
  Block(int64_t D, const std::string& mixer_spec)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({D})))),
        mlp(register_module(
            "mlp",
            torch::nn::Sequential(
                torch::nn::Linear(D, 4 * D), torch::nn::GELU(), torch::nn::Linear(4 * D, D)
            )
        )),
        mixer(register_module(  // was: torch::nn::MultiheadAttention(D, 4)
            "mixer",
            horner::make_mixer(horner::MixerSpec::parse(mixer_spec), D)
        )) {}

  at::Tensor forward(at::Tensor x, horner::State& state) {  // was: without the state
    x = x + mixer->forward(norm(x), state);                 // was: attention(x, x, x, causal mask)
    return x + mlp->forward(x);
  }

  torch::nn::LayerNorm norm;
  torch::nn::Sequential mlp;
  std::shared_ptr<horner::Mixer> mixer;  // was: torch::nn::MultiheadAttention
};

int main() {
  const int64_t T = 256, D = 64;
  for (const std::string spec : {"softmax:heads=4", "gla:heads=4", "taylor:heads=4,order=2"}) {
    torch::manual_seed(0);
    Block block(D, spec);
    const at::Tensor x = torch::randn({1, T, D});  // (B,T,D)

    horner::State state;
    const at::Tensor y = block.forward(x, state);  // all tokens at once, as training does it
    y.square().mean().backward();

    const at::NoGradGuard no_gradients;
    horner::State steps;  // one token at a time, as decoding does it
    double error = 0;
    for (int64_t t = 0; t < T; ++t) {
      const at::Tensor o = block.forward(x.narrow(1, t, 1), steps);
      error = std::max(error, (o - y.narrow(1, t, 1)).abs().max().item<double>());
    }
    std::cout << spec << ": " << block.mixer->parameters().size() << " tensors of weights, "
              << steps.bytes() << " bytes of state after " << T << " tokens, "
              << (error < 1e-4 ? "the same" : "NOT the same") << " token by token\n";
  }
}
