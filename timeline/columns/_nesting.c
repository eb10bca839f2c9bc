/* Nested intervals in one pass over a stack, as `nesting.py` and `coarsen.py` work without it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "_columns.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_DEPTH = 64 };

/* Whether an interval follows the one before in order of start, the outer one first. */
static inline int follows(const Intervals *all, Py_ssize_t at)
{
    return all->start[at] > all->start[at - 1] ||
           (all->start[at] == all->start[at - 1] && all->end[at] <= all->end[at - 1]);
}

typedef struct {
    char *items;
    Py_ssize_t size, room, item;
} Stack;

/* Where to put one more; NULL where memory is short. */
static inline void *pushed(Stack *stack)
{
    if (stack->size == stack->room) {
        Py_ssize_t room = stack->room ? 2 * stack->room : FIRST_DEPTH;
        char *items = realloc(stack->items, (size_t)(room * stack->item));
        if (items == NULL)
            return NULL;
        stack->items = items;
        stack->room = room;
    }
    return stack->items + stack->item * stack->size++;
}

static inline void *top_of(const Stack *stack)
{
    return stack->items + stack->item * (stack->size - 1);
}

enum { DONE, NO_MEMORY, NOT_IN_ORDER, CROSSES };

static PyObject *failed(int found)
{
    if (found == NO_MEMORY)
        return PyErr_NoMemory();
    PyErr_SetString(PyExc_ValueError,
                    "intervals are not in order of start, the outer one first, or moments not "
                    "in theirs");
    return NULL;
}

/* An open interval. group: that of what lies inside it, -1 where each has its own. last_group and
 * last_place: those of the short one that is the last inside it, -1 where that is a long one. */
typedef struct {
    int64_t end, group, last_group, last_place;
} Around;

static int group_all(const Intervals *all, const char *is_short, const int64_t *place,
                     int64_t *group, Py_ssize_t *last)
{
    Stack stack = {NULL, 0, 0, sizeof(Around)};
    Around *around = pushed(&stack);
    if (around == NULL)
        return NO_MEMORY;
    *around = (Around){INT64_MAX, -1, -1, 0};
    int64_t groups = 0;
    int found = DONE;
    for (Py_ssize_t at = 0; at < all->count; at++) {
        if (at && !follows(all, at)) {
            found = NOT_IN_ORDER;
            break;
        }
        while (stack.size > 1 && ((Around *)top_of(&stack))->end <= all->start[at])
            stack.size--;
        if (stack.size == 1)
            *last = at;
        around = top_of(&stack);
        int64_t its = around->group, inside = its;
        if (its < 0 && is_short[at] && around->last_group >= 0 && around->last_place == place[at])
            its = around->last_group;
        else if (its < 0)
            its = groups++;
        if (inside < 0) {
            around->last_group = is_short[at] ? its : -1;
            around->last_place = place[at];
            inside = is_short[at] ? its : -1;
        }
        group[at] = its;
        around = pushed(&stack);
        if (around == NULL) {
            found = NO_MEMORY;
            break;
        }
        *around = (Around){all->end[at], inside, -1, 0};
    }
    free(stack.items);
    return found;
}

PyDoc_STRVAR(groups_doc, "groups(start_ns, end_ns, short, place)\n--\n\n"
"The groups of nested intervals, as bytes of int64, and the last one with nothing around it.\n\n"
"Intervals are bytes of int64, in order of start, the outer one first. Short ones that follow each\n"
"other inside the same one and have the same place are one group, and what lies inside them.\n\n"
"ValueError: they are in another order, or columns differ in length.");

static PyObject *groups(PyObject *module, PyObject *args)
{
    PyObject *start, *end, *shorts, *places;
    Intervals all;
    if (!PyArg_ParseTuple(args, "SSSS", &start, &end, &shorts, &places) ||
        read_intervals(start, end, &all) < 0)
        return NULL;
    const char *is_short = column_of(shorts, all.count, 1);
    if (is_short == NULL)
        return NULL;
    const int64_t *place = column_of(places, all.count, sizeof *place);
    if (place == NULL)
        return NULL;
    PyObject *made = PyBytes_FromStringAndSize(NULL, all.count * (Py_ssize_t)sizeof(int64_t));
    if (made == NULL)
        return NULL;
    int64_t *group = (int64_t *)PyBytes_AsString(made);
    Py_ssize_t last = -1;
    int found;
    Py_BEGIN_ALLOW_THREADS
    found = group_all(&all, is_short, place, group, &last);
    Py_END_ALLOW_THREADS
    if (found != DONE) {
        Py_DECREF(made);
        return failed(found);
    }
    return Py_BuildValue("(Nn)", made, last);
}

/* What is told of each edge in drawing order. */
typedef void Add(void *to, const Intervals *all, Py_ssize_t row, int is_end);

static inline int order_all(const Intervals *all, Add *add, void *to)
{
    Stack stack = {NULL, 0, 0, sizeof(Py_ssize_t)};
    int found = DONE;
    for (Py_ssize_t at = 0; found == DONE; at++) {
        int is_past = at == all->count;
        if (at && !is_past && !follows(all, at)) {
            found = NOT_IN_ORDER;
            break;
        }
        while (stack.size) {
            Py_ssize_t open = *(Py_ssize_t *)top_of(&stack);
            if (!is_past && all->end[open] > all->start[at]) {
                if (all->end[open] < all->end[at])
                    found = CROSSES;
                break;
            }
            stack.size--;
            add(to, all, open, 1);
        }
        if (is_past || found != DONE)
            break;
        add(to, all, at, 0);
        Py_ssize_t *open = pushed(&stack);
        if (open == NULL)
            found = NO_MEMORY;
        else
            *open = at;
    }
    free(stack.items);
    return found;
}

enum { MOST_COLUMNS = 5 };

/* Bytes for two edges of each interval in each column, given the size of an item of each. */
static int make_columns(PyObject **made, const char *sizes, Py_ssize_t count)
{
    memset(made, 0, MOST_COLUMNS * sizeof *made);
    for (int number = 0; sizes[number]; number++) {
        made[number] = PyBytes_FromStringAndSize(NULL, 2 * count * sizes[number]);
        if (made[number] == NULL) {
            while (number--)
                Py_CLEAR(made[number]);
            return -1;
        }
    }
    return 0;
}

static PyObject *without(PyObject **made, int found)
{
    for (int number = 0; number < MOST_COLUMNS; number++)
        Py_CLEAR(made[number]);
    if (found == CROSSES)
        Py_RETURN_NONE;
    return failed(found);
}

/* What is drawn of intervals one after the other: one begins, ends, or both with nothing between.
 * before: when the event before was, from which on the time of each is told. */
typedef struct {
    int64_t *row, *begin, *end;
    char *begins, *ends;
    Py_ssize_t count;
    int64_t before;
} Events;

static inline void add_event(void *to, const Intervals *all, Py_ssize_t row, int is_end)
{
    Events *events = to;
    int64_t time = is_end ? all->end[row] : all->start[row];
    int64_t since = (int64_t)((uint64_t)time - (uint64_t)events->before);
    events->before = time;
    Py_ssize_t last = events->count - 1;
    if (is_end && last >= 0 && events->row[last] == row) {
        events->end[last] = since;
        events->ends[last] = 1;
        return;
    }
    Py_ssize_t at = events->count++;
    events->row[at] = row;
    events->begin[at] = is_end ? 0 : since;
    events->end[at] = is_end ? since : 0;
    events->begins[at] = (char)!is_end;
    events->ends[at] = (char)is_end;
}

PyDoc_STRVAR(events_doc, "events(start_ns, end_ns, before_ns)\n--\n\n"
"What is drawn of nested intervals: how many events, and row, begin_ns, end_ns, begins and ends of\n"
"each, of which more than those mean nothing; None: two cross.\n\n"
"An interval that ends right after it began is one event. Times are those since the event before,\n"
"of the first since before_ns. All but the last two are bytes of int64. ValueError: as of edges.");

static PyObject *events(PyObject *module, PyObject *args)
{
    PyObject *start, *end, *made[MOST_COLUMNS];
    Intervals all;
    long long before;
    if (!PyArg_ParseTuple(args, "SSL", &start, &end, &before) ||
        read_intervals(start, end, &all) < 0 || make_columns(made, "\10\10\10\1\1", all.count) < 0)
        return NULL;
    Events events = {
        (int64_t *)PyBytes_AsString(made[0]), (int64_t *)PyBytes_AsString(made[1]),
        (int64_t *)PyBytes_AsString(made[2]), PyBytes_AsString(made[3]),
        PyBytes_AsString(made[4]), 0, before,
    };
    int found;
    Py_BEGIN_ALLOW_THREADS
    found = order_all(&all, add_event, &events);
    Py_END_ALLOW_THREADS
    if (found != DONE)
        return without(made, found);
    return Py_BuildValue("(nNNNNN)", events.count, made[0], made[1], made[2], made[3], made[4]);
}

typedef struct {
    const int64_t *at;
    Py_ssize_t count;
} Moments;

/* What is found with a stack of rows in `open`, of which those that have ended are passed by for
 * good: a number for each interval, or for each moment where there are any. */
typedef int Find(const Intervals *all, const Moments *moments, void *found, Py_ssize_t *open);

/* Of the intervals before each one the last that is open when it begins, -1 for none. */
static int find_around(const Intervals *all, const Moments *moments, void *found, Py_ssize_t *open)
{
    int64_t *around = found;
    Py_ssize_t size = 0;
    for (Py_ssize_t at = 0; at < all->count; at++) {
        if (at && !follows(all, at))
            return NOT_IN_ORDER;
        while (size && all->end[open[size - 1]] <= all->start[at])
            size--;
        around[at] = size ? open[size - 1] : -1;
        open[size++] = at;
    }
    return DONE;
}

/* Whether each interval ends before one does that begins while it runs. */
static int find_exceeded(const Intervals *all, const Moments *moments, void *found,
                         Py_ssize_t *open)
{
    char *exceeded = found;
    Py_ssize_t size = 0;
    for (Py_ssize_t at = 0; at < all->count; at++) {
        if (at && !follows(all, at))
            return NOT_IN_ORDER;
        /* The first that ends later than another one is also the first to begin of those. */
        for (; size && all->end[open[size - 1]] < all->end[at]; size--)
            exceeded[open[size - 1]] = all->start[at] < all->end[open[size - 1]];
        exceeded[at] = 0;
        open[size++] = at;
    }
    for (; size; size--)
        exceeded[open[size - 1]] = 0;
    return DONE;
}

/* Of the intervals open at each moment the one that began last, -1 for none. */
static int find_latest(const Intervals *all, const Moments *moments, void *found, Py_ssize_t *open)
{
    int64_t *latest = found;
    const int64_t *moment = moments->at;
    Py_ssize_t size = 0, next = 0;
    for (Py_ssize_t at = 0; at < moments->count; at++) {
        if (at && moment[at] < moment[at - 1])
            return NOT_IN_ORDER;
        for (; next < all->count && all->start[next] <= moment[at]; next++) {
            if (next && !follows(all, next))
                return NOT_IN_ORDER;
            while (size && all->end[open[size - 1]] <= all->start[next])
                size--;
            open[size++] = next;
        }
        while (size && all->end[open[size - 1]] <= moment[at])
            size--;
        latest[at] = size ? open[size - 1] : -1;
    }
    for (; next < all->count; next++)
        if (next && !follows(all, next))
            return NOT_IN_ORDER;
    return DONE;
}

PyDoc_STRVAR(open_around_doc, "open_around(start_ns, end_ns)\n--\n\n"
"Of the intervals open when each one begins the one that began last, -1 for none.\n\n"
"All are bytes of int64. ValueError: intervals are not in order of start, the outer one first, or\n"
"columns differ in length.");

PyDoc_STRVAR(latest_open_doc, "latest_open(start_ns, end_ns, moments_ns)\n--\n\n"
"Of the intervals open at each moment the one that began last, -1 for none.\n\n"
"All are bytes of int64, and moments ascend. ValueError: as of open_around.");

PyDoc_STRVAR(are_exceeded_doc, "are_exceeded(start_ns, end_ns)\n--\n\n"
"Which intervals end before one does that begins while they run, as a byte each.\n\n"
"ValueError: as of open_around.");

/* What is found of so many items, as bytes. */
static PyObject *found_by(Find *find, const Intervals *all, const Moments *moments,
                          Py_ssize_t count, Py_ssize_t item)
{
    PyObject *made = PyBytes_FromStringAndSize(NULL, count * item);
    if (made == NULL)
        return NULL;
    Py_ssize_t *open = malloc(sizeof *open * (size_t)(all->count + 1));
    int found = NO_MEMORY;
    if (open != NULL) {
        char *items = PyBytes_AsString(made);
        Py_BEGIN_ALLOW_THREADS
        found = find(all, moments, items, open);
        Py_END_ALLOW_THREADS
        free(open);
    }
    if (found != DONE) {
        Py_DECREF(made);
        return failed(found);
    }
    return made;
}

static PyObject *found_of_each(Find *find, PyObject *args, Py_ssize_t item)
{
    PyObject *start, *end;
    Intervals all;
    if (!PyArg_ParseTuple(args, "SS", &start, &end) || read_intervals(start, end, &all) < 0)
        return NULL;
    return found_by(find, &all, NULL, all.count, item);
}

static PyObject *open_around(PyObject *module, PyObject *args)
{
    return found_of_each(find_around, args, sizeof(int64_t));
}

static PyObject *are_exceeded(PyObject *module, PyObject *args)
{
    return found_of_each(find_exceeded, args, 1);
}

static PyObject *latest_open(PyObject *module, PyObject *args)
{
    PyObject *start, *end, *given;
    Intervals all;
    if (!PyArg_ParseTuple(args, "SSS", &start, &end, &given) ||
        read_intervals(start, end, &all) < 0)
        return NULL;
    Moments moments = {NULL, PyBytes_Size(given) / (Py_ssize_t)sizeof(int64_t)};
    moments.at = column_of(given, moments.count, sizeof *moments.at);
    if (moments.at == NULL)
        return NULL;
    return found_by(find_latest, &all, &moments, moments.count, sizeof(int64_t));
}

static PyMethodDef methods[] = {
    {"are_exceeded", are_exceeded, METH_VARARGS, are_exceeded_doc},
    {"events", events, METH_VARARGS, events_doc},
    {"groups", groups, METH_VARARGS, groups_doc},
    {"latest_open", latest_open, METH_VARARGS, latest_open_doc},
    {"open_around", open_around, METH_VARARGS, open_around_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_nesting", NULL, 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__nesting(void)
{
    return PyModuleDef_Init(&definition);
}
