/* Turns the rows that a query finds in a database of SQLite into columns of numbers.

   This is a module of Python and an extension of SQLite, which is how it comes by the functions
   of the SQLite that is in use. Rows never are objects, and other threads run meanwhile. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <sqlite3ext.h>
#include <stdint.h>
#include <string.h>

SQLITE_EXTENSION_INIT1

#define STATEMENT "timeline.sources.decoders._rows.statement"

static PyObject *query_error;

#ifdef _WIN32
__declspec(dllexport)
#endif
int sqlite3_rows_init(sqlite3 *database, char **message, const sqlite3_api_routines *routines)
{
    SQLITE_EXTENSION_INIT2(routines);
    return SQLITE_OK_LOAD_PERMANENTLY;
}

/* Raise what SQLite says about the last call. */
static PyObject *failed(sqlite3 *database)
{
    PyObject *told = Py_BuildValue("(is)", sqlite3_extended_errcode(database),
                                   sqlite3_errmsg(database));
    if (told != NULL)
        PyErr_SetObject(query_error, told);
    Py_XDECREF(told);
    return NULL;
}

static void finalize(PyObject *capsule)
{
    sqlite3_finalize(PyCapsule_GetPointer(capsule, STATEMENT));
}

PyDoc_STRVAR(query_doc, "query(database, text)\n--\n\n"
"A query of a database, which the address of its connection tells.\n\n"
"QueryError(code, message): SQLite refuses it. RuntimeError: this is no extension of SQLite yet.");

static PyObject *query(PyObject *module, PyObject *args)
{
    PyObject *address;
    const char *text;
    sqlite3_stmt *statement;
    if (!PyArg_ParseTuple(args, "Os", &address, &text))
        return NULL;
    sqlite3 *database = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred())
        return NULL;
    if (sqlite3_api == NULL || database == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "SQLite has not loaded this as an extension");
        return NULL;
    }
    if (sqlite3_prepare_v2(database, text, -1, &statement, NULL) != SQLITE_OK)
        return failed(database);
    PyObject *capsule = PyCapsule_New(statement, STATEMENT, finalize);
    if (capsule == NULL)
        sqlite3_finalize(statement);
    return capsule;
}

/* The numbers of the next rows, a column after the other; the last code of SQLite. */
static int fill(sqlite3_stmt *statement, int kind, Py_ssize_t most, int64_t *cells,
                Py_ssize_t *rows)
{
    int code = SQLITE_ROW, width = sqlite3_column_count(statement);
    for (*rows = 0; *rows < most && (code = sqlite3_step(statement)) == SQLITE_ROW; ++*rows) {
        int64_t *cell = cells + *rows;
        for (int column = 0; column < width; column++, cell += most) {
            /* Asked for once, and for its kind and number then: connections stay in a thread. */
            sqlite3_value *value = sqlite3_column_value(statement, column);
            int found = sqlite3_value_type(value);
            if (kind == SQLITE_INTEGER && found == SQLITE_INTEGER) {
                *cell = sqlite3_value_int64(value);
            } else if (kind == SQLITE_FLOAT &&
                       (found == SQLITE_FLOAT || found == SQLITE_INTEGER)) {
                double number = sqlite3_value_double(value);
                memcpy(cell, &number, sizeof number);
            } else {
                return SQLITE_MISMATCH;
            }
        }
    }
    return code;
}

static PyObject *columns_of(const int64_t *cells, int width, Py_ssize_t most, Py_ssize_t rows)
{
    PyObject *columns = PyList_New(width);
    for (int column = 0; columns != NULL && column < width; column++) {
        const char *first = (const char *)(cells + column * most);
        PyObject *made = PyBytes_FromStringAndSize(first, rows * (Py_ssize_t)sizeof *cells);
        if (made == NULL || PyList_SetItem(columns, column, made) < 0)
            Py_CLEAR(columns);
    }
    return columns;
}

PyDoc_STRVAR(next_columns_doc, "next_columns(query, kind, most)\n--\n\n"
"The columns of the next rows of a query, at most so many; fewer rows are the last ones.\n\n"
"kind: INTEGER or FLOAT. A column is int64 or float64 as bytes. TypeError: a cell is of another\n"
"kind. QueryError(code, message): SQLite cannot go on.");

static PyObject *next_columns(PyObject *module, PyObject *args)
{
    PyObject *capsule;
    int kind, code;
    Py_ssize_t most, rows;
    if (!PyArg_ParseTuple(args, "Oin", &capsule, &kind, &most))
        return NULL;
    sqlite3_stmt *statement = PyCapsule_GetPointer(capsule, STATEMENT);
    if (statement == NULL)
        return NULL;
    int width = sqlite3_column_count(statement);
    if (most < 1 || width < 1 ||
        most > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(int64_t) / width) {
        PyErr_SetString(PyExc_ValueError, "a block has rows and columns");
        return NULL;
    }
    int64_t *cells = PyMem_Malloc((size_t)(width * most) * sizeof *cells);
    if (cells == NULL)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    code = fill(statement, kind, most, cells, &rows);
    Py_END_ALLOW_THREADS
    PyObject *columns = NULL;
    if (code == SQLITE_ROW || code == SQLITE_DONE)
        columns = columns_of(cells, width, most, rows);
    else if (code == SQLITE_MISMATCH)
        PyErr_SetString(PyExc_TypeError, "a value is not of the kind of its column");
    else
        failed(sqlite3_db_handle(statement));
    PyMem_Free(cells);
    return columns;
}

static PyMethodDef methods[] = {
    {"query", query, METH_VARARGS, query_doc},
    {"next_columns", next_columns, METH_VARARGS, next_columns_doc},
    {NULL, NULL, 0, NULL},
};

static int prepare(PyObject *module)
{
    if (query_error == NULL)
        query_error = PyErr_NewException("timeline.sources.decoders._rows.QueryError", NULL, NULL);
    if (query_error == NULL || PyModule_AddIntConstant(module, "INTEGER", SQLITE_INTEGER) < 0 ||
        PyModule_AddIntConstant(module, "FLOAT", SQLITE_FLOAT) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "QueryError", query_error);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, prepare},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_rows", NULL, 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__rows(void)
{
    return PyModuleDef_Init(&definition);
}
