/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver of the C API; see ../README.md. Two ways to break it on purpose, so that the cases are
 * seen to fail:
 *   BROKEN_FORK    keeps ids in memory that a fork copies
 *   BROKEN_STATUS  takes every claim for a success */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "idclient/idclient.h"

enum { kHandles = 64, kWords = 8, kKept = 100 };

typedef struct {
  char name[64];
  idclient_tag* tag;
} handle;

static idclient_client* client;
static handle handles[kHandles];

static void answer_error(idclient_status status) {
  printf("error %s %s\n", idclient_status_name(status), idclient_last_error());
}

static void answer(idclient_status status) {
  if (status == IDCLIENT_OK) {
    puts("ok");
  } else {
    answer_error(status);
  }
}

static void answer_invalid(const char* message) { printf("error INVALID %s\n", message); }

static handle* find(const char* name) {
  for (int i = 0; i < kHandles; ++i) {
    if (handles[i].tag != NULL && strcmp(handles[i].name, name) == 0) return &handles[i];
  }
  return NULL;
}

static idclient_status claim(idclient_tag* tag, uint64_t* id) {
#ifdef BROKEN_FORK
  static uint64_t kept[kKept];
  static size_t left = 0;
  static idclient_tag* of = NULL;
  if (left == 0 || of != tag) {
    const idclient_status status = idclient_claim_many(tag, kept, kKept, &left);
    if (status != IDCLIENT_OK) return status;
    of = tag;
  }
  *id = kept[kKept - left--];
  return IDCLIENT_OK;
#elif defined(BROKEN_STATUS)
  (void)idclient_claim(tag, id);
  return IDCLIENT_OK;
#else
  return idclient_claim(tag, id);
#endif
}

static void do_open(char** words) {
  idclient_options options = IDCLIENT_OPTIONS_INIT;
  options.socket_path = words[1];
  options.timeout_ms = (uint32_t)strtoul(words[2], NULL, 10);
  memset(handles, 0, sizeof(handles));
  answer(idclient_open(&options, &client));
}

static void do_tag(char** words, int count) {
  idclient_tag_options options = IDCLIENT_TAG_OPTIONS_INIT;
  if (count > 3) options.block_size = (uint32_t)strtoul(words[3], NULL, 10);
  int free_handle = 0;
  while (free_handle < kHandles && handles[free_handle].tag != NULL) ++free_handle;
  if (free_handle == kHandles) return answer_invalid("too many handles");
  handle* const to = &handles[free_handle];
  snprintf(to->name, sizeof(to->name), "%s", words[1]);
  answer(idclient_tag_open_with(client, words[2], &options, &to->tag));
}

static void do_claim(idclient_tag* tag, char** words, int count) {
  uint64_t id = 0;
  const idclient_status status =
      count > 2 ? idclient_claim_timeout(tag, (uint32_t)strtoul(words[2], NULL, 10), &id)
                : claim(tag, &id);
  if (status != IDCLIENT_OK) return answer_error(status);
  printf("ok %" PRIu64 "\n", id);
}

static void do_many(idclient_tag* tag, char** words) {
  const size_t count = strtoul(words[2], NULL, 10);
  uint64_t* const ids = calloc(count + 1, sizeof(*ids));
  size_t claimed = 0;
  const idclient_status status = idclient_claim_many(tag, ids, count, &claimed);
  if (status != IDCLIENT_OK) {
    answer_error(status);
  } else {
    fputs("ok", stdout);
    for (size_t i = 0; i < claimed; ++i) printf(" %" PRIu64, ids[i]);
    puts("");
  }
  free(ids);
}

static void do_range(idclient_tag* tag, char** words) {
  uint64_t first = 0;
  size_t claimed = 0;
  const idclient_status status =
      idclient_claim_range(tag, strtoul(words[2], NULL, 10), &first, &claimed);
  if (status != IDCLIENT_OK) return answer_error(status);
  printf("ok %" PRIu64 " %zu\n", first, claimed);
}

static void do_info(idclient_tag* tag) {
  static const char* const modes[] = {"unknown", "segment", "snowflake", "ticket"};
  static const char* const states[] = {"no_ring", "ok", "dry", "quarantined", "drained"};
  idclient_tag_info info = IDCLIENT_TAG_INFO_INIT;
  const idclient_status status = idclient_tag_get_info(tag, &info);
  if (status != IDCLIENT_OK) return answer_error(status);
  printf("ok %s %s %s %" PRIu64 " %" PRIu64 "\n", modes[info.mode],
         info.order == IDCLIENT_ORDER_CPU ? "cpu" : "host", states[info.state], info.step,
         info.available);
}

typedef struct {
  idclient_tag* tag;
  size_t count;
  uint64_t* ids;
  int failed;
  pthread_t thread;
} loop;

static void* run_loop(void* argument) {
  loop* const mine = argument;
  for (size_t i = 0; i < mine->count;) {
    const idclient_status status = claim(mine->tag, &mine->ids[i]);
    if (status == IDCLIENT_OK) {
      ++i;
    } else if (!idclient_status_retryable(status)) {
      mine->failed = 1;
      break;
    }
  }
  return NULL;
}

static void do_loop(idclient_tag* tag, char** words) {
  const size_t count = strtoul(words[2], NULL, 10);
  const size_t threads = strtoul(words[3], NULL, 10);
  FILE* const file = fopen(words[4], "w");
  loop* const loops = calloc(threads, sizeof(*loops));
  int failed = file == NULL;
  for (size_t i = 0; i < threads; ++i) {
    loops[i] = (loop){.tag = tag, .count = count, .ids = calloc(count, sizeof(uint64_t))};
    pthread_create(&loops[i].thread, NULL, run_loop, &loops[i]);
  }
  for (size_t i = 0; i < threads; ++i) {
    pthread_join(loops[i].thread, NULL);
    failed |= loops[i].failed;
    for (size_t k = 0; file != NULL && k < count; ++k) {
      fprintf(file, "%zu %" PRIu64 "\n", i, loops[i].ids[k]);
    }
    free(loops[i].ids);
  }
  free(loops);
  if (file != NULL) fclose(file);
  if (failed) return answer_invalid("a thread could not claim, or the file cannot be written");
  puts("ok");
}

static void do_fork(idclient_tag* tag, char** words) {
  const size_t count = strtoul(words[2], NULL, 10);
  int ends[2];
  if (pipe(ends) != 0) return answer_invalid(strerror(errno));
  const pid_t child = fork();
  uint64_t* const ids = calloc(2 * count, sizeof(*ids));
  idclient_status status = IDCLIENT_OK;
  for (size_t i = 0; i < count && status == IDCLIENT_OK; ++i) status = claim(tag, &ids[i]);
  if (child == 0) {
    const size_t bytes = count * sizeof(*ids);
    _exit(status == IDCLIENT_OK && write(ends[1], ids, bytes) == (ssize_t)bytes ? 0 : 1);
  }
  close(ends[1]);
  size_t filled = 0;
  for (ssize_t got = 1; got > 0 && filled < count * sizeof(*ids); filled += (size_t)got) {
    got = read(ends[0], (char*)(ids + count) + filled, count * sizeof(*ids) - filled);
    if (got < 0) got = 0;
  }
  close(ends[0]);
  waitpid(child, NULL, 0);
  if (status != IDCLIENT_OK) {
    answer_error(status);
  } else {
    fputs("ok", stdout);
    for (size_t i = 0; i < count + filled / sizeof(*ids); ++i) printf(" %" PRIu64, ids[i]);
    puts("");
  }
  free(ids);
}

static void do_close(char** words, int count) {
  if (count > 2) {
    handle* const closed = find(words[2]);
    if (closed == NULL) return answer_invalid("there is no such handle");
    idclient_tag_close(closed->tag);
    closed->tag = NULL;
  } else {
    idclient_close(client);
    client = NULL;
    memset(handles, 0, sizeof(handles));
  }
  puts("ok");
}

static void obey(char** words, int count) {
  const char* const command = words[0];
  if (strcmp(command, "open") == 0 && count == 3) return do_open(words);
  if (strcmp(command, "close") == 0) return do_close(words, count);
  if (strcmp(command, "version") == 0) {
    printf("ok %s\n", idclient_version());
    return;
  }
  if (client == NULL) return answer_invalid("there is no client");
  if (strcmp(command, "tag") == 0 && count >= 3) return do_tag(words, count);
  const handle* const of = count > 1 ? find(words[1]) : NULL;
  if (of == NULL) return answer_invalid("there is no such handle");
  if (strcmp(command, "claim") == 0) return do_claim(of->tag, words, count);
  if (strcmp(command, "info") == 0) return do_info(of->tag);
  if (strcmp(command, "many") == 0 && count == 3) return do_many(of->tag, words);
  if (strcmp(command, "range") == 0 && count == 3) return do_range(of->tag, words);
  if (strcmp(command, "fork") == 0 && count == 3) return do_fork(of->tag, words);
  if (strcmp(command, "loop") == 0 && count == 5) return do_loop(of->tag, words);
  answer_invalid("there is no such command");
}

int main(void) {
  char* line = NULL;
  size_t size = 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  while (getline(&line, &size, stdin) > 0) {
    char* words[kWords];
    int count = 0;
    for (char* word = strtok(line, " \n"); word != NULL && count < kWords;
         word = strtok(NULL, " \n")) {
      words[count++] = word;
    }
    if (count > 0) obey(words, count);
    fflush(stdout);
  }
  free(line);
  idclient_close(client);
  return 0;
}
