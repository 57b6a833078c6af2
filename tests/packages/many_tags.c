/* SPDX-License-Identifier: Apache-2.0
 *
 * many_tags COUNT PACE_US: claims from tags many-1 to many-COUNT in turn, one id at a time with a
 * pause of PACE_US in between, and prints "TAG ID" for each, until SIGTERM. On SIGUSR1 it prints
 * "wait N us" on stderr: the longest claim since the last SIGUSR1. The first claim that fails, or
 * whose id does not rise, ends it with exit status 1 and the reason.
 */
#include <idclient.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MOST_TAGS 10000

static volatile sig_atomic_t stop = 0;
static volatile sig_atomic_t report = 0;

static void on_term(int signal) {
  (void)signal;
  stop = 1;
}

static void on_usr1(int signal) {
  (void)signal;
  report = 1;
}

static uint64_t now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, idclient_last_error());
  fflush(stdout);
  return 1;
}

int main(int argc, char** argv) {
  static idclient_tag* tags[MOST_TAGS];
  static uint64_t last[MOST_TAGS];
  if (argc != 3) return 2;
  const long count = strtol(argv[1], NULL, 10);
  const useconds_t pace_us = (useconds_t)strtoul(argv[2], NULL, 10);
  if (count < 1 || count > MOST_TAGS) return 2;
  struct sigaction action = {.sa_handler = on_term};
  sigaction(SIGTERM, &action, NULL);
  action.sa_handler = on_usr1;
  sigaction(SIGUSR1, &action, NULL);

  idclient_options options = IDCLIENT_OPTIONS_INIT;
  options.timeout_ms = 60000;
  idclient* client = NULL;
  if (idclient_open(&options, &client) != IDCLIENT_OK) return fail("idclient_open");
  for (long i = 0; i < count && !stop; ++i) {
    char name[32];
    snprintf(name, sizeof name, "many-%ld", i + 1);
    if (idclient_tag_open(client, name, &tags[i]) != IDCLIENT_OK) return fail(name);
  }
  uint64_t longest_us = 0;
  for (long i = 0; !stop; i = (i + 1) % count) {
    const uint64_t before_us = now_us();
    uint64_t id = 0;
    if (idclient_claim(tags[i], &id) != IDCLIENT_OK) return fail("idclient_claim");
    const uint64_t waited_us = now_us() - before_us;
    if (waited_us > longest_us) longest_us = waited_us;
    if (id <= last[i]) {
      fprintf(stderr, "many-%ld: %" PRIu64 " after %" PRIu64 "\n", i + 1, id, last[i]);
      return 1;
    }
    last[i] = id;
    printf("%ld %" PRIu64 "\n", i + 1, id);
    if (report) {
      report = 0;
      fprintf(stderr, "wait %" PRIu64 " us\n", longest_us);
      longest_us = 0;
    }
    usleep(pace_us);
  }
  idclient_close(client);
  return fflush(stdout) == 0 ? 0 : 1;
}
