/* Columns of numbers as compiled modules are given them: bytes, which begin where any number may. */
#include <Python.h>

/* The items of a column; NULL and an error where there are not `count` of them. */
static inline const void *column_of(PyObject *bytes, Py_ssize_t count, Py_ssize_t item)
{
    char *data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(bytes, &data, &size) < 0)
        return NULL;
    if (size / item != count || size % item) {
        PyErr_SetString(PyExc_ValueError, "columns are of different lengths");
        return NULL;
    }
    return data;
}
