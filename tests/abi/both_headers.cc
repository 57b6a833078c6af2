// SPDX-License-Identifier: Apache-2.0
//
// Includes both headers in one file, with C names still those of C. It must compile.
#include <type_traits>

#include "idclient/idclient.h"
#include "idclient/idclient.hpp"

static_assert(std::is_same_v<decltype(&idclient_close), void (*)(idclient_client*)>);
static_assert(std::is_same_v<decltype(std::declval<idclient::Client&>().get()), idclient_client*>);
static_assert(std::is_same_v<decltype(std::declval<idclient::Tag&>().get()), idclient_tag*>);
static_assert(std::is_nothrow_move_constructible_v<idclient::Client>);
static_assert(!std::is_copy_constructible_v<idclient::Client>);
static_assert(std::is_nothrow_copy_constructible_v<idclient::Tag>);
static_assert(std::is_base_of_v<std::runtime_error, idclient::Error>);
static_assert(std::is_nothrow_default_constructible_v<idclient::Tag>);
namespace ids = idclient;  // a namespace can be aliased, and used with `using`
using ids::Client;
static_assert(std::is_same_v<Client, idclient::Client>);
static_assert(
    std::is_same_v<decltype(std::declval<const idclient::Tag&>().claim()), std::uint64_t>);

// Declarations for C users beside those for C++ users.
idclient_status OpenBoth(idclient_client* raw, idclient_tag** out) {
  return idclient_tag_open(raw, "tag", out);
}
