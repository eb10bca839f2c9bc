/* Protobuf messages from columns, one per row, as `protobuf_rows.py` makes them without it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { BYTES, VARINT, FIXED64, TEXT, MESSAGE, KINDS };
enum { MOST_VARINT_BYTES = 10, FIXED64_BYTES = 8, FEW = 16 };

/* Where the run of a row begins in the bytes of a text, and how long it is. */
typedef struct {
    int64_t start, length;
} Run;

/* What each row gets, or those rows that are present. A message holds the `inner` pieces behind it,
 * however deep; `bytes` is then its tag. `few` are constant bytes again, where they are that few.
 * A text has a run for each row, which need not be aligned. */
typedef struct {
    int kind;
    const char *present;
    const char *bytes;
    Py_ssize_t size;
    Py_ssize_t inner;
    const char *runs;
    char few[FEW];
} Piece;

/* Few bytes are copied as if they were the most of them, which needs no loop; later ones overwrite
 * what is too much. */
static inline char *put_constant(char *to, const Piece *piece)
{
    if (piece->size <= FEW)
        memcpy(to, piece->few, FEW);
    else
        memcpy(to, piece->bytes, (size_t)piece->size);
    return to + piece->size;
}

static inline Run run_at(const Piece *piece, Py_ssize_t row)
{
    Run run;
    memcpy(&run, piece->runs + row * (Py_ssize_t)sizeof run, sizeof run);
    return run;
}

static inline char *put_varint(char *to, uint64_t value)
{
    while (value > 0x7F) {
        *to++ = (char)(value | 0x80);
        value >>= 7;
    }
    *to++ = (char)value;
    return to;
}

static char *put_pieces(char *to, const Piece *piece, const Piece *end, Py_ssize_t row);

/* One byte is left for the length; where it takes more, what follows moves on. */
static char *put_message(char *to, const Piece *message, Py_ssize_t row)
{
    to = put_constant(to, message);
    char *end = put_pieces(to + 1, message + 1, message + 1 + message->inner, row);
    size_t length = (size_t)(end - (to + 1));
    if (length <= 0x7F) {
        *to = (char)length;
        return end;
    }
    char prefix[MOST_VARINT_BYTES];
    size_t taken = (size_t)(put_varint(prefix, length) - prefix);
    memmove(to + taken, to + 1, length);
    memcpy(to, prefix, taken);
    return to + taken + length;
}

static char *put_pieces(char *to, const Piece *piece, const Piece *end, Py_ssize_t row)
{
    for (; piece < end; piece += 1 + piece->inner) {
        if (piece->present != NULL && !piece->present[row])
            continue;
        if (piece->kind == MESSAGE) {
            to = put_message(to, piece, row);
        } else if (piece->kind == VARINT) {
            uint64_t value;
            memcpy(&value, piece->bytes + row * (Py_ssize_t)sizeof value, sizeof value);
            to = put_varint(to, value);
        } else if (piece->kind == FIXED64) {
            memcpy(to, piece->bytes + row * FIXED64_BYTES, FIXED64_BYTES);
            to += FIXED64_BYTES;
        } else if (piece->kind == TEXT) {
            Run run = run_at(piece, row);
            memcpy(to, piece->bytes + run.start, (size_t)run.length);
            to += run.length;
        } else {
            to = put_constant(to, piece);
        }
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

/* -1 where a run lies outside the bytes, or there are not as many as rows. */
static int read_runs(PyObject *from, Piece *piece, Py_ssize_t count)
{
    char *runs;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(from, &runs, &size) < 0)
        return -1;
    piece->runs = runs;
    int are_inside = size / (Py_ssize_t)sizeof(Run) == count && size % (Py_ssize_t)sizeof(Run) == 0;
    for (Py_ssize_t row = 0; are_inside && row < count; row++) {
        Run run = run_at(piece, row);
        are_inside = run.start >= 0 && run.start <= piece->size && run.length >= 0 &&
                     run.length <= piece->size - run.start;
    }
    if (!are_inside)
        PyErr_SetString(PyExc_ValueError, "a text is not within its bytes, or not of this many rows");
    return are_inside ? 0 : -1;
}

/* The bytes of all texts of the rows; -1 where no memory has as many. */
static Py_ssize_t texts_size(const Piece *piece, Py_ssize_t count)
{
    Py_ssize_t size = 0;
    for (Py_ssize_t row = 0; row < count; row++) {
        if (piece->present != NULL && !piece->present[row])
            continue;
        int64_t length = run_at(piece, row).length;
        if (length > PY_SSIZE_T_MAX - size)
            return -1;
        size += (Py_ssize_t)length;
    }
    return size;
}

/* -1 where a piece is not as long as the rows, or holds more pieces than there are behind it. */
static int read_piece(PyObject *from, Piece *piece, Py_ssize_t behind, Py_ssize_t count)
{
    PyObject *present, *bytes, *runs;
    char *text;
    Py_ssize_t presents = count;
    if (!PyArg_ParseTuple(from, "iOSnO", &piece->kind, &present, &bytes, &piece->inner, &runs) ||
        PyBytes_AsStringAndSize(bytes, &text, &piece->size) < 0)
        return -1;
    piece->bytes = text;
    piece->present = NULL;
    if (present != Py_None) {
        if (PyBytes_AsStringAndSize(present, &text, &presents) < 0)
            return -1;
        piece->present = text;
    }
    int is_column = piece->kind == VARINT || piece->kind == FIXED64;
    if (piece->kind < 0 || piece->kind >= KINDS || presents != count ||
        (is_column && (piece->size / 8 != count || piece->size % 8)) || piece->inner < 0 ||
        piece->inner > (piece->kind == MESSAGE ? behind : 0)) {
        PyErr_SetString(PyExc_ValueError, "a piece is of no kind, or not of this many rows");
        return -1;
    }
    if (piece->kind == TEXT)
        return read_runs(runs, piece, count);
    if (!is_column && piece->size <= FEW)
        memcpy(piece->few, piece->bytes, (size_t)piece->size);
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
    char *made = PyMem_Malloc((size_t)(width * count + texts));
    if (made == NULL)
        return PyErr_NoMemory();
    char *to = made;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t row = 0; row < count; row++)
        to = put_pieces(to, pieces, pieces + number, row);
    Py_END_ALLOW_THREADS
    PyObject *bytes = PyBytes_FromStringAndSize(made, to - made);
    PyMem_Free(made);
    return bytes;
}

PyDoc_STRVAR(encode_doc, "encode(pieces, count)\n--\n\n"
"Rows one after the other, each of all pieces, given as a tuple of tuples.\n\n"
"One is (kind, present, bytes, inner, runs): constant bytes; count numbers of eight bytes that\n"
"become varints, or stay as they are; bytes of which each row has a run, which are the start\n"
"and the length of each as numbers of eight bytes; or the tag of a message, which holds the\n"
"`inner` pieces behind it. present is a byte for each row, or None for all rows; runs is None for\n"
"others than texts. ValueError and TypeError: the pieces are not of this many rows.");

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
