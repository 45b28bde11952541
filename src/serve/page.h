// The page at `/`: a chat with the model, made of the files chat.html, chat.css and chat.js of this folder.
#pragma once

#include <optional>
#include <string>

#include "serve/api.h"

namespace horner {

std::optional<ApiReply> page_reply(const std::string& path);  // nothing: it is no file of the page

}  // namespace horner
