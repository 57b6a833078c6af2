/* SPDX-License-Identifier: Apache-2.0
 *
 * The Python extension over libidclient, in CPython's stable ABI (3.11).
 *
 * A claim first takes what the ring has, with the GIL held: that is faster than releasing it. Only
 * if there is nothing, it releases the GIL and waits. idclient_close and idclient_tag_close must
 * not run beside another call on their object, so whoever closes while other threads are inside
 * leaves it to the last of them. The counters of those inside change with the GIL held. */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#define _POSIX_C_SOURCE 200809L
#include <Python.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "idclient/idclient.h"

#define STATUSES (IDCLIENT_SYSTEM + 1)

/* logging.INFO and logging.WARNING, so that Logger.log can be the log function. */
enum { kLogInfo = 20, kLogWarning = 30 };

typedef struct {
  PyObject* error;            /* idclient.Error */
  PyObject* errors[STATUSES]; /* its subclasses, by status */
  PyTypeObject* client_type;
  PyTypeObject* tag_type;
  PyTypeObject* info_type;
  PyObject* array_type; /* array.array */
  PyObject* range_type;
} ModuleState;

/* How many threads are inside a call of the library without the GIL. A fork leaves only one. */
typedef struct {
  Py_ssize_t count;
  pid_t process;
} Inside;

/* How long a wait goes on at most before Python's signal handlers run, Ctrl-C among them. A claim
 * from a ring that is made in several requests loses nothing. Without a ring, each request starts
 * anew, and one that ends too early may never get an id. */
enum { kSliceMs = 200, kSliceWithoutRingMs = 5000, kDefaultTimeoutMs = 500 };

/* What the library has logged and the log function has not got yet. */
typedef struct LogLine {
  struct LogLine* next;
  int level;
  char message[];
} LogLine;

typedef struct {
  PyObject ob_base;        /* what PyObject_HEAD declares */
  idclient_client* client; /* NULL: closed, or its end is left to the last thread inside */
  idclient_client* ending; /* to be closed by the last thread inside */
  Inside inside;
  uint32_t timeout_ms;
  PyObject* log;
  _Atomic(LogLine*) lines; /* newest first */
} Client;

typedef struct {
  PyObject ob_base;
  Client* client;
  idclient_tag* tag; /* NULL: closed */
  idclient_tag* ending;
  Inside inside;
  bool had_ring;
  PyObject* name;
} Tag;

static struct PyModuleDef module_def;

static ModuleState* state_of(PyObject* self) { return PyType_GetModuleState(Py_TYPE(self)); }

/* --- threads inside */

static void enter(Inside* inside) {
  const pid_t mine = getpid();
  if (inside->process != mine) {
    inside->process = mine;
    inside->count = 0;
  }
  ++inside->count;
}

/* True for the last one. */
static bool leave(Inside* inside) { return --inside->count == 0; }

static bool is_used(const Inside* inside) {
  return inside->count != 0 && inside->process == getpid();
}

/* --- errors */

static PyObject* fail_with(ModuleState* state, idclient_status status, const char* message) {
  PyObject* type = state->error;
  if (status > IDCLIENT_OK && (int)status < STATUSES) type = state->errors[status];
  /* A message may name a path that is not UTF-8. */
  PyObject* const text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
  if (text != NULL) PyErr_SetObject(type, text);
  Py_XDECREF(text);
  return NULL;
}

static PyObject* fail(ModuleState* state, idclient_status status) {
  return fail_with(state, status, idclient_last_error());
}

static PyObject* fail_closed(PyObject* self, const char* what) {
  char message[64];
  PyOS_snprintf(message, sizeof(message), "the %s is closed", what);
  return fail_with(state_of(self), IDCLIENT_INVALID, message);
}

static bool is_open(const Tag* tag) { return tag->tag != NULL && tag->client->client != NULL; }

static PyObject* fail_tag_closed(Tag* tag) {
  return fail_closed((PyObject*)tag, tag->tag == NULL ? "tag" : "client");
}

/* --- waits */

/* Seconds to milliseconds, rounded up. False with an exception for what the library would refuse.
 */
static bool timeout_of(PyObject* seconds, uint32_t* milliseconds) {
  const double value = PyFloat_AsDouble(seconds);
  if (value == -1.0 && PyErr_Occurred() != NULL) return false;
  if (!(value >= 0 && value <= 3600)) {
    PyErr_SetString(PyExc_ValueError, "a timeout is 0 to 3600 seconds");
    return false;
  }
  const double exact = value * 1000;
  *milliseconds = (uint32_t)exact;
  if (*milliseconds < exact) ++*milliseconds;
  return true;
}

static void begin_wait(Tag* tag) {
  Py_INCREF((PyObject*)tag); /* another thread may drop the last reference meanwhile */
  enter(&tag->inside);
  enter(&tag->client->inside);
}

static void write_lines(Client* self);

static void end_client(Client* client) {
  idclient_client* const ending = client->ending;
  client->ending = NULL;
  if (ending != NULL) idclient_close(ending);
}

static void end_wait(Tag* tag) {
  Client* const client = tag->client;
  if (leave(&tag->inside) && tag->ending != NULL) {
    idclient_tag* const ending = tag->ending;
    tag->ending = NULL;
    /* A client that is closed, or will be, ends its tags itself. */
    if (client->client != NULL) idclient_tag_close(ending);
  }
  if (leave(&client->inside)) end_client(client);
  write_lines(client);
  Py_DECREF((PyObject*)tag);
}

/* --- Client */

/* Called without the GIL, on any thread: one that asks for the GIL may be ended by an interpreter
 * that ends. Without memory, the line is lost. */
static void keep_line(void* context, idclient_log_level level, const char* message) {
  Client* const client = context;
  const size_t bytes = strlen(message) + 1;
  LogLine* const line = malloc(sizeof(*line) + bytes);
  if (line == NULL) return;
  line->level = level == IDCLIENT_LOG_WARNING ? kLogWarning : kLogInfo;
  memcpy(line->message, message, bytes);
  line->next = atomic_load(&client->lines);
  while (!atomic_compare_exchange_weak(&client->lines, &line->next, line)) {
  }
}

/* Calls the log function with all lines, the oldest first. An exception that is set stays set. */
static void write_lines(Client* self) {
  if (atomic_load(&self->lines) == NULL) return;
  LogLine* newest = atomic_exchange(&self->lines, NULL);
  LogLine* oldest = NULL;
  while (newest != NULL) {
    LogLine* const next = newest->next;
    newest->next = oldest;
    oldest = newest;
    newest = next;
  }
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject* const log = self->log == NULL ? NULL : Py_NewRef(self->log);
  while (oldest != NULL) {
    LogLine* const line = oldest;
    oldest = line->next;
    PyObject* const text =
        PyUnicode_DecodeUTF8(line->message, (Py_ssize_t)strlen(line->message), "replace");
    PyObject* const result =
        log == NULL || text == NULL ? NULL : PyObject_CallFunction(log, "iO", line->level, text);
    if (PyErr_Occurred() != NULL) PyErr_WriteUnraisable(log);
    Py_XDECREF(result);
    Py_XDECREF(text);
    free(line);
  }
  Py_XDECREF(log);
  PyErr_Restore(type, value, trace);
}

static PyObject* client_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"socket_path", "timeout", "trusted_uid", "open_once", "log", NULL};
  PyObject* path = Py_None;
  PyObject* timeout = Py_None;
  PyObject* uid = Py_None;
  int open_once = 0;
  PyObject* log = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOOpO:Client", names, &path, &timeout, &uid,
                                   &open_once, &log)) {
    return NULL;
  }
  idclient_options options = IDCLIENT_OPTIONS_INIT;
  if (timeout != Py_None && !timeout_of(timeout, &options.timeout_ms)) return NULL;
  if (timeout != Py_None && options.timeout_ms == 0) options.timeout_ms = 1; /* 0: the default */
  if (uid != Py_None) {
    const unsigned long number = PyLong_AsUnsignedLong(uid);
    if (PyErr_Occurred() != NULL) return NULL;
    if (number > UINT32_MAX) {
      PyErr_SetString(PyExc_ValueError, "trusted_uid is no user id");
      return NULL;
    }
    options.flags |= IDCLIENT_TRUST_UID;
    options.trusted_uid = (uint32_t)number;
  }
  if (open_once) options.flags |= IDCLIENT_OPEN_ONCE;
  if (log != Py_None && !PyCallable_Check(log)) {
    PyErr_SetString(PyExc_TypeError, "log is not callable");
    return NULL;
  }
  PyObject* path_bytes = NULL;
  if (path != Py_None) {
    if (!PyUnicode_FSConverter(path, &path_bytes)) return NULL;
    options.socket_path = PyBytes_AsString(path_bytes);
  }
  Client* const self = (Client*)PyType_GenericAlloc(type, 0);
  if (self == NULL) {
    Py_XDECREF(path_bytes);
    return NULL;
  }
  if (log != Py_None) {
    self->log = Py_NewRef(log);
    options.log = keep_line;
    options.log_context = self;
  }
  idclient_client* client = NULL;
  PyThreadState* const thread = PyEval_SaveThread();
  const idclient_status status = idclient_open(&options, &client);
  PyEval_RestoreThread(thread);
  Py_XDECREF(path_bytes);
  if (status != IDCLIENT_OK) {
    fail(state_of((PyObject*)self), status);
    write_lines(self);
    Py_DECREF((PyObject*)self);
    return NULL;
  }
  write_lines(self);
  self->client = client;
  self->timeout_ms = options.timeout_ms == 0 ? kDefaultTimeoutMs : options.timeout_ms;
  return (PyObject*)self;
}

static PyObject* client_close(PyObject* object, PyObject* Py_UNUSED(unused)) {
  Client* const self = (Client*)object;
  if (self->client != NULL) {
    self->ending = self->client;
    self->client = NULL;
    if (!is_used(&self->inside)) end_client(self);
  }
  Py_RETURN_NONE;
}

static int client_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(((Client*)object)->log);
  return 0;
}

static int client_clear(PyObject* object) {
  /* Without the client, nothing calls the log function any more. */
  Py_XDECREF(client_close(object, NULL));
  Py_CLEAR(((Client*)object)->log);
  write_lines((Client*)object); /* frees them */
  return 0;
}

static void client_dealloc(PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  client_clear(object);
  PyObject_GC_Del(object);
  Py_DECREF(type);
}

/* A ring that idd has closed is one that the tag will have again. */
static uint32_t slice_of(Tag* self) {
  idclient_tag_info info = IDCLIENT_TAG_INFO_INIT;
  if (idclient_tag_get_info(self->tag, &info) == IDCLIENT_OK &&
      info.state != IDCLIENT_STATE_NO_RING) {
    self->had_ring = true;
  }
  return self->had_ring ? kSliceMs : kSliceWithoutRingMs;
}

static PyObject* client_tag(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"name", "block_size", NULL};
  Client* const self = (Client*)object;
  PyObject* name = NULL;
  PyObject* block_number = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "U|O!:tag", names, &name, &PyLong_Type,
                                   &block_number)) {
    return NULL;
  }
  unsigned long block_size = 0;
  if (block_number != NULL) block_size = PyLong_AsUnsignedLong(block_number);
  if (block_size > UINT32_MAX) {
    PyErr_Clear();
    return fail_with(state_of(object), IDCLIENT_INVALID, "block_size is 0 to 65,536");
  }
  Py_ssize_t bytes = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(name, &bytes);
  if (text == NULL) return NULL;
  ModuleState* const state = state_of(object);
  if (strlen(text) != (size_t)bytes) {
    return fail_with(state, IDCLIENT_INVALID, "a tag's name has no zero byte");
  }
  if (self->client == NULL) return fail_closed(object, "client");
  Tag* const tag = (Tag*)PyType_GenericAlloc(state->tag_type, 0);
  if (tag == NULL) return NULL;
  tag->client = (Client*)Py_NewRef(object);
  tag->name = Py_NewRef(name);

  idclient_tag_options options = IDCLIENT_TAG_OPTIONS_INIT;
  options.block_size = (uint32_t)block_size;
  idclient_client* const client = self->client;
  idclient_tag* opened = NULL;
  begin_wait(tag);
  PyThreadState* const thread = PyEval_SaveThread();
  const idclient_status status = idclient_tag_open_with(client, text, &options, &opened);
  PyEval_RestoreThread(thread);
  if (status != IDCLIENT_OK) {
    fail(state, status);
  } else {
    tag->tag = opened;
    if (is_open(tag)) (void)slice_of(tag); /* notes whether it has a ring */
  }
  end_wait(tag);
  if (status == IDCLIENT_OK) return (PyObject*)tag;
  Py_DECREF((PyObject*)tag);
  return NULL;
}

static PyObject* return_self(PyObject* self, PyObject* Py_UNUSED(unused)) {
  return Py_NewRef(self);
}

static PyObject* client_exit(PyObject* self, PyObject* Py_UNUSED(args)) {
  return client_close(self, NULL);
}

static PyObject* client_closed(PyObject* self, void* Py_UNUSED(closure)) {
  return PyBool_FromLong(((Client*)self)->client == NULL);
}

/* --- Tag */

static PyObject* tag_close(PyObject* object, PyObject* Py_UNUSED(unused)) {
  Tag* const self = (Tag*)object;
  idclient_tag* const tag = self->tag;
  self->tag = NULL;
  if (tag == NULL || self->client == NULL || self->client->client == NULL) Py_RETURN_NONE;
  if (is_used(&self->inside)) {
    self->ending = tag;
  } else {
    idclient_tag_close(tag);
  }
  Py_RETURN_NONE;
}

static int tag_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(((Tag*)object)->client);
  return 0;
}

static int tag_clear(PyObject* object) {
  Py_XDECREF(tag_close(object, NULL));
  Py_CLEAR(((Tag*)object)->client);
  return 0;
}

static void tag_dealloc(PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  tag_clear(object);
  Py_CLEAR(((Tag*)object)->name);
  PyObject_GC_Del(object);
  Py_DECREF(type);
}

static uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* A claim that waits for at most `timeout_ms`. */
static PyObject* claim_waiting(Tag* self, uint32_t timeout_ms) {
  const uint64_t deadline = now_ms() + timeout_ms;
  PyObject* result = NULL;
  begin_wait(self);
  while (true) {
    const uint64_t begin = now_ms();
    const uint64_t left = begin < deadline ? deadline - begin : 0;
    if (!is_open(self)) {
      fail_tag_closed(self);
      break;
    }
    idclient_tag* const tag = self->tag;
    const uint32_t most = slice_of(self);
    const uint32_t slice = left < most ? (uint32_t)left : most;
    uint64_t id = 0;
    PyThreadState* const thread = PyEval_SaveThread();
    const idclient_status status = idclient_claim_timeout(tag, slice, &id);
    PyEval_RestoreThread(thread);
    if (status == IDCLIENT_OK) {
      result = PyLong_FromUnsignedLongLong(id);
      break;
    }
    /* What is refused before its time will not change by waiting: a drained tag, say. */
    const uint64_t end = now_ms();
    const bool is_over =
        status == IDCLIENT_TIMEOUT || (status == IDCLIENT_UNAVAILABLE && end - begin >= slice);
    const bool goes_on = is_over && end < deadline;
    if (!goes_on) {
      fail(state_of((PyObject*)self), status);
      break;
    }
    if (PyErr_CheckSignals() != 0) break;
  }
  end_wait(self);
  return result;
}

static PyObject* claim_default(Tag* self) {
  uint64_t id = 0;
  if (!is_open(self)) return fail_tag_closed(self);
  if (idclient_claim_timeout(self->tag, IDCLIENT_NO_WAIT, &id) == IDCLIENT_OK) {
    return PyLong_FromUnsignedLongLong(id);
  }
  return claim_waiting(self, self->client->timeout_ms);
}

/* The `timeout` of claim(timeout) or claim(timeout=...); NULL with an exception. */
static PyObject* only_timeout(PyObject* const* args, Py_ssize_t count, PyObject* names) {
  const Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
  const bool is_one = count + named == 1;
  if (is_one && named == 0) return args[0];
  if (is_one && PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "timeout") == 0) {
    return args[0];
  }
  PyErr_SetString(PyExc_TypeError, "claim() takes one argument at most: timeout");
  return NULL;
}

static PyObject* tag_claim(PyObject* object, PyObject* const* args, Py_ssize_t count,
                           PyObject* names) {
  Tag* const self = (Tag*)object;
  if (count == 0 && names == NULL) return claim_default(self);
  PyObject* const timeout = only_timeout(args, count, names);
  if (timeout == NULL) return NULL;
  if (timeout == Py_None) return claim_default(self);
  uint32_t timeout_ms = 0;
  if (!timeout_of(timeout, &timeout_ms)) return NULL;
  if (!is_open(self)) return fail_tag_closed(self);
  uint64_t id = 0;
  const idclient_status status = idclient_claim_timeout(self->tag, IDCLIENT_NO_WAIT, &id);
  if (status == IDCLIENT_OK) return PyLong_FromUnsignedLongLong(id);
  if (timeout_ms == 0) return fail(state_of(object), status);
  return claim_waiting(self, timeout_ms);
}

static PyObject* tag_try_claim(PyObject* object, PyObject* Py_UNUSED(unused)) {
  Tag* const self = (Tag*)object;
  uint64_t id = 0;
  if (!is_open(self)) return fail_tag_closed(self);
  const idclient_status status = idclient_claim_timeout(self->tag, IDCLIENT_NO_WAIT, &id);
  if (status == IDCLIENT_OK) return PyLong_FromUnsignedLongLong(id);
  if (status == IDCLIENT_TIMEOUT) Py_RETURN_NONE;
  return fail(state_of(object), status);
}

static PyObject* tag_next(PyObject* object) { return claim_default((Tag*)object); }

/* Sets an exception if not all were claimed. Its attribute `claimed` has the number. */
static bool claim_into(Tag* self, uint64_t* ids, size_t count, size_t* claimed) {
  idclient_tag* const tag = self->tag;
  begin_wait(self);
  PyThreadState* const thread = PyEval_SaveThread();
  const idclient_status status = idclient_claim_many(tag, ids, count, claimed);
  PyEval_RestoreThread(thread);
  if (status != IDCLIENT_OK) fail(state_of((PyObject*)self), status);
  end_wait(self);
  return status == IDCLIENT_OK;
}

/* Adds `claimed` to the exception that is set. */
static void say_claimed(size_t claimed) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyObject* const number = PyLong_FromSize_t(claimed);
  if (number == NULL || value == NULL || PyObject_SetAttrString(value, "claimed", number) != 0) {
    PyErr_Clear();
  }
  Py_XDECREF(number);
  PyErr_Restore(type, value, trace);
}

/* Adds the claimed ones of `ids` to the exception that is set. */
static void say_ids(PyObject* ids) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyObject* const number = value == NULL ? NULL : PyObject_GetAttrString(value, "claimed");
  const Py_ssize_t claimed = number == NULL ? -1 : PyLong_AsSsize_t(number);
  PyObject* const part = claimed < 0 ? NULL : PySequence_GetSlice(ids, 0, claimed);
  if (part == NULL || PyObject_SetAttrString(value, "ids", part) != 0) PyErr_Clear();
  Py_XDECREF(number);
  Py_XDECREF(part);
  PyErr_Restore(type, value, trace);
}

static bool has_unsigned_64_bits(const Py_buffer* buffer) {
  const char* format = buffer->format == NULL ? "B" : buffer->format;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  return buffer->itemsize == sizeof(uint64_t) &&
         (strcmp(format, "Q") == 0 || strcmp(format, "L") == 0);
}

static PyObject* tag_claim_into(PyObject* object, PyObject* target) {
  Tag* const self = (Tag*)object;
  Py_buffer buffer;
  if (PyObject_GetBuffer(target, &buffer, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) !=
      0) {
    return NULL;
  }
  size_t claimed = 0;
  bool is_done = false;
  if (!has_unsigned_64_bits(&buffer)) {
    PyErr_SetString(PyExc_TypeError, "a buffer of unsigned 64-bit integers is needed (format Q)");
  } else if (!is_open(self)) {
    fail_tag_closed(self);
  } else {
    is_done = claim_into(self, buffer.buf, (size_t)buffer.len / sizeof(uint64_t), &claimed);
    if (!is_done) say_claimed(claimed);
  }
  PyBuffer_Release(&buffer);
  return is_done ? PyLong_FromSize_t(claimed) : NULL;
}

static PyObject* tag_claim_many(PyObject* object, PyObject* number) {
  Tag* const self = (Tag*)object;
  const Py_ssize_t count = PyLong_AsSsize_t(number);
  if (count == -1 && PyErr_Occurred() != NULL) return NULL;
  if (count < 0 || count > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(uint64_t)) {
    PyErr_SetString(PyExc_ValueError, "a count is 0 or more, and fits into memory");
    return NULL;
  }
  if (!is_open(self)) return fail_tag_closed(self);
  /* array('Q', [0]) * count is one allocation of the right size. */
  PyObject* const one = PyObject_CallFunction(state_of(object)->array_type, "s[i]", "Q", 0);
  if (one == NULL) return NULL;
  PyObject* const ids = PySequence_Repeat(one, count);
  Py_DECREF(one);
  if (ids == NULL) return NULL;
  PyObject* const claimed = tag_claim_into(object, ids);
  if (claimed == NULL) {
    say_ids(ids);
    Py_DECREF(ids);
    return NULL;
  }
  Py_DECREF(claimed);
  return ids;
}

static PyObject* tag_claim_range(PyObject* object, PyObject* number) {
  Tag* const self = (Tag*)object;
  const size_t count = PyLong_AsSize_t(number);
  if (count == (size_t)-1 && PyErr_Occurred() != NULL) return NULL;
  if (!is_open(self)) return fail_tag_closed(self);
  ModuleState* const state = state_of(object);
  idclient_tag* const tag = self->tag;
  uint64_t first = 0;
  size_t claimed = 0;
  begin_wait(self);
  PyThreadState* const thread = PyEval_SaveThread();
  const idclient_status status = idclient_claim_range(tag, count, &first, &claimed);
  PyEval_RestoreThread(thread);
  PyObject* const result =
      status == IDCLIENT_OK
          ? PyObject_CallFunction(state->range_type, "KK", (unsigned long long)first,
                                  (unsigned long long)(first + claimed))
          : fail(state, status);
  end_wait(self);
  return result;
}

static const char* mode_name(uint32_t mode) {
  static const char* const names[] = {"unknown", "segment", "snowflake", "ticket"};
  return mode < sizeof(names) / sizeof(names[0]) ? names[mode] : names[0];
}

static const char* state_name(uint32_t state) {
  static const char* const names[] = {"no ring", "ok", "dry", "quarantined", "drained"};
  return state < sizeof(names) / sizeof(names[0]) ? names[state] : "unknown";
}

static PyObject* tag_info(PyObject* object, PyObject* Py_UNUSED(unused)) {
  Tag* const self = (Tag*)object;
  if (!is_open(self)) return fail_tag_closed(self);
  ModuleState* const state = state_of(object);
  idclient_tag_info info = IDCLIENT_TAG_INFO_INIT;
  const idclient_status status = idclient_tag_get_info(self->tag, &info);
  if (status != IDCLIENT_OK) return fail(state, status);
  PyObject* const result = PyStructSequence_New(state->info_type);
  if (result == NULL) return NULL;
  PyObject* const values[] = {
      PyUnicode_FromString(mode_name(info.mode)),
      PyUnicode_FromString(info.order == IDCLIENT_ORDER_CPU ? "cpu" : "host"),
      PyUnicode_FromString(state_name(info.state)),
      PyLong_FromUnsignedLongLong(info.step),
      PyLong_FromUnsignedLongLong(info.available),
      info.cover_ms == IDCLIENT_UNKNOWN ? Py_NewRef(Py_None)
                                        : PyFloat_FromDouble((double)info.cover_ms / 1000)};
  bool is_whole = true;
  for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); ++i) {
    if (values[i] == NULL) is_whole = false;
    PyStructSequence_SetItem(result, (Py_ssize_t)i, values[i]);
  }
  if (is_whole) return result;
  Py_DECREF(result);
  return NULL;
}

static PyObject* tag_name(PyObject* self, void* Py_UNUSED(closure)) {
  return Py_NewRef(((Tag*)self)->name);
}

static PyObject* tag_repr(PyObject* self) {
  return PyUnicode_FromFormat("<idclient.Tag %R>", ((Tag*)self)->name);
}

/* --- the module */

#define METHOD(name, function, flags, text) \
  { name, (PyCFunction)(void (*)(void))(function), flags, text }

static PyMethodDef client_methods[] = {
    METHOD("tag", client_tag, METH_VARARGS | METH_KEYWORDS,
           "tag(name, block_size=0)\n--\n\nOpens a tag. With a block size, each thread claims so "
           "many ids at once."),
    METHOD("close", client_close, METH_NOARGS, "close()\n--\n\nCloses the client and its tags."),
    METHOD("__enter__", return_self, METH_NOARGS, NULL),
    METHOD("__exit__", client_exit, METH_VARARGS, NULL),
    {NULL, NULL, 0, NULL}};

static PyGetSetDef client_getset[] = {
    {"closed", client_closed, NULL, "Whether it is closed.", NULL}, {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot client_slots[] = {
    {Py_tp_doc,
     "Client(socket_path=None, timeout=None, trusted_uid=None, open_once=False, log=None)\n--\n\n"
     "A connection to the host's idd. Threads may share it; after a fork, both processes may use "
     "it."},
    {Py_tp_new, client_new},
    {Py_tp_dealloc, client_dealloc},
    {Py_tp_traverse, client_traverse},
    {Py_tp_clear, client_clear},
    {Py_tp_methods, client_methods},
    {Py_tp_getset, client_getset},
    {0, NULL}};

static PyType_Spec client_spec = {
    .name = "idclient.Client",
    .basicsize = sizeof(Client),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = client_slots};

static PyMethodDef tag_methods[] = {
    METHOD("claim", tag_claim, METH_FASTCALL | METH_KEYWORDS,
           "claim(timeout=None)\n--\n\nClaims one id. `timeout`, in seconds: the longest wait, "
           "instead of the client's; 0: no wait."),
    METHOD("try_claim", tag_try_claim, METH_NOARGS,
           "try_claim()\n--\n\nOne id, or None if that would need a wait."),
    METHOD("claim_many", tag_claim_many, METH_O,
           "claim_many(count)\n--\n\nClaims `count` rising ids, as an array('Q')."),
    METHOD("claim_into", tag_claim_into, METH_O,
           "claim_into(buffer)\n--\n\nFills an array('Q'), a NumPy array of uint64 or another "
           "buffer with rising ids, without a copy. Returns their number."),
    METHOD("claim_range", tag_claim_range, METH_O,
           "claim_range(count)\n--\n\nClaims a run of at least one and up to `count` ids without "
           "gaps, as a range."),
    METHOD("info", tag_info, METH_NOARGS,
           "info()\n--\n\nWhat the host's ring shows of the tag, without a request."),
    METHOD("close", tag_close, METH_NOARGS, "close()\n--\n\nCloses this handle."),
    {NULL, NULL, 0, NULL}};

static PyGetSetDef tag_getset[] = {{"name", tag_name, NULL, "The tag's name.", NULL},
                                   {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot tag_slots[] = {
    {Py_tp_doc, "One tag of a Client. Iterating over it claims ids without end."},
    {Py_tp_dealloc, tag_dealloc},
    {Py_tp_traverse, tag_traverse},
    {Py_tp_clear, tag_clear},
    {Py_tp_repr, tag_repr},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, tag_next},
    {Py_tp_methods, tag_methods},
    {Py_tp_getset, tag_getset},
    {0, NULL}};

static PyType_Spec tag_spec = {.name = "idclient.Tag",
                               .basicsize = sizeof(Tag),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                        Py_TPFLAGS_IMMUTABLETYPE |
                                        Py_TPFLAGS_DISALLOW_INSTANTIATION,
                               .slots = tag_slots};

static PyStructSequence_Field info_fields[] = {
    {"mode", "segment, snowflake, ticket, or unknown: idd is older than the library"},
    {"order", "host or cpu"},
    {"state", "ok, dry, drained, quarantined, or no ring: every claim asks idd"},
    {"step", "ids of the next lease; 0 without a ring and in mode snowflake"},
    {"available", "ids that the host's ring has, for all programs; 0 in mode snowflake"},
    {"cover", "for how many seconds they last; None: there is no load, or no ring"},
    {NULL, NULL}};

static PyStructSequence_Desc info_desc = {.name = "idclient.TagInfo",
                                          .doc = "What a process can see of a tag.",
                                          .fields = info_fields,
                                          .n_in_sequence = 6};

/* Makes the exception of a status, which is also of the type of the standard library that callers
 * expect. */
static int add_error(PyObject* module, ModuleState* state, idclient_status status, const char* name,
                     PyObject* also, const char* doc) {
  char full_name[64];
  PyOS_snprintf(full_name, sizeof(full_name), "idclient.%s", name);
  PyObject* const bases =
      also == NULL ? PyTuple_Pack(1, state->error) : PyTuple_Pack(2, state->error, also);
  PyObject* const dict =
      Py_BuildValue("{s:s,s:O}", "status", idclient_status_name(status), "retryable",
                    idclient_status_retryable(status) != 0 ? Py_True : Py_False);
  if (bases != NULL && dict != NULL) {
    state->errors[status] = PyErr_NewExceptionWithDoc(full_name, doc, bases, dict);
  }
  Py_XDECREF(bases);
  Py_XDECREF(dict);
  return state->errors[status] == NULL ? -1
                                       : PyModule_AddObjectRef(module, name, state->errors[status]);
}

static int add_errors(PyObject* module, ModuleState* state) {
  PyObject* const dict = Py_BuildValue("{s:s,s:O,s:i,s:()}", "status", "UNKNOWN", "retryable",
                                       Py_False, "claimed", 0, "ids");
  if (dict == NULL) return -1;
  state->error =
      PyErr_NewExceptionWithDoc("idclient.Error", "A call of idclient failed.", NULL, dict);
  Py_DECREF(dict);
  if (state->error == NULL || PyModule_AddObjectRef(module, "Error", state->error) != 0) return -1;
  const struct {
    idclient_status status;
    const char* name;
    PyObject* also;
    const char* doc;
  } all[] = {
      {IDCLIENT_INVALID, "InvalidError", PyExc_ValueError,
       "An argument or the tag's row is wrong."},
      {IDCLIENT_UNAVAILABLE, "UnavailableError", PyExc_ConnectionError,
       "idd cannot be reached, or refuses for now."},
      {IDCLIENT_NO_SUCH_TAG, "NoSuchTagError", PyExc_LookupError, "The allocator has no such tag."},
      {IDCLIENT_DENIED, "DeniedError", PyExc_PermissionError,
       "This user may not use idd or the tag, or idd runs as a user that is not trusted."},
      {IDCLIENT_TIMEOUT, "TimeoutError", PyExc_TimeoutError, "No ids came in time."},
      {IDCLIENT_OUT_OF_IDS, "OutOfIdsError", NULL, "The tag has no more ids."},
      {IDCLIENT_INCOMPATIBLE, "IncompatibleError", NULL,
       "idd and the library do not understand each other."},
      {IDCLIENT_SYSTEM, "SystemError", PyExc_OSError, "A system call failed."}};
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i) {
    if (add_error(module, state, all[i].status, all[i].name, all[i].also, all[i].doc) != 0)
      return -1;
  }
  return 0;
}

static PyObject* attribute_of(const char* module_name, const char* name) {
  PyObject* const module = PyImport_ImportModule(module_name);
  if (module == NULL) return NULL;
  PyObject* const found = PyObject_GetAttrString(module, name);
  Py_DECREF(module);
  return found;
}

static int module_exec(PyObject* module) {
  ModuleState* const state = PyModule_GetState(module);
  if (add_errors(module, state) != 0) return -1;
  state->client_type = (PyTypeObject*)PyType_FromModuleAndSpec(module, &client_spec, NULL);
  if (state->client_type == NULL || PyModule_AddType(module, state->client_type) != 0) return -1;
  state->tag_type = (PyTypeObject*)PyType_FromModuleAndSpec(module, &tag_spec, NULL);
  if (state->tag_type == NULL || PyModule_AddType(module, state->tag_type) != 0) return -1;
  state->info_type = PyStructSequence_NewType(&info_desc);
  if (state->info_type == NULL ||
      PyModule_AddObjectRef(module, "TagInfo", (PyObject*)state->info_type) != 0) {
    return -1;
  }
  state->array_type = attribute_of("array", "array");
  state->range_type = attribute_of("builtins", "range");
  if (state->array_type == NULL || state->range_type == NULL) return -1;
  return PyModule_AddStringConstant(module, "library_version", idclient_version());
}

static int module_traverse(PyObject* module, visitproc visit, void* arg) {
  ModuleState* const state = PyModule_GetState(module);
  Py_VISIT(state->error);
  for (int i = 0; i < STATUSES; ++i) Py_VISIT(state->errors[i]);
  Py_VISIT(state->client_type);
  Py_VISIT(state->tag_type);
  Py_VISIT(state->info_type);
  Py_VISIT(state->array_type);
  Py_VISIT(state->range_type);
  return 0;
}

static int module_clear(PyObject* module) {
  ModuleState* const state = PyModule_GetState(module);
  Py_CLEAR(state->error);
  for (int i = 0; i < STATUSES; ++i) Py_CLEAR(state->errors[i]);
  Py_CLEAR(state->client_type);
  Py_CLEAR(state->tag_type);
  Py_CLEAR(state->info_type);
  Py_CLEAR(state->array_type);
  Py_CLEAR(state->range_type);
  return 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef module_def = {PyModuleDef_HEAD_INIT,         .m_name = "_idclient",
                                        .m_size = sizeof(ModuleState), .m_slots = module_slots,
                                        .m_traverse = module_traverse, .m_clear = module_clear};

PyMODINIT_FUNC PyInit__idclient(void) { return PyModuleDef_Init(&module_def); }
