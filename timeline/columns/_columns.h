/* Columns of numbers as compiled modules are given them: bytes, which begin where any number may. */
#include <Python.h>
#include <stdint.h>

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

/* Half-open intervals, of two columns of int64. */
typedef struct {
    const int64_t *start, *end;
    Py_ssize_t count;
} Intervals;

static inline int read_intervals(PyObject *start, PyObject *end, Intervals *made)
{
    Py_ssize_t size = PyBytes_Size(start);
    if (size < 0)
        return -1;
    made->count = size / (Py_ssize_t)sizeof *made->start;
    made->start = column_of(start, made->count, sizeof *made->start);
    if (made->start == NULL)
        return -1;
    made->end = column_of(end, made->count, sizeof *made->end);
    return made->end == NULL ? -1 : 0;
}
