/* SPDX-License-Identifier: Apache-2.0
 *
 * idclient.h as a C11 program sees it: this file must compile without a warning, and abi_test.cc
 * compares its values with those of C++. */
#include "c_header.h"

#include "idclient/idclient.h"

/* Including it twice, and by its short name, is allowed. */
#include <idclient.h>

size_t c_options_size(void) { return sizeof(idclient_options); }

size_t c_options_offset(int field) {
  switch (field) {
    case 0:
      return offsetof(idclient_options, struct_size);
    case 1:
      return offsetof(idclient_options, socket_path);
    case 2:
      return offsetof(idclient_options, timeout_ms);
    case 3:
      return offsetof(idclient_options, flags);
    case 4:
      return offsetof(idclient_options, trusted_uid);
    case 5:
      return offsetof(idclient_options, reserved);
    case 6:
      return offsetof(idclient_options, log);
    default:
      return offsetof(idclient_options, log_context);
  }
}

int c_initializer_is_complete(void) {
  const idclient_options options = IDCLIENT_OPTIONS_INIT;
  return options.struct_size == sizeof(options) && options.socket_path == NULL &&
         options.timeout_ms == 0 && options.flags == 0 && options.trusted_uid == 0 &&
         options.reserved == 0 && options.log == NULL && options.log_context == NULL;
}

/* Every function, with exactly the types that the header declares. */
int c_calls_fail_politely(void) {
  idclient* client = NULL;
  idclient_tag* tag = NULL;
  uint64_t id = 0;
  size_t claimed = 7;
  idclient_options options = IDCLIENT_OPTIONS_INIT;
  options.socket_path = "/nonexistent/idd.sock";
  if (idclient_open(&options, &client) != IDCLIENT_UNAVAILABLE) return 1;
  if (client != NULL || idclient_last_error()[0] == '\0') return 2;
  if (idclient_tag_open(client, "tag", &tag) != IDCLIENT_INVALID) return 3;
  if (idclient_claim(tag, &id) != IDCLIENT_INVALID) return 4;
  if (idclient_claim_many(tag, &id, 1, &claimed) != IDCLIENT_INVALID || claimed != 0) return 5;
  claimed = 7;
  if (idclient_claim_range(tag, 1, &id, &claimed) != IDCLIENT_INVALID || claimed != 0) return 6;
  if (idclient_status_name(IDCLIENT_TIMEOUT)[0] != 'T' || idclient_version()[0] == '\0') return 7;
  if (idclient_claim_timeout(tag, IDCLIENT_NO_WAIT, &id) != IDCLIENT_INVALID) return 10;
  idclient_tag_info info = IDCLIENT_TAG_INFO_INIT;
  if (idclient_tag_get_info(tag, &info) != IDCLIENT_INVALID) return 11;
  if (!idclient_status_retryable(IDCLIENT_TIMEOUT) || idclient_status_retryable(IDCLIENT_DENIED)) {
    return 12;
  }
  idclient_tag_close(NULL);
  options.reserved = 1;
  if (idclient_open(&options, &client) != IDCLIENT_INVALID) return 13;
  options.reserved = 0;
  options.struct_size = 4;
  if (idclient_open(&options, &client) != IDCLIENT_INVALID) return 8;
  if (idclient_open(NULL, NULL) != IDCLIENT_INVALID) return 9;
  idclient_close(client);
  return 0;
}
