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
 * smaller. Ids of a tag of order `cpu`, which an operator chooses, rise in a CPU's lane only.
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
 * claims are safe while the ring has ids. A claim there that finds it dry returns UNAVAILABLE at
 * once if the handler has interrupted a call of this library; if it has interrupted malloc, it may
 * wait for that indefinitely.
 */
#ifndef IDCLIENT_H_
#define IDCLIENT_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define IDCLIENT_API __attribute__((visibility("default")))

/* The version of this header; idclient_version() has that of the library. */
#define IDCLIENT_VERSION_MAJOR 0
#define IDCLIENT_VERSION_MINOR 1
#define IDCLIENT_VERSION_PATCH 0
#define IDCLIENT_VERSION_NUMBER \
  (IDCLIENT_VERSION_MAJOR * 1000000 + IDCLIENT_VERSION_MINOR * 1000 + IDCLIENT_VERSION_PATCH)

typedef struct idclient_client idclient_client; /* a connection to one daemon; thread-safe */
typedef struct idclient_tag idclient_tag;       /* one tag; thread-safe; owned by its client */
#ifndef __cplusplus
typedef idclient_client idclient; /* in C++, `idclient` is the namespace of idclient.hpp */
#endif

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

/* A longest wait that means: do not wait. */
#define IDCLIENT_NO_WAIT 0u

typedef enum idclient_log_level {
  IDCLIENT_LOG_INFO = 1,   /* connected, attached to another ring */
  IDCLIENT_LOG_WARNING = 2 /* a connection was lost */
} idclient_log_level;

/* Gets what happens to the connection. Called on the thread whose call noticed it, without a lock
 * held; calls of this library from within get UNAVAILABLE. Must return, and must not throw. */
typedef void (*idclient_log_function)(void* context, idclient_log_level level, const char* message);

/* Fields may be added at the end; struct_size says which are there. Start from
 * IDCLIENT_OPTIONS_INIT, so that fields you do not know are zero. A field that is set and that the
 * library does not know is INVALID. */
typedef struct idclient_options {
  size_t struct_size;      /* sizeof(idclient_options) */
  const char* socket_path; /* NULL: $IDD_SOCKET, else /run/idd/idd.sock */
  uint32_t timeout_ms;     /* longest wait of a claim on a dry ring, of open and of tag_open, in
                              milliseconds; 0: 500. At most 3,600,000. */
  uint32_t flags;          /* of the flags below */
  uint32_t trusted_uid;    /* with IDCLIENT_TRUST_UID: a user whose daemon is trusted, like that of
                              root, the caller and the user idd */
  uint32_t reserved;       /* zero */
  idclient_log_function log; /* NULL: none */
  void* log_context;         /* the first argument of `log` */
} idclient_options;

#define IDCLIENT_TRUST_UID 1u
#define IDCLIENT_OPEN_ONCE 2u /* open and tag_open try once, without a wait for the daemon */
#define IDCLIENT_OPTIONS_INIT \
  { sizeof(idclient_options), NULL, 0u, 0u, 0u, 0u, NULL, NULL }

/* Connects to the daemon, checks who runs it and agrees on versions. Waits up to timeout_ms for a
 * daemon that is not there yet. `options` may be NULL and is not kept. On success *out must be
 * given to idclient_close. Errors: INVALID, UNAVAILABLE, DENIED, INCOMPATIBLE, SYSTEM. */
IDCLIENT_API idclient_status idclient_open(const idclient_options* options, idclient_client** out);

/* Closes the client and all its tags. NULL is allowed. Unclaimed ids stay in the ring. */
IDCLIENT_API void idclient_close(idclient_client* client);

/* Opens a tag: 1 to 128 bytes of printable UTF-8. Opening the same tag again returns the same
 * handle. It lives until it was closed as often as it was opened, or until idclient_close. Waits up
 * to timeout_ms for a daemon that is not there. Errors: INVALID, UNAVAILABLE, NO_SUCH_TAG, DENIED,
 * TIMEOUT, INCOMPATIBLE, SYSTEM. */
IDCLIENT_API idclient_status idclient_tag_open(idclient_client* client, const char* tag,
                                               idclient_tag** out);

/* Ends one idclient_tag_open. The last one of a handle unmaps its ring; no other call may use the
 * handle then. NULL is allowed. */
IDCLIENT_API void idclient_tag_close(idclient_tag* tag);

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
IDCLIENT_API idclient_status idclient_tag_open_with(idclient_client* client, const char* tag,
                                                    const idclient_tag_options* options,
                                                    idclient_tag** out);

/* Claims one id. Never blocks while the ring has ids.
 * Errors: INVALID, UNAVAILABLE, NO_SUCH_TAG, DENIED, TIMEOUT, OUT_OF_IDS, INCOMPATIBLE, SYSTEM. */
IDCLIENT_API idclient_status idclient_claim(idclient_tag* tag, uint64_t* id);

/* The same with a longest wait of its own, at most 3,600,000 ms. IDCLIENT_NO_WAIT: takes an id that
 * this process can have without the daemon, or returns TIMEOUT and lets the daemon know that ids
 * are wanted. It gets nothing of a tag without a ring (mode ticket, access socket), and nothing
 * after a restart of the daemon that closed the ring: only a claim that may wait, for 1 ms say,
 * attaches again. */
IDCLIENT_API idclient_status idclient_claim_timeout(idclient_tag* tag, uint32_t timeout_ms,
                                                    uint64_t* id);

/* Claims `count` ids, rising, not necessarily contiguous, under one deadline. On an error the first
 * *claimed of `ids` are yours all the same. count 0 is OK and claims nothing. */
IDCLIENT_API idclient_status idclient_claim_many(idclient_tag* tag, uint64_t* ids, size_t count,
                                                 size_t* claimed);

/* Claims the contiguous ids [*first, *first + *claimed): the largest run up to `count` that one
 * segment has left, or with order `cpu` this CPU's lane; at least one. count 0 is INVALID. */
IDCLIENT_API idclient_status idclient_claim_range(idclient_tag* tag, size_t count, uint64_t* first,
                                                  size_t* claimed);

typedef enum idclient_tag_mode {
  IDCLIENT_MODE_UNKNOWN = 0, /* the daemon is older or newer than this library */
  IDCLIENT_MODE_SEGMENT = 1,
  IDCLIENT_MODE_SNOWFLAKE = 2, /* ids carry time */
  IDCLIENT_MODE_TICKET = 3     /* ids rise over all hosts; each claim asks the allocator */
} idclient_tag_mode;

typedef enum idclient_tag_order {
  IDCLIENT_ORDER_HOST = 1, /* ids rise on the host */
  IDCLIENT_ORDER_CPU = 2   /* ids rise in a CPU's lane */
} idclient_tag_order;

typedef enum idclient_tag_state {
  IDCLIENT_STATE_NO_RING = 0, /* every claim asks the daemon: mode ticket, access socket, or a ring
                                 that was closed and has no successor yet */
  IDCLIENT_STATE_OK = 1,
  IDCLIENT_STATE_DRY = 2, /* the ring has no ids now */
  IDCLIENT_STATE_QUARANTINED = 3,
  IDCLIENT_STATE_DRAINED = 4 /* by an operator */
} idclient_tag_state;

#define IDCLIENT_UNKNOWN UINT64_MAX

/* What this process can see of a tag. Fields may be added at the end; struct_size says which are
 * wanted. Start from IDCLIENT_TAG_INFO_INIT. */
typedef struct idclient_tag_info {
  size_t struct_size; /* sizeof(idclient_tag_info) */
  uint32_t mode;      /* idclient_tag_mode */
  uint32_t order;     /* idclient_tag_order */
  uint32_t state;     /* idclient_tag_state */
  uint32_t reserved;  /* written as zero */
  uint64_t step;      /* ids of the next lease; 0 without a ring and in mode snowflake */
  uint64_t available; /* ids that this host's ring has, for all programs; 0 in mode snowflake */
  uint64_t cover_ms;  /* how long they last: at the rate that the daemon reckons with, or in mode
                         snowflake by the clock; IDCLIENT_UNKNOWN: there is no load, or no ring */
} idclient_tag_info;

#define IDCLIENT_TAG_INFO_INIT \
  { sizeof(idclient_tag_info), 0u, 0u, 0u, 0u, 0u, 0u, 0u }

/* Reads the ring: no request, no wait. Errors: INVALID. */
IDCLIENT_API idclient_status idclient_tag_get_info(idclient_tag* tag, idclient_tag_info* info);

/* "OK", "TIMEOUT", ...; "UNKNOWN" for other values. Never NULL, never freed. */
IDCLIENT_API const char* idclient_status_name(idclient_status status);

/* 1 if the same call may succeed later without a change by an operator or the program (UNAVAILABLE,
 * TIMEOUT); otherwise 0. */
IDCLIENT_API int idclient_status_retryable(idclient_status status);

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
