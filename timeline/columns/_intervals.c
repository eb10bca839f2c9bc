/* Arithmetic of half-open intervals in one pass, as `intervals.py` works without it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "_columns.h"
#include <stdint.h>

/* Intervals that are made, or only counted where `start` is NULL. */
typedef struct {
    int64_t *start, *end;
    Py_ssize_t count;
} Made;

static inline void add(Made *made, int64_t start, int64_t end)
{
    if (made->start != NULL) {
        made->start[made->count] = start;
        made->end[made->count] = end;
    }
    made->count++;
}

/* Merge intervals of two sides that overlap or touch; whether each side is in order of start. */
static int merge(const Intervals *left, const Intervals *right, Made *made)
{
    int64_t start = 0, end = 0; /* of the one that others may still be merged with */
    for (Py_ssize_t lefts = 0, rights = 0; lefts < left->count || rights < right->count;) {
        int is_left = rights == right->count ||
                      (lefts < left->count && left->start[lefts] <= right->start[rights]);
        const Intervals *side = is_left ? left : right;
        Py_ssize_t at = is_left ? lefts++ : rights++;
        int64_t its_start = side->start[at], its_end = side->end[at];
        if (at && its_start < side->start[at - 1])
            return 0;
        if (its_end <= its_start)
            continue;
        if (end <= start || its_start > end) {
            if (end > start)
                add(made, start, end);
            start = its_start;
            end = its_end;
        } else if (its_end > end) {
            end = its_end;
        }
    }
    if (end > start)
        add(made, start, end);
    return 1;
}

/* What the right ones do not cover of the left ones; both are disjoint and ascend. */
static int take_away(const Intervals *left, const Intervals *right, Made *made)
{
    Py_ssize_t first = 0;
    for (Py_ssize_t at = 0; at < left->count; at++) {
        int64_t start = left->start[at], end = left->end[at];
        while (first < right->count && right->end[first] <= start)
            first++;
        for (Py_ssize_t next = first; next < right->count && right->start[next] < end; next++) {
            if (right->start[next] > start)
                add(made, start, right->start[next]);
            start = right->end[next];
            first = next; /* it may go on over the next left one */
        }
        if (start < end)
            add(made, start, end);
    }
    return 1;
}

/* -- Python ------------------------------------------------------------------------------- */

typedef int Make(const Intervals *left, const Intervals *right, Made *made);

/* The columns that are made, for which they are counted first; None where that cannot be. */
static PyObject *columns_of(Make *make, const Intervals *left, const Intervals *right)
{
    Made made = {NULL, NULL, 0};
    int is_made;
    Py_BEGIN_ALLOW_THREADS
    is_made = make(left, right, &made);
    Py_END_ALLOW_THREADS
    if (!is_made)
        Py_RETURN_NONE;
    Py_ssize_t size = made.count * (Py_ssize_t)sizeof *made.start;
    PyObject *start = PyBytes_FromStringAndSize(NULL, size);
    PyObject *end = start == NULL ? NULL : PyBytes_FromStringAndSize(NULL, size);
    if (end == NULL) {
        Py_XDECREF(start);
        return NULL;
    }
    made = (Made){(int64_t *)PyBytes_AsString(start), (int64_t *)PyBytes_AsString(end), 0};
    Py_BEGIN_ALLOW_THREADS
    make(left, right, &made);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("(NN)", start, end);
}

/* What is made of the columns of two sides. */
static PyObject *made_of(Make *make, PyObject *args)
{
    PyObject *left_start, *left_end, *right_start, *right_end;
    Intervals left, right;
    if (!PyArg_ParseTuple(args, "SSSS", &left_start, &left_end, &right_start, &right_end) ||
        read_intervals(left_start, left_end, &left) < 0 ||
        read_intervals(right_start, right_end, &right) < 0)
        return NULL;
    return columns_of(make, &left, &right);
}

PyDoc_STRVAR(union_doc, "union(left_start_ns, left_end_ns, right_start_ns, right_end_ns)\n--\n\n"
"Intervals of both sides that overlap or touch as one, starts and ends; None: those of a side are\n"
"not in order of start.\n\n"
"All are bytes of int64; empty intervals disappear. ValueError: columns of a side differ in length.");

static PyObject *union_of(PyObject *module, PyObject *args)
{
    return made_of(merge, args);
}

PyDoc_STRVAR(subtract_doc,
"subtract(left_start_ns, left_end_ns, right_start_ns, right_end_ns)\n--\n\n"
"What the right intervals do not cover of the left ones, starts and ends.\n\n"
"All are bytes of int64; those of a side are disjoint and ascend. ValueError: columns of a side\n"
"differ in length.");

static PyObject *subtract(PyObject *module, PyObject *args)
{
    return made_of(take_away, args);
}

static PyMethodDef methods[] = {
    {"subtract", subtract, METH_VARARGS, subtract_doc},
    {"union", union_of, METH_VARARGS, union_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_intervals", NULL, 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__intervals(void)
{
    return PyModuleDef_Init(&definition);
}
