/* Times of nodes that wait for earlier ones, in one pass, as `replay.py` plays them without it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "../../columns/_columns.h"
#include <stdint.h>
#include <stdlib.h>

#define NEVER (-((int64_t)1 << 62))

/* Nodes in order, and the needs of each one; `replay.py` says what the columns are. */
typedef struct {
    const int64_t *first, *first_ns, *second, *second_ns, *group;
    Py_ssize_t count, groups;
} Net;

static inline int64_t after(int64_t time, int64_t delay)
{
    return (int64_t)((uint64_t)time + (uint64_t)delay);
}

/* Set the time of each node; returns the first one that does not follow its needs, or -1. */
static Py_ssize_t play_all(const Net *net, int64_t *time, int64_t *came)
{
    for (Py_ssize_t group = 0; group < net->groups; group++)
        came[group] = NEVER;
    for (Py_ssize_t at = 0; at < net->count; at++) {
        int64_t first = net->first[at], second = net->second[at], group = net->group[at];
        if (at == 0) { /* the origin */
            time[at] = 0;
            continue;
        }
        if (first >= at || first < -net->groups || second >= at || group >= net->groups)
            return at;
        int64_t when = after(first >= 0 ? time[first] : came[-1 - first], net->first_ns[at]);
        if (second >= 0 && after(time[second], net->second_ns[at]) > when)
            when = after(time[second], net->second_ns[at]);
        time[at] = when;
        if (group >= 0 && when > came[group])
            came[group] = when;
    }
    return -1;
}

PyDoc_STRVAR(play_doc, "play(groups, first, first_ns, second, second_ns, group)\n--\n\n"
"Return the time of each node, as bytes of int64.\n\n"
"Columns are bytes of int64. ValueError: they differ in length, or a node precedes a need.");

static PyObject *play(PyObject *module, PyObject *args)
{
    PyObject *given[5];
    const int64_t *columns[5];
    Net net;
    if (!PyArg_ParseTuple(args, "nSSSSS", &net.groups, &given[0], &given[1], &given[2],
                          &given[3], &given[4]))
        return NULL;
    net.count = PyBytes_Size(given[0]) / (Py_ssize_t)sizeof(int64_t);
    for (int number = 0; number < 5; number++) {
        columns[number] = column_of(given[number], net.count, sizeof(int64_t));
        if (columns[number] == NULL)
            return NULL;
    }
    net.first = columns[0], net.first_ns = columns[1], net.second = columns[2];
    net.second_ns = columns[3], net.group = columns[4];
    PyObject *made = PyBytes_FromStringAndSize(NULL, net.count * (Py_ssize_t)sizeof(int64_t));
    int64_t *came = calloc((size_t)(net.groups > 0 ? net.groups : 1), sizeof *came);
    if (made == NULL || came == NULL) {
        Py_XDECREF(made);
        free(came);
        return PyErr_NoMemory();
    }
    int64_t *time = (int64_t *)PyBytes_AsString(made);
    Py_ssize_t wrong;
    Py_BEGIN_ALLOW_THREADS
    wrong = play_all(&net, time, came);
    Py_END_ALLOW_THREADS
    free(came);
    if (wrong >= 0) {
        Py_DECREF(made);
        return PyErr_Format(PyExc_ValueError, "node %zd precedes what it waits for", wrong);
    }
    return made;
}

static PyMethodDef methods[] = {
    {"play", play, METH_VARARGS, play_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_replay", NULL, 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__replay(void)
{
    return PyModuleDef_Init(&definition);
}
