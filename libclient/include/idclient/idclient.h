/* SPDX-License-Identifier: Apache-2.0
 *
 * libidclient: cluster-unique 64-bit ids from the host's idd, at the price of one atomic add.
 *
 * A claim takes ids from a ring in shared memory, without a system call. Only when the ring is dry
 * (has no ids left) does the claim ask the daemon over its Unix socket; it then waits for at most
 * timeout_ms. When the daemon is killed, crashes or is restarted as a service, the ring goes on
 * serving. A daemon that is stopped closes its rings, so that what is left goes back to the
 * allocator: then claims wait, for at most timeout_ms, for the next daemon.
 * After a restart of either kind the library connects and attaches again automatically. Ids of one
 * tag never repeat and, on one host, rise: if one claim returned before another began, its ids are
 * smaller. Ids of a tag of order `cpu`, which an operator chooses, rise on each CPU only.
 *
 * Thread safety: every function may be called from any thread at any time, except that close must
 * not run concurrently with another call on the same object. No function is a cancellation point:
 * a thread that is cancelled in a call, even a waiting one, ends at its next cancellation point
 * after the call. Asynchronous cancellation (PTHREAD_CANCEL_ASYNCHRONOUS) is not supported.
 *
 * After fork() parent and child both go on, with one exception: a signal handler that forks. If the
 * handler has interrupted a claim between its atomic add and its return, parent and child both
 * return from that claim, with the same id. So a child that was forked in a signal handler must end
 * in the handler, with exec or _exit. Otherwise the program must block the signal around claims or
 * fork outside the handler. Ids that the program got before a fork are, like all its variables, in
 * both.
 *
 * Errors: the status is the kind of failure; idclient_last_error() explains it in a sentence.
 * Outputs are written on success only, except `claimed`, which is always written, and the first
 * `claimed` of the `ids` of idclient_claim_many.
 * The library starts no thread and installs no signal handler. In the program's signal handlers,
 * claims are safe while the ring has ids; a claim that finds it dry may wait indefinitely for the
 * code that the handler interrupted.
 */
#ifndef IDCLIENT_H_
#define IDCLIENT_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define IDCLIENT_API __attribute__((visibility("default")))

typedef struct idclient idclient;         /* a connection to one daemon; thread-safe */
typedef struct idclient_tag idclient_tag; /* one tag; thread-safe; owned by its idclient */

typedef enum idclient_status {
  IDCLIENT_OK = 0,
  IDCLIENT_INVALID,     /* an argument or the tag's row is wrong; trying again cannot help */
  IDCLIENT_UNAVAILABLE, /* the daemon cannot be reached, or refuses for now; see last_error */
  IDCLIENT_NO_SUCH_TAG, /* the allocator has no such tag */
  IDCLIENT_DENIED,  /* this user may not use the socket or the tag, or the daemon is not trusted */
  IDCLIENT_TIMEOUT, /* nothing to claim before the deadline; last_error has the daemon's reason */
  IDCLIENT_OUT_OF_IDS,   /* the tag's id space is used up */
  IDCLIENT_INCOMPATIBLE, /* daemon and library do not understand each other; upgrade the older one
                          */
  IDCLIENT_SYSTEM        /* a system call failed: out of memory or descriptors, ... */
} idclient_status;

/* Fields may be added at the end; struct_size says which are there. Start from
 * IDCLIENT_OPTIONS_INIT, so that fields you do not know are zero. */
typedef struct idclient_options {
  size_t struct_size;      /* sizeof(idclient_options) */
  const char* socket_path; /* NULL: $IDD_SOCKET, else /run/idd/idd.sock */
  uint32_t timeout_ms;     /* longest wait of a claim on a dry ring, of open and of tag_open, in
                              milliseconds; 0: 500. At most 3,600,000. */
  uint32_t flags;          /* IDCLIENT_TRUST_UID or 0 */
  uint32_t trusted_uid;    /* with IDCLIENT_TRUST_UID: a user whose daemon is trusted, like that of
                              root, the caller and the user idd */
  uint32_t reserved;       /* zero */
} idclient_options;

#define IDCLIENT_TRUST_UID 1u
#define IDCLIENT_OPTIONS_INIT \
  { sizeof(idclient_options), NULL, 0u, 0u, 0u, 0u }

/* Connects to the daemon, checks who runs it and agrees on versions. `options` may be NULL and is
 * not kept. On success *out must be given to idclient_close. Errors: INVALID, UNAVAILABLE, DENIED,
 * INCOMPATIBLE, SYSTEM. */
IDCLIENT_API idclient_status idclient_open(const idclient_options* options, idclient** out);

/* Closes the client and all its tags. NULL is allowed. Unclaimed ids stay in the ring. */
IDCLIENT_API void idclient_close(idclient* client);

/* Opens a tag: 1 to 128 bytes of printable UTF-8. The handle lives until idclient_close; opening
 * the same tag again returns the same handle. Errors: INVALID, UNAVAILABLE, NO_SUCH_TAG, DENIED,
 * TIMEOUT, INCOMPATIBLE, SYSTEM. */
IDCLIENT_API idclient_status idclient_tag_open(idclient* client, const char* tag,
                                               idclient_tag** out);

/* Fields may be added at the end; struct_size says which are there. Start from
 * IDCLIENT_TAG_OPTIONS_INIT. */
typedef struct idclient_tag_options {
  size_t struct_size;  /* sizeof(idclient_tag_options) */
  uint32_t block_size; /* ids that each thread claims at once and hands out by itself; 0 or 1: none.
                          At most 65,536. */
  uint32_t reserved;   /* zero */
} idclient_tag_options;

#define IDCLIENT_TAG_OPTIONS_INIT \
  { sizeof(idclient_tag_options), 0u, 0u }

/* Opens a tag as idclient_tag_open does, with options; NULL means the defaults. Returns one handle
 * per tag and block size.
 *
 * With a block size, idclient_claim costs less than an atomic add, but the order is weaker: ids
 * rise within a thread only, and across threads they are out of order by no more than the blocks
 * that the threads hold. A thread that exits, an idclient_close and a fork's child each lose at
 * most one block per thread and handle: a gap, and the ids count as claimed. Batches and ranges are
 * claimed from the ring.
 * Errors: also INVALID for a bad option, and SYSTEM if the kernel cannot keep blocks out of the
 * child of a fork.
 */
IDCLIENT_API idclient_status idclient_tag_open_with(idclient* client, const char* tag,
                                                    const idclient_tag_options* options,
                                                    idclient_tag** out);

/* Claims one id. Never blocks while the ring has ids.
 * Errors: INVALID, UNAVAILABLE, NO_SUCH_TAG, DENIED, TIMEOUT, OUT_OF_IDS, INCOMPATIBLE, SYSTEM. */
IDCLIENT_API idclient_status idclient_claim(idclient_tag* tag, uint64_t* id);

/* Claims `count` ids, rising, not necessarily contiguous, under one deadline. On an error the first
 * *claimed of `ids` are yours all the same. count 0 is OK and claims nothing. */
IDCLIENT_API idclient_status idclient_claim_many(idclient_tag* tag, uint64_t* ids, size_t count,
                                                 size_t* claimed);

/* Claims the contiguous ids [*first, *first + *claimed): the largest run up to `count` that one
 * segment has left, or with order `cpu` this CPU's lane; at least one. count 0 is INVALID. */
IDCLIENT_API idclient_status idclient_claim_range(idclient_tag* tag, size_t count, uint64_t* first,
                                                  size_t* claimed);

/* "OK", "TIMEOUT", ...; "UNKNOWN" for other values. Never NULL, never freed. */
IDCLIENT_API const char* idclient_status_name(idclient_status status);

/* The error message of the calling thread's last failed call; valid until its next call. */
IDCLIENT_API const char* idclient_last_error(void);

/* "MAJOR.MINOR.PATCH" of the library. */
IDCLIENT_API const char* idclient_version(void);

/* For idclient.hpp only, whose claims are inlined into the program. The view of a tag, an
 * idd::shm::ClaimView that lives as long as the handle; NULL when this library's layout is not
 * `version` or the tag's claims cannot be inlined: then call idclient_claim. */
IDCLIENT_API const void* idclient_tag_view(idclient_tag* tag, uint32_t version);

/* For idclient.hpp only. The lanes of a tag of order cpu, an idd::shm::LaneViewPointer that lives
 * as long as the handle; NULL when this library's layout is not `version`, the tag has another
 * order, or this process has no restartable sequences: then use idclient_tag_view. */
IDCLIENT_API const void* idclient_tag_lanes(idclient_tag* tag, uint32_t version);

/* For idclient.hpp only: the inlined claim covered the refill mark. Never blocks. */
IDCLIENT_API void idclient_tag_wake(idclient_tag* tag);

#ifdef __cplusplus
}
#endif

#endif /* IDCLIENT_H_ */
