#include "model/stochastic_window.h"

#include "core/random.h"

namespace horner {

int64_t StochasticWindow::at(int64_t step, int64_t steps, uint64_t seed) const {
  if (double(step) >= (1 - anneal) * double(steps)) return long_window;
  Random draw(seed, Split::train, Stream::noise, uint64_t(step));
  return draw.uniform() < probability ? short_window : long_window;
}

}  // namespace horner
