// SPDX-License-Identifier: Apache-2.0
//
// LD_PRELOADed into idd, makes the system's look-ups of hosts, users and groups hang, as they do if
// their servers take no packets. The group "idd" is known.
#include <grp.h>
#include <netdb.h>
#include <pwd.h>
#include <string.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

static int Hang(void) {
  for (;;) pause();
}

EXPORTED int getaddrinfo(const char* host, const char* service, const struct addrinfo* hints,
                         struct addrinfo** found) {
  (void)host, (void)service, (void)hints, (void)found;
  return Hang();
}

EXPORTED int getpwnam_r(const char* name, struct passwd* entry, char* buffer, size_t size,
                        struct passwd** found) {
  (void)name, (void)entry, (void)buffer, (void)size, (void)found;
  return Hang();
}

EXPORTED int getgrnam_r(const char* name, struct group* entry, char* buffer, size_t size,
                        struct group** found) {
  (void)buffer, (void)size;
  if (strcmp(name, "idd") != 0) return Hang();
  entry->gr_gid = getegid();
  *found = entry;
  return 0;
}
