/* SPDX-License-Identifier: Apache-2.0
 *
 * claimer TAG PACE_US: claims ids one by one with a pause of PACE_US between them, and prints them,
 * until SIGTERM. Then prints "longest wait N ms" on stderr. The first failing claim ends it with
 * exit status 1 and the reason.
 */
#include <idclient.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop = 0;

static void on_term(int signal) {
  (void)signal;
  stop = 1;
}

static uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int fail(idclient_status status) {
  fprintf(stderr, "%s: %s\n", idclient_status_name(status), idclient_last_error());
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const useconds_t pace_us = (useconds_t)strtoul(argv[2], NULL, 10);
  struct sigaction action = {.sa_handler = on_term};
  sigaction(SIGTERM, &action, NULL);

  /* Longer than any pause that the test causes: it measures the wait, not the default deadline.
   */
  idclient_options options = IDCLIENT_OPTIONS_INIT;
  options.timeout_ms = 30000;
  idclient* client = NULL;
  idclient_tag* tag = NULL;
  idclient_status status = idclient_open(&options, &client);
  if (status == IDCLIENT_OK) status = idclient_tag_open(client, argv[1], &tag);
  uint64_t longest_ms = 0;
  while (status == IDCLIENT_OK && !stop) {
    const uint64_t before_ms = now_ms();
    uint64_t id = 0;
    status = idclient_claim(tag, &id);
    if (status != IDCLIENT_OK) break;
    const uint64_t waited_ms = now_ms() - before_ms;
    if (waited_ms > longest_ms) longest_ms = waited_ms;
    printf("%" PRIu64 "\n", id);
    usleep(pace_us);
  }
  fprintf(stderr, "longest wait %" PRIu64 " ms\n", longest_ms);
  if (fflush(stdout) != 0 || status != IDCLIENT_OK) return fail(status);
  idclient_close(client);
  return 0;
}
