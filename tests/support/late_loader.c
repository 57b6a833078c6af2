/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads libidclient when it is needed, as an interpreter does, and claims. The process was not
 * linked with it, nor with a C++ runtime.
 *
 *   idd_late_loader LIBRARY SOCKET TAG ROUNDS [NEIGHBOUR ...]
 *
 * Loads the neighbours first. Each round loads the library, opens the tag, claims one id, closes,
 * and unloads the library. Prints the ids, then how many descriptors and mappings the last 90 % of
 * the rounds have left behind. */
#include <dirent.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "idclient/idclient.h"

static long descriptors(void) {
  DIR* folder = opendir("/proc/self/fd");
  long count = 0;
  if (folder == NULL) return -1;
  while (readdir(folder) != NULL) ++count;
  closedir(folder);
  return count;
}

static long mappings(void) {
  FILE* maps = fopen("/proc/self/maps", "r");
  long lines = 0;
  if (maps == NULL) return -1;
  for (int c = getc(maps); c != EOF; c = getc(maps)) lines += c == '\n';
  fclose(maps);
  return lines;
}

static void* function(void* library, const char* name) {
  void* const found = dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  return found;
}

static void claim_once(const char* path, const char* socket, const char* name) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  idclient_status (*open)(const idclient_options*, idclient_client**);
  idclient_status (*tag_open)(idclient_client*, const char*, idclient_tag**);
  idclient_status (*claim)(idclient_tag*, uint64_t*);
  void (*close)(idclient_client*);
  const char* (*last_error)(void);
  *(void**)&open = function(library, "idclient_open");
  *(void**)&tag_open = function(library, "idclient_tag_open");
  *(void**)&claim = function(library, "idclient_claim");
  *(void**)&close = function(library, "idclient_close");
  *(void**)&last_error = function(library, "idclient_last_error");

  idclient_options options = IDCLIENT_OPTIONS_INIT;
  idclient_client* client = NULL;
  idclient_tag* tag = NULL;
  uint64_t id = 0;
  options.socket_path = socket;
  options.timeout_ms = 60000;
  /* An error first: its message must have found memory too. */
  if (open(&options, NULL) != IDCLIENT_INVALID || last_error()[0] == '\0') exit(1);
  if (open(&options, &client) != IDCLIENT_OK || tag_open(client, name, &tag) != IDCLIENT_OK ||
      claim(tag, &id) != IDCLIENT_OK) {
    fprintf(stderr, "%s\n", last_error());
    exit(1);
  }
  printf("%" PRIu64 "\n", id);
  close(client);
  dlclose(library);
}

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  for (int i = 5; i < argc; ++i) {
    if (dlopen(argv[i], RTLD_NOW | RTLD_LOCAL) == NULL) {
      fprintf(stderr, "%s\n", dlerror());
      return 3;
    }
  }
  const long rounds = atol(argv[4]);
  long descriptors_before = 0;
  long mappings_before = 0;
  for (long round = 0; round < rounds; ++round) {
    if (round == rounds / 10) {
      descriptors_before = descriptors();
      mappings_before = mappings();
    }
    claim_once(argv[1], argv[2], argv[3]);
  }
  printf("descriptors %ld mappings %ld\n", descriptors() - descriptors_before,
         mappings() - mappings_before);
  return 0;
}
