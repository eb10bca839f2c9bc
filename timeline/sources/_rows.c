/* Turns rows of whole numbers into columns, without a step of the interpreter for each number. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* Put a row into place; -1 where it is not as wide, or a cell is no whole number of 64 bits. */
static int put(PyObject *row, int64_t *cells, Py_ssize_t width, Py_ssize_t most)
{
    if (PyTuple_Size(row) != width) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "rows differ in width");
        return -1;
    }
    for (Py_ssize_t column = 0; column < width; column++) {
        int overflow;
        PyObject *cell = PyTuple_GetItem(row, column);
        /* Unlike PyLong_AsLongLong it does not go byte by byte. */
        long long number = PyLong_AsLongLongAndOverflow(cell, &overflow);
        if (number == -1 && overflow)
            PyErr_SetString(PyExc_OverflowError, "a number takes more than 64 bits");
        if (number == -1 && PyErr_Occurred())
            return -1;
        cells[column * most] = number;
    }
    return 0;
}

static PyObject *columns_of(const int64_t *cells, Py_ssize_t width, Py_ssize_t most,
                            Py_ssize_t count)
{
    PyObject *columns = PyList_New(width);
    for (Py_ssize_t column = 0; columns != NULL && column < width; column++) {
        const char *first = (const char *)(cells + column * most);
        PyObject *made = PyBytes_FromStringAndSize(first, count * (Py_ssize_t)sizeof *cells);
        if (made == NULL || PyList_SetItem(columns, column, made) < 0)
            Py_CLEAR(columns);
    }
    return columns;
}

PyDoc_STRVAR(next_columns_doc, "next_columns(rows, width, most)\n--\n\n"
"The columns of the next rows of an iterator of tuples, at most so many.\n\n"
"A column is int64 as bytes. TypeError, ValueError and OverflowError: a row is not as wide, or\n"
"one of its cells is no whole number of 64 bits.");

static PyObject *next_columns(PyObject *module, PyObject *args)
{
    PyObject *rows, *row, *columns = NULL;
    Py_ssize_t width, most, count = 0;
    if (!PyArg_ParseTuple(args, "Onn", &rows, &width, &most))
        return NULL;
    if (!PyIter_Check(rows) || width < 1 || most < 1 ||
        most > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(int64_t) / width) {
        PyErr_SetString(PyExc_ValueError, "an iterator and sizes above zero are needed");
        return NULL;
    }
    int64_t *cells = PyMem_Malloc((size_t)(width * most) * sizeof *cells);
    if (cells == NULL)
        return PyErr_NoMemory();
    while (count < most && (row = PyIter_Next(rows)) != NULL) {
        int failed = put(row, cells + count, width, most);
        Py_DECREF(row);
        if (failed)
            break;
        count++;
    }
    if (!PyErr_Occurred())
        columns = columns_of(cells, width, most, count);
    PyMem_Free(cells);
    return columns;
}

static PyMethodDef methods[] = {
    {"next_columns", next_columns, METH_VARARGS, next_columns_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_rows", NULL, 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__rows(void)
{
    return PyModuleDef_Init(&definition);
}
