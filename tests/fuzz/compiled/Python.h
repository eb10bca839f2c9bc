/* What the compiled modules name of Python, for harnesses that call their inner functions: memory
 * is that of the system, errors are forgotten, and nothing else may be reached. */
#ifndef HARNESS_PYTHON_H
#define HARNESS_PYTHON_H
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

typedef ssize_t Py_ssize_t;
#define PY_SSIZE_T_MAX ((Py_ssize_t)(SIZE_MAX >> 1))
typedef struct PyTypeObject PyTypeObject;
typedef struct {
    Py_ssize_t references;
    PyTypeObject *type;
} PyObject;
#define PyObject_HEAD PyObject base;
typedef struct PyMethodDef {
    const char *name;
    PyObject *(*call)(PyObject *, PyObject *);
    int flags;
    const char *doc;
} PyMethodDef;
typedef struct {
    int slot;
    void *value;
} PyType_Slot, PyModuleDef_Slot;
typedef struct {
    const char *name;
    size_t basic, item;
    unsigned flags;
    PyType_Slot *slots;
} PyType_Spec;
struct PyModuleDef {
    int head;
    const char *name, *doc;
    Py_ssize_t size;
    PyMethodDef *methods;
    PyModuleDef_Slot *slots;
    void *traverse, *clear, *release;
};
typedef PyObject *(*allocfunc)(PyTypeObject *, Py_ssize_t);
typedef void (*freefunc)(void *);
enum { METH_VARARGS = 1, METH_NOARGS = 4, METH_O = 8, Py_TPFLAGS_DEFAULT = 0 };
enum { Py_mod_exec = 1, Py_tp_alloc, Py_tp_dealloc, Py_tp_doc, Py_tp_free, Py_tp_methods, Py_tp_new };
#define PyModuleDef_HEAD_INIT 0
#define PyMODINIT_FUNC PyObject *
#define PyDoc_STRVAR(name, text) static const char name[] = text
#define Py_BEGIN_ALLOW_THREADS {
#define Py_END_ALLOW_THREADS }
#define Py_RETURN_NONE return NULL
#define Py_None ((PyObject *)NULL)
#define Py_TYPE(object) ((object)->type)
#define Py_INCREF(object) ((void)(object))
#define Py_DECREF(object) ((void)(object))
#define Py_XDECREF(object) ((void)(object))
#define Py_CLEAR(object) ((object) = NULL)
static PyTypeObject *const PyTuple_Type_of = NULL;
#define PyTuple_Type (*PyTuple_Type_of)
static PyObject *const PyExc_ValueError = NULL, *const PyExc_OverflowError = NULL,
                *const PyExc_TypeError = NULL, *const PyExc_RuntimeError = NULL,
                *const PyExc_UnicodeDecodeError = NULL;

#define PyMem_Malloc malloc
#define PyMem_Calloc calloc
#define PyMem_Realloc realloc
#define PyMem_Free free
static inline PyObject *PyErr_NoMemory(void) { return NULL; }
static inline void PyErr_SetString(PyObject *kind, const char *text) { (void)kind, (void)text; }
static inline void PyErr_Clear(void) {}
static int harness_error;
static inline PyObject *PyErr_Occurred(void) { return (PyObject *)(uintptr_t)harness_error; }

/* As Python's: the whole text is a number, or it is an error. */
static inline double PyOS_string_to_double(const char *text, char **end, PyObject *overflow)
{
    char *behind;
    (void)overflow;
    double number = strtod(text, &behind);
    harness_error = end == NULL && *behind != '\0';
    if (end != NULL)
        *end = behind;
    return harness_error ? -1.0 : number;
}

static inline int PyErr_ExceptionMatches(PyObject *kind) { return kind == NULL; }

/* Reads all of it, as Python's does, and takes what has no byte that UTF-8 never has. */
static inline PyObject *PyUnicode_DecodeUTF8(const char *text, Py_ssize_t size, const char *how)
{
    static PyObject decoded;
    (void)how;
    return memchr(text, 0xFF, (size_t)size) == NULL ? &decoded : NULL;
}

/* Only functions that harnesses do not call reach these. */
#define UNREACHED(type, name) static inline type name() { abort(); }
#pragma clang diagnostic ignored "-Wdeprecated-non-prototype"
#pragma clang diagnostic ignored "-Wstrict-prototypes"
#pragma clang diagnostic ignored "-Wunused-function"
#pragma clang diagnostic ignored "-Wunused-variable"
UNREACHED(int, PyArg_ParseTuple)
UNREACHED(int, PyArg_ParseTupleAndKeywords)
UNREACHED(PyObject *, Py_BuildValue)
UNREACHED(PyObject *, PyBytes_FromStringAndSize)
UNREACHED(char *, PyBytes_AsString)
UNREACHED(int, PyBytes_AsStringAndSize)
UNREACHED(Py_ssize_t, PyBytes_Size)
UNREACHED(PyObject *, PyCapsule_New)
UNREACHED(PyObject *, PyObject_CallFunction)
UNREACHED(void *, PyCapsule_GetPointer)
UNREACHED(PyObject *, PyErr_NewException)
UNREACHED(void, PyErr_SetObject)
UNREACHED(PyObject *, PyList_New)
UNREACHED(int, PyList_SetItem)
UNREACHED(void *, PyLong_AsVoidPtr)
UNREACHED(int, PyModule_AddIntConstant)
UNREACHED(int, PyModule_AddObject)
UNREACHED(int, PyModule_AddObjectRef)
UNREACHED(PyObject *, PyModuleDef_Init)
UNREACHED(PyObject *, PySequence_GetItem)
UNREACHED(Py_ssize_t, PySequence_Size)
UNREACHED(PyObject *, PyTuple_GetItem)
UNREACHED(Py_ssize_t, PyTuple_Size)
UNREACHED(PyObject *, PyType_FromSpec)
UNREACHED(void *, PyType_GetSlot)
#endif
