// Whether a server listens. The store's own client prints stack traces while nobody does, and waits for minutes.
#pragma once

#include <cstdint>
#include <string>

namespace horner {

// Asks for at most a second per address of the host.
bool server_listens(const std::string& host, uint16_t port);

}  // namespace horner
