/* SPDX-License-Identifier: Apache-2.0 */
#include <idclient/idclient.h>
#include <stdio.h>

/* Prints the library's version; exits 0 if an absent daemon is reported as absent. */
int main(int argc, char** argv) {
  idclient_options options = IDCLIENT_OPTIONS_INIT;
  idclient* client = NULL;
  idclient_status status;
  if (argc != 2) return 2;
  options.socket_path = argv[1];
  status = idclient_open(&options, &client);
  printf("%s %s: %s\n", idclient_version(), idclient_status_name(status), idclient_last_error());
  return status == IDCLIENT_UNAVAILABLE ? 0 : 1;
}
