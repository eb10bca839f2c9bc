/* Protobuf messages from columns, one per row, as `protobuf_rows.py` makes them without it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { BYTES, VARINT, FIXED64, TEXT, MESSAGE, KINDS };
enum { MOST_VARINT_BYTES = 10, FIXED64_BYTES = 8, FEW = 32, MOST_OPENED = 4, MOST_STEPS = 3 };

/* Where the run of a row begins in the bytes of a text, and how long it is. */
typedef struct {
    int64_t start, length;
} Run;

/* What each row gets, or those rows that are present. A message holds the `inner` pieces behind it,
 * however deep; `bytes` is then its tag. A text has a run for each row, which need not be aligned. */
typedef struct {
    int kind;
    const char *present;
    const char *bytes;
    Py_ssize_t size;
    Py_ssize_t inner;
    const char *runs;
} Piece;

/* What is done for each row, one after the other. There are fewer steps than pieces: PUT puts up to
 * FEW constant bytes, which include the tag of each message and a byte for its length, and then a
 * varint where there are `numbers`. `opened` messages begin in such a step, of which the first is
 * `depth` deep and each is in the one before; their lengths are at `length_at`. A step at their end
 * closes `closed` of them, of which the first is `depth` deep, and puts their lengths. Rows that
 * are not present go on at step `behind`. */
enum Action { PUT, PUT_MANY, PUT_FIXED64, PUT_TEXT, CLOSE };
typedef struct {
    enum Action action;
    int opened;
    Py_ssize_t depth, closed, behind;
    const char *present;
    const char *bytes;
    const char *numbers;
    const char *runs;
    Py_ssize_t size;
    unsigned char length_at[MOST_OPENED];
    char few[FEW];
} Step;

/* The steps of some pieces, at most MOST_STEPS for each. Rows that lack the last message that some
 * lack go on at `target`. */
typedef struct {
    Step *steps;
    Py_ssize_t count, target;
} Plan;

static Step *add_step(Plan *plan, enum Action action, const char *present)
{
    Step *step = plan->steps + plan->count++;
    memset(step, 0, sizeof *step);
    step->action = action;
    step->present = present;
    return step;
}

/* A step with room for so many more constant bytes: the last one, where the same rows have both. */
static Step *step_with_room(Plan *plan, const char *present, Py_ssize_t size)
{
    Step *last = plan->count ? plan->steps + plan->count - 1 : NULL;
    if (last == NULL || last->action != PUT || last->numbers != NULL || last->size + size > FEW ||
        last->opened == MOST_OPENED)
        return add_step(plan, PUT, present);
    if (last->behind == plan->count) /* rows that lack it come here */
        return present == last->present ? last : add_step(plan, PUT, present);
    return present == NULL && plan->target != plan->count ? last : add_step(plan, PUT, present);
}

static void put_few(Step *step, const char *bytes, Py_ssize_t size)
{
    memcpy(step->few + step->size, bytes, (size_t)size);
    step->size += size;
}

static void add_pieces(Plan *plan, const Piece *piece, const Piece *end, Py_ssize_t depth);

static void add_message(Plan *plan, const Piece *message, Py_ssize_t depth)
{
    Step *first, *step;
    if (message->size >= FEW) {
        first = add_step(plan, PUT_MANY, message->present);
        first->bytes = message->bytes;
        first->size = message->size;
        step = step_with_room(plan, NULL, 1);
    } else {
        first = step = step_with_room(plan, message->present, message->size + 1);
        put_few(step, message->bytes, message->size);
    }
    Py_ssize_t length_at = step->size;
    put_few(step, "", 1);
    if (step->opened == 0)
        step->depth = depth;
    step->length_at[step->opened++] = (unsigned char)length_at;
    add_pieces(plan, message + 1, message + 1 + message->inner, depth + 1);

    Step *last = plan->steps + plan->count - 1;
    if (last == step && step->numbers == NULL) { /* what is in it is as long in all rows */
        step->few[length_at] = (char)(step->size - length_at - 1);
        step->opened--;
    } else if (last->action == CLOSE && plan->target != plan->count) {
        last->closed++;
    } else {
        last = add_step(plan, CLOSE, NULL);
        last->depth = depth;
        last->closed = 1;
    }
    if (message->present != NULL)
        first->behind = plan->target = plan->count;
}

static void add_pieces(Plan *plan, const Piece *piece, const Piece *end, Py_ssize_t depth)
{
    static const enum Action actions[] = {PUT_MANY, PUT, PUT_FIXED64, PUT_TEXT};
    for (; piece < end; piece += 1 + piece->inner) {
        if (piece->kind == MESSAGE) {
            add_message(plan, piece, depth);
            continue;
        }
        Step *step;
        if (piece->kind == BYTES && piece->size <= FEW) {
            step = step_with_room(plan, piece->present, piece->size);
            put_few(step, piece->bytes, piece->size);
        } else if (piece->kind == VARINT) {
            step = step_with_room(plan, piece->present, 0);
            step->numbers = piece->bytes;
        } else {
            step = add_step(plan, actions[piece->kind], piece->present);
            step->bytes = piece->bytes;
            step->runs = piece->runs;
            step->size = piece->size;
        }
        if (piece->present != NULL)
            step->behind = plan->count;
    }
}

static inline Run run_at(const char *runs, Py_ssize_t row)
{
    Run run;
    memcpy(&run, runs + row * (Py_ssize_t)sizeof run, sizeof run);
    return run;
}

static inline uint64_t number_at(const char *numbers, Py_ssize_t row)
{
    uint64_t number;
    memcpy(&number, numbers + row * (Py_ssize_t)sizeof number, sizeof number);
    return number;
}

/* Numbers of two to four bytes take no branch that depends on how long they are. */
static inline char *put_varint(char *to, uint64_t value)
{
    if (value <= 0x7F) {
        *to = (char)value;
        return to + 1;
    }
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (value < 1 << 28) {
        uint32_t few = (uint32_t)value;
        uint32_t third = few > 0x3FFF, fourth = few > 0x1FFFFF;
        few = (few & 0x7F) | (few & 0x3F80) << 1 | (few & 0x1FC000) << 2 | (few & 0xFE00000) << 3;
        few |= 0x80 | third << 15 | fourth << 23;
        memcpy(to, &few, sizeof few);
        return to + 2 + third + fourth;
    }
#endif
    while (value > 0x7F) {
        *to++ = (char)(value | 0x80);
        value >>= 7;
    }
    *to++ = (char)value;
    return to;
}

/* Put the length of a message before what is in it; where it takes more than the byte that is left
 * for it, what is behind moves on. */
static inline char *close_message(char *at, char *to)
{
    size_t length = (size_t)(to - (at + 1));
    if (length <= 0x7F) {
        *at = (char)length;
        return to;
    }
    char prefix[MOST_VARINT_BYTES];
    size_t taken = (size_t)(put_varint(prefix, length) - prefix);
    memmove(at + taken, at + 1, length);
    memcpy(at, prefix, taken);
    return at + taken + length;
}

/* Few bytes are copied as if they were the most of them, and short numbers as if they were longer,
 * which needs no loop; later bytes overwrite what is too much. open: for each depth, where the
 * length of a message is put. */
static char *put_row(char *to, const Plan *plan, Py_ssize_t row, char **open)
{
    const Step *step = plan->steps, *end = plan->steps + plan->count;
    while (step < end) {
        if (step->present != NULL && !step->present[row]) {
            step = plan->steps + step->behind;
            continue;
        }
        switch (step->action) {
        case PUT:
            memcpy(to, step->few, FEW);
            for (int at = 0; at < step->opened; at++)
                open[step->depth + at] = to + step->length_at[at];
            to += step->size;
            if (step->numbers != NULL)
                to = put_varint(to, number_at(step->numbers, row));
            break;
        case PUT_MANY:
            memcpy(to, step->bytes, (size_t)step->size);
            to += step->size;
            break;
        case PUT_FIXED64:
            memcpy(to, step->bytes + row * FIXED64_BYTES, FIXED64_BYTES);
            to += FIXED64_BYTES;
            break;
        case PUT_TEXT: {
            Run run = run_at(step->runs, row);
            memcpy(to, step->bytes + run.start, (size_t)run.length);
            to += run.length;
            break;
        }
        case CLOSE:
            for (Py_ssize_t depth = step->depth; depth > step->depth - step->closed; depth--)
                to = close_message(open[depth], to);
            break;
        }
        step++;
    }
    return to;
}

/* The most bytes that a row can take of a piece, without those inside it; texts are counted apart,
 * since a long one among many rows is no reason to have room for it in all of them. */
static Py_ssize_t width_of(const Piece *piece)
{
    switch (piece->kind) {
    case VARINT:
        return MOST_VARINT_BYTES;
    case FIXED64:
        return FIXED64_BYTES;
    case TEXT:
        return 0;
    case MESSAGE:
        return piece->size + MOST_VARINT_BYTES;
    default:
        return piece->size;
    }
}

/* Whether there are as many runs as rows, all of which lie inside the bytes. */
static int are_inside(const Piece *piece, Py_ssize_t size, Py_ssize_t count)
{
    if (size / (Py_ssize_t)sizeof(Run) != count || size % (Py_ssize_t)sizeof(Run) != 0)
        return 0;
    for (Py_ssize_t row = 0; row < count; row++) {
        Run run = run_at(piece->runs, row);
        if (run.start < 0 || run.start > piece->size || run.length < 0 ||
            run.length > piece->size - run.start)
            return 0;
    }
    return 1;
}

/* The bytes of all texts of the rows; -1 where no memory has as many. */
static Py_ssize_t texts_size(const Piece *piece, Py_ssize_t count)
{
    Py_ssize_t size = 0;
    for (Py_ssize_t row = 0; row < count; row++) {
        if (piece->present != NULL && !piece->present[row])
            continue;
        int64_t length = run_at(piece->runs, row).length;
        if (length > PY_SSIZE_T_MAX - size)
            return -1;
        size += (Py_ssize_t)length;
    }
    return size;
}

/* -1 where a piece is not as long as the rows, or holds more pieces than there are behind it. What
 * its pointers point to belongs to the objects in `from`: arrays of NumPy need not be told when it
 * is no longer used, and a Py_buffer is not in the stable ABI of Python 3.10. */
static int read_piece(PyObject *from, Piece *piece, Py_ssize_t behind, Py_ssize_t count)
{
    Py_ssize_t presents = count, runs = 0;
    if (!PyArg_ParseTuple(from, "iz#y#nz#", &piece->kind, &piece->present, &presents,
                          &piece->bytes, &piece->size, &piece->inner, &piece->runs, &runs))
        return -1;
    int is_column = piece->kind == VARINT || piece->kind == FIXED64;
    if (piece->kind < 0 || piece->kind >= KINDS || (piece->present != NULL && presents != count) ||
        (is_column && (piece->size / 8 != count || piece->size % 8)) || piece->inner < 0 ||
        piece->inner > (piece->kind == MESSAGE ? behind : 0) ||
        (piece->kind == TEXT && !are_inside(piece, runs, count))) {
        PyErr_SetString(PyExc_ValueError, "a piece is of no kind, or not of this many rows");
        return -1;
    }
    return 0;
}

/* Whether the pieces of each message end where those of the message around it do, or before. */
static int are_nested(const Piece *pieces, Py_ssize_t number)
{
    for (Py_ssize_t at = 0; at < number; at++) {
        Py_ssize_t end = at + 1 + pieces[at].inner;
        for (Py_ssize_t inner = at + 1; inner < end; inner++)
            if (inner + 1 + pieces[inner].inner > end)
                return 0;
    }
    return 1;
}

static PyObject *encoded(const Piece *pieces, Py_ssize_t number, Py_ssize_t count)
{
    Py_ssize_t width = 0, texts = FEW;
    for (Py_ssize_t at = 0; at < number; at++) {
        Py_ssize_t its = pieces[at].kind == TEXT ? texts_size(pieces + at, count) : 0;
        if (its < 0 || its > PY_SSIZE_T_MAX - texts ||
            width_of(pieces + at) > PY_SSIZE_T_MAX - width)
            return PyErr_NoMemory();
        texts += its;
        width += width_of(pieces + at);
    }
    if (width && count > (PY_SSIZE_T_MAX - texts) / width)
        return PyErr_NoMemory();
    Plan plan = {PyMem_Calloc(MOST_STEPS * (size_t)number + 1, sizeof(Step)), 0, 0};
    char **open = PyMem_Calloc((size_t)number + 1, sizeof *open);
    char *made = PyMem_Malloc((size_t)(width * count + texts));
    PyObject *bytes = NULL;
    if (plan.steps != NULL && open != NULL && made != NULL) {
        char *to = made;
        add_pieces(&plan, pieces, pieces + number, 0);
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t row = 0; row < count; row++)
            to = put_row(to, &plan, row, open);
        Py_END_ALLOW_THREADS
        bytes = PyBytes_FromStringAndSize(made, to - made);
    } else {
        PyErr_NoMemory();
    }
    PyMem_Free(made);
    PyMem_Free(open);
    PyMem_Free(plan.steps);
    return bytes;
}

PyDoc_STRVAR(encode_doc, "encode(pieces, count)\n--\n\n"
"Rows one after the other, each of all pieces, given as a tuple of tuples.\n\n"
"One is (kind, present, bytes, inner, runs): constant bytes; count numbers of eight bytes that\n"
"become varints, or stay as they are; bytes of which each row has a run, which are the start\n"
"and the length of each as numbers of eight bytes; or the tag of a message, which holds the\n"
"`inner` pieces behind it. present is a byte for each row, or None for all rows; runs is None for\n"
"others than texts. Each but the first may be an array instead of bytes, which is not copied.\n"
"ValueError and TypeError: the pieces are not of this many rows.");

static PyObject *encode(PyObject *module, PyObject *args)
{
    PyObject *tuple, *made = NULL;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "O!n", &PyTuple_Type, &tuple, &count))
        return NULL;
    if (count < 0) {
        PyErr_SetString(PyExc_ValueError, "rows are not less than none");
        return NULL;
    }
    Py_ssize_t number = PyTuple_Size(tuple);
    Piece *pieces = PyMem_Calloc((size_t)number + 1, sizeof *pieces);
    if (pieces == NULL)
        return PyErr_NoMemory();
    Py_ssize_t read = 0;
    while (read < number &&
           read_piece(PyTuple_GetItem(tuple, read), pieces + read, number - read - 1, count) == 0)
        read++;
    if (read == number) {
        if (are_nested(pieces, number))
            made = encoded(pieces, number, count);
        else
            PyErr_SetString(PyExc_ValueError, "a message ends inside another");
    }
    PyMem_Free(pieces);
    return made;
}

static PyMethodDef methods[] = {
    {"encode", encode, METH_VARARGS, encode_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_wire", NULL, 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__wire(void)
{
    return PyModuleDef_Init(&definition);
}
