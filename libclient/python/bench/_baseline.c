/* SPDX-License-Identifier: Apache-2.0
 *
 * What an extension's method costs that returns an int and does nothing else. */
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

static unsigned long long last = 1000000;

static PyObject* next_id(PyObject* self, PyObject* unused) {
  (void)self;
  (void)unused;
  return PyLong_FromUnsignedLongLong(++last);
}

static PyMethodDef methods[] = {{"next_id", next_id, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_baseline",
                                    .m_methods = methods};

PyMODINIT_FUNC PyInit__baseline(void) { return PyModule_Create(&module); }
