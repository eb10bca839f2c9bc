/* Names of merged slices, in one pass, as `coarsen.py` and `merged_slices.py` work without it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "../columns/_columns.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FEW = 24, FIRST_ROOM = 256 };

static PyObject *new_column(Py_ssize_t count, Py_ssize_t item)
{
    return PyBytes_FromStringAndSize(NULL, count * item);
}

/* How many rows follow the first one with the same owner, that one included; -1: a lesser owner
 * comes behind them. */
static inline Py_ssize_t run_length(const int64_t *owner, Py_ssize_t first, Py_ssize_t count)
{
    Py_ssize_t stop = first + 1;
    while (stop < count && owner[stop] == owner[first])
        stop++;
    return stop < count && owner[stop] < owner[first] ? -1 : stop - first;
}

enum { DONE, NO_MEMORY, NOT_ASCENDING, NO_NAMES };

static PyObject *failed(int found)
{
    if (found == NO_MEMORY)
        return PyErr_NoMemory();
    PyErr_SetString(PyExc_ValueError, found == NO_NAMES ? "names are not numbered from 0 on"
                                                        : "owners are not in ascending order");
    return NULL;
}

typedef struct {
    int32_t name;
    int64_t count, busy;
} Entry;

static int by_name(const void *one, const void *other)
{
    int32_t first = ((const Entry *)one)->name, second = ((const Entry *)other)->name;
    return (first > second) - (first < second);
}

static void sort_entries(Entry *entries, Py_ssize_t count)
{
    if (count > FEW) {
        qsort(entries, (size_t)count, sizeof *entries, by_name);
        return;
    }
    for (Py_ssize_t at = 1; at < count; at++) {
        Entry moved = entries[at];
        Py_ssize_t to = at;
        for (; to > 0 && entries[to - 1].name > moved.name; to--)
            entries[to] = entries[to - 1];
        entries[to] = moved;
    }
}

static inline void add(Entry *to, const Entry *from)
{
    to->count = (int64_t)((uint64_t)to->count + (uint64_t)from->count);
    to->busy = (int64_t)((uint64_t)to->busy + (uint64_t)from->busy);
}

/* Sum up entries of one name, of which many have few; `place` has room for each name, and is -1
 * everywhere before and after. */
static Py_ssize_t combine(Entry *entries, Py_ssize_t count, Py_ssize_t *place)
{
    Py_ssize_t made = 0;
    for (Py_ssize_t at = 0; at < count; at++) {
        Py_ssize_t *found = place + entries[at].name;
        if (*found < 0) {
            *found = made;
            entries[made++] = entries[at];
        } else {
            add(entries + *found, entries + at);
        }
    }
    for (Py_ssize_t at = 0; at < made; at++)
        place[entries[at].name] = -1;
    return made;
}

typedef struct {
    int64_t *owner, *count, *busy;
    int32_t *name;
    Py_ssize_t size;
} Names;

static void add_names(Names *names, int64_t owner, const Entry *entries, Py_ssize_t count)
{
    for (Py_ssize_t at = 0; at < count; at++) {
        Entry sum = entries[at];
        while (at + 1 < count && entries[at + 1].name == sum.name)
            add(&sum, entries + ++at);
        names->owner[names->size] = owner;
        names->name[names->size] = sum.name;
        names->count[names->size] = sum.count;
        names->busy[names->size++] = sum.busy;
    }
}

/* A place for each name, none of which is taken. */
static Py_ssize_t *make_places(const Names *all)
{
    int32_t most = 0;
    for (Py_ssize_t row = 0; row < all->size; row++)
        most = all->name[row] > most ? all->name[row] : most;
    size_t bytes = ((size_t)most + 1) * sizeof(Py_ssize_t);
    Py_ssize_t *place = malloc(bytes);
    if (place != NULL)
        memset(place, 0xff, bytes);
    return place;
}

static int sum_all(const Names *all, Names *made)
{
    Entry *entries = NULL;
    Py_ssize_t room = 0, length, *place = NULL;
    int found = DONE;
    for (Py_ssize_t first = 0; first < all->size && found == DONE; first += length) {
        length = run_length(all->owner, first, all->size);
        if (length < 0) {
            found = NOT_ASCENDING;
            break;
        }
        if (length > room) {
            room = length > FIRST_ROOM ? 2 * length : FIRST_ROOM;
            free(entries);
            entries = malloc((size_t)room * sizeof *entries);
        }
        if (length > FEW && place == NULL)
            place = make_places(all);
        if (entries == NULL || (length > FEW && place == NULL)) {
            found = NO_MEMORY;
            break;
        }
        for (Py_ssize_t at = 0; at < length; at++) {
            Py_ssize_t row = first + at;
            if (all->name[row] < 0)
                found = NO_NAMES;
            entries[at] = (Entry){all->name[row], all->count[row], all->busy[row]};
        }
        if (found == DONE) {
            Py_ssize_t left = length > FEW ? combine(entries, length, place) : length;
            sort_entries(entries, left);
            add_names(made, all->owner[first], entries, left);
        }
    }
    free(entries);
    free(place);
    return found;
}

PyDoc_STRVAR(sum_names_doc, "sum_names(owner, name, count, busy_ns)\n--\n\n"
"The sums of names that an owner has several times: how many names, and the same columns of them,\n"
"by owner and then by name; what is behind so many means nothing.\n\n"
"All are bytes of int64, names of int32. ValueError: owners do not ascend, names are below 0, or\n"
"columns differ in length.");

static PyObject *sum_names(PyObject *module, PyObject *args)
{
    PyObject *given[4], *made[4];
    if (!PyArg_ParseTuple(args, "SSSS", &given[0], &given[1], &given[2], &given[3]))
        return NULL;
    Py_ssize_t size = PyBytes_Size(given[0]) / 8;
    const void *columns[4];
    for (int number = 0; number < 4; number++) {
        columns[number] = column_of(given[number], size, number == 1 ? 4 : 8);
        if (columns[number] == NULL)
            return NULL;
    }
    for (int number = 0; number < 4; number++) {
        made[number] = new_column(size, number == 1 ? 4 : 8);
        if (made[number] == NULL) {
            while (number--)
                Py_DECREF(made[number]);
            return NULL;
        }
    }
    /* What is given is only read. */
    Names all = {(int64_t *)columns[0], (int64_t *)columns[2], (int64_t *)columns[3],
                 (int32_t *)columns[1], size};
    Names sums = {(int64_t *)PyBytes_AsString(made[0]), (int64_t *)PyBytes_AsString(made[2]),
                  (int64_t *)PyBytes_AsString(made[3]), (int32_t *)PyBytes_AsString(made[1]), 0};
    int found;
    Py_BEGIN_ALLOW_THREADS
    found = sum_all(&all, &sums);
    Py_END_ALLOW_THREADS
    if (found == DONE)
        return Py_BuildValue("(nNNNN)", sums.size, made[0], made[1], made[2], made[3]);
    for (int number = 0; number < 4; number++)
        Py_DECREF(made[number]);
    return failed(found);
}

/* The leading rows of a run by time, or of those as long by count, or of those the first. */
static Py_ssize_t lead(const int64_t *count, const int64_t *busy, Py_ssize_t first,
                       Py_ssize_t length, Py_ssize_t most, int64_t *rows)
{
    Py_ssize_t held = 0;
    for (Py_ssize_t row = first; row < first + length; row++) {
        Py_ssize_t at = held;
        while (at > 0 && (busy[row] > busy[rows[at - 1]] ||
                          (busy[row] == busy[rows[at - 1]] && count[row] > count[rows[at - 1]])))
            at--;
        if (at == most)
            continue;
        if (held < most)
            held++;
        memmove(rows + at + 1, rows + at, (size_t)(held - at - 1) * sizeof *rows);
        rows[at] = row;
    }
    return held;
}

PyDoc_STRVAR(leading_doc, "leading(owner, count, busy_ns, most)\n--\n\n"
"The leading rows of each owner: how many, which, and the place of each among those of its owner,\n"
"as bytes of int64; what is behind so many means nothing.\n\n"
"Of an owner those lead that took most time, or of those that took as much occur most often, or of\n"
"those come first. ValueError: owners do not ascend, or columns differ in length.");

static PyObject *leading(PyObject *module, PyObject *args)
{
    PyObject *owners, *counts, *times;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(args, "SSSn", &owners, &counts, &times, &most))
        return NULL;
    Py_ssize_t size = PyBytes_Size(owners) / 8;
    const int64_t *owner = column_of(owners, size, 8);
    const int64_t *count = owner == NULL ? NULL : column_of(counts, size, 8);
    const int64_t *busy = count == NULL ? NULL : column_of(times, size, 8);
    if (busy == NULL)
        return NULL;
    if (most < 1) {
        PyErr_SetString(PyExc_ValueError, "at least one leads");
        return NULL;
    }
    PyObject *rows = new_column(size, 8), *places = new_column(size, 8);
    if (rows == NULL || places == NULL) {
        Py_XDECREF(rows);
        Py_XDECREF(places);
        return NULL;
    }
    int64_t *row = (int64_t *)PyBytes_AsString(rows);
    int64_t *place = (int64_t *)PyBytes_AsString(places);
    Py_ssize_t made = 0, length = 0;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t first = 0; first < size; first += length) {
        length = run_length(owner, first, size);
        if (length < 0)
            break;
        Py_ssize_t held = lead(count, busy, first, length, most, row + made);
        for (Py_ssize_t at = 0; at < held; at++)
            place[made++] = at;
    }
    Py_END_ALLOW_THREADS
    if (length >= 0)
        return Py_BuildValue("(nNN)", made, rows, places);
    Py_DECREF(rows);
    Py_DECREF(places);
    return failed(NOT_ASCENDING);
}

static PyMethodDef methods[] = {
    {"leading", leading, METH_VARARGS, leading_doc},
    {"sum_names", sum_names, METH_VARARGS, sum_names_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_merging", NULL, 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__merging(void)
{
    return PyModuleDef_Init(&definition);
}
