/* Reads columns of numbers from the pages of a table of SQLite, whose format is told at
 * https://www.sqlite.org/fileformat2.html.
 *
 * SQLite hands over a value at a time, for 30 to 50 ns each; here it is a few. Tables are read that
 * are laid out as profilers write them, and nothing is repaired or guessed: at whatever is unusual
 * or damaged this stops, and SQLite reads the whole table instead.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "_digits.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TABLE "timeline.sources.decoders._pages.table"

/* What reading came to: as many rows as were asked for, the last of them, a page that is not at
 * hand, something that only SQLite can read, or an error of Python. */
enum { FULL, DONE, AWAY, ODD, FAILED };

enum { INTERIOR = 5, LEAF = 13, DEEPEST = 20, MOST_WINDOW_BYTES = 64 << 10 };
enum { PAGE_HEADER = 8, LAST_CHILD = 8, INTERIOR_CELLS = 12, LEAST_CELL_BYTES = 6 };
/* Types of values. Others up to 6 are whole numbers of big-endian bytes. */
enum { ABSENT = 0, REAL = 7, ZERO = 8, FIRST_TEXT = 13 };
enum { MOST_COLUMNS = 64, MOST_TEXT_DIGITS = 19, UNWANTED = -1 };
enum { MOST_HEAD_BYTES = 16, LAYOUT_BITS = 5 };

/* How a column that is wanted is stored: its values, its values or digits, or the number of its
 * row, which is spelled as absent. */
enum { AS_NUMBER, AS_TEXT_TOO, AS_ROW };

typedef struct {
    int place; /* among the columns that are wanted */
    int how;
    int64_t absent; /* the value of cells without one, as it is filed */
} Column;

/* A page above the leaves, and which of its children comes next. */
typedef struct {
    uint8_t *page;
    int cells, next;
} Branch;

/* Where a value lies that is wanted: it ends so many bytes behind the beginning of the row. It is a
 * number without so many bits, or a text of so many bytes; a constant where no bits of it count. */
typedef struct {
    int end, unused_bits, text_bytes;
    int64_t mask, constant;
} Spot;

/* How rows lie that begin with the same bytes, which tell the types of all values: `spot` by the
 * places of columns that are wanted. Tables have few such layouts. */
typedef struct {
    uint64_t head[2], content_bytes;
    int texts, text_place[MOST_COLUMNS];
    Spot spot[MOST_COLUMNS];
} Layout;

typedef struct {
    PyObject *read, *window;
    const uint8_t *bytes; /* of the window */
    int64_t page_bytes, usable_bytes, pages, first_byte, window_bytes, ahead_bytes;
    /* The page that was asked for and is not at hand, 0 if none; how many were visited. */
    int64_t sought, visited;
    Branch branch[DEEPEST];
    int depth;
    /* The leaf at hand, its rows, and which comes next. */
    const uint8_t *leaf;
    int rows, row;
    int64_t last_row;
    int has_row, reals, width, wanted;
    int row_place; /* of the column that is the number of the row, or UNWANTED */
    Column column[MOST_COLUMNS];
    Layout layout[1 << LAYOUT_BITS];
} Table;

static inline int two_at(const uint8_t *at)
{
    return at[0] << 8 | at[1];
}

static inline int64_t four_at(const uint8_t *at)
{
    return (int64_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
}

/* The eight bytes before a place as a big-endian number. */
static inline uint64_t eight_before(const uint8_t *end)
{
    uint64_t word;
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(&word, end - 8, sizeof word);
    return __builtin_bswap64(word);
#else
    word = 0;
    for (const uint8_t *at = end - 8; at < end; at++)
        word = word << 8 | *at;
    return word;
#endif
}

/* A whole number of so many big-endian bytes, which end at a place behind at least eight. */
static inline int64_t whole_before(const uint8_t *end, int size)
{
    int unused = 64 - 8 * size;
    return (int64_t)(eight_before(end) << unused) >> unused;
}

/* A number of one to nine bytes; where it ends, NULL where that is behind `end`. */
static inline const uint8_t *read_varint(const uint8_t *at, const uint8_t *end, uint64_t *value)
{
    uint64_t found = 0;
    for (int count = 0; count < 8; count++) {
        if (at >= end)
            return NULL;
        found = found << 7 | (*at & 0x7F);
        if (*at++ < 0x80) {
            *value = found;
            return at;
        }
    }
    if (at >= end)
        return NULL;
    *value = found << 8 | *at;
    return at + 1;
}

/* -- pages -------------------------------------------------------------------------------- */

/* A page by its number, NULL where it is not in the window. */
static const uint8_t *page_at(Table *table, int64_t number)
{
    int64_t first = (number - 1) * table->page_bytes - table->first_byte;
    if (table->bytes == NULL || first < 0 || first + table->page_bytes > table->window_bytes) {
        table->sought = number;
        return NULL;
    }
    return table->bytes + first;
}

/* Read what holds the page that is sought; more at once where pages lie behind each other. */
static int read_window(Table *table)
{
    int64_t first = (table->sought - 1) * table->page_bytes;
    int64_t behind = first - table->first_byte - table->window_bytes;
    if (table->bytes != NULL && behind >= 0 && behind <= table->ahead_bytes) {
        if (2 * table->ahead_bytes <= MOST_WINDOW_BYTES)
            table->ahead_bytes *= 2;
    } else {
        table->ahead_bytes = table->page_bytes;
    }
    Py_XDECREF(table->window);
    table->bytes = NULL;
    table->window = PyObject_CallFunction(table->read, "LL", (long long)first,
                                          (long long)table->ahead_bytes);
    if (table->window == NULL)
        return FAILED;
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(table->window, &bytes, &size) < 0)
        return FAILED;
    if (size < table->page_bytes)
        return ODD; /* the file ends before */
    table->bytes = (const uint8_t *)bytes;
    table->first_byte = first;
    table->window_bytes = size;
    return FULL;
}

/* Step into a page above the leaves. */
static int enter_branch(Table *table, const uint8_t *page)
{
    int cells = two_at(page + 3);
    if (table->depth == DEEPEST || INTERIOR_CELLS + LEAST_CELL_BYTES * cells > table->usable_bytes)
        return ODD;
    Branch *branch = &table->branch[table->depth];
    /* Python's own memory may not be asked for while other threads run. */
    if (branch->page == NULL && (branch->page = malloc((size_t)table->page_bytes)) == NULL)
        return FAILED;
    memcpy(branch->page, page, (size_t)table->page_bytes);
    branch->cells = cells;
    branch->next = 0;
    table->depth++;
    return FULL;
}

/* The number of the next page of the table in order of rows: 0 behind the last, -1 where it is no
 * page of the file. */
static int64_t next_page(Table *table)
{
    while (table->depth > 0) {
        Branch *branch = &table->branch[table->depth - 1];
        int64_t number;
        if (branch->next > branch->cells) {
            table->depth--;
            continue;
        }
        if (branch->next == branch->cells) {
            number = four_at(branch->page + LAST_CHILD);
        } else {
            int cell = two_at(branch->page + INTERIOR_CELLS + 2 * branch->next);
            if (cell < INTERIOR_CELLS + 2 * branch->cells || cell + 4 > table->usable_bytes)
                return -1;
            number = four_at(branch->page + cell);
        }
        branch->next++;
        /* A page that is met twice would be read without end. */
        if (number < 2 || number > table->pages || ++table->visited > table->pages)
            return -1;
        return number;
    }
    return 0;
}

/* Go on to the next leaf. */
static int enter_leaf(Table *table)
{
    while (table->leaf == NULL) {
        int64_t number = table->sought ? table->sought : next_page(table);
        if (number <= 0)
            return number == 0 ? DONE : ODD;
        const uint8_t *page = page_at(table, number);
        if (page == NULL)
            return AWAY;
        table->sought = 0;
        if (*page == LEAF) {
            table->rows = two_at(page + 3);
            table->row = 0;
            if (PAGE_HEADER + LEAST_CELL_BYTES * table->rows > table->usable_bytes)
                return ODD;
            table->leaf = page;
        } else if (*page == INTERIOR) {
            int ended = enter_branch(table, page);
            if (ended != FULL)
                return ended;
        } else {
            return ODD;
        }
    }
    return FULL;
}

/* -- rows --------------------------------------------------------------------------------- */

/* The number that a text spells in digits alone. */
static int read_digits(const char *at, const char *end, int64_t *value)
{
    uint64_t number = 0;
    int negative = at < end && *at == '-';
    at += negative;
    if (at == end || end - at > MOST_TEXT_DIGITS)
        return ODD;
    for (; end - at >= 8; at += 8) {
        if (!are_digits(at))
            return ODD;
        number = 100000000 * number + (uint64_t)eight_digits(at);
    }
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return ODD;
        number = 10 * number + (uint64_t)(*at - '0');
    }
    if (number > (uint64_t)INT64_MAX + (uint64_t)negative)
        return ODD;
    *value = (int64_t)(negative ? 0 - number : number);
    return FULL;
}

static inline int64_t filed(double number)
{
    int64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

/* A whole number as a cell of the column. */
static inline int64_t cell_of(const Table *table, int64_t whole)
{
    return table->reals ? filed((double)whole) : whole;
}

/* A value of a row, which is of a type and of so many bytes that end at a place. */
static inline int read_value(const Table *table, const Column *column, uint64_t type,
                             const uint8_t *end, int64_t size, int64_t row, int64_t *cell)
{
    int64_t whole;
    if (column->how == AS_ROW) {
        *cell = cell_of(table, row);
        return type == ABSENT ? FULL : ODD;
    }
    if (type == ABSENT) {
        *cell = column->absent;
        return FULL;
    }
    if (type == REAL) {
        int64_t bits = (int64_t)eight_before(end);
        double number;
        memcpy(&number, &bits, sizeof number);
        *cell = number == number ? bits : column->absent; /* as SQLite takes what is no number */
        return table->reals ? FULL : ODD;
    }
    if (type >= FIRST_TEXT) {
        int is_wanted = column->how == AS_TEXT_TOO && type % 2 && !table->reals;
        const char *behind = (const char *)end;
        return is_wanted ? read_digits(behind - size, behind, cell) : ODD;
    }
    if (type == FIRST_TEXT - 1)
        return ODD; /* no bytes, and no text */
    whole = type >= ZERO ? (int64_t)(type - ZERO) : whole_before(end, (int)size);
    *cell = cell_of(table, whole);
    return FULL;
}

/* The layout of rows that begin as a row does, or another one that gives way to it; NULL for reals,
 * rows with many columns, and the last one of a page. */
static inline Layout *layout_of(Table *table, const uint8_t *content, const uint8_t *end,
                                uint64_t head[2])
{
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    int size = *content;
    if (table->reals || size < 2 || size > MOST_HEAD_BYTES || end - content < MOST_HEAD_BYTES)
        return NULL;
    memcpy(head, content, MOST_HEAD_BYTES);
    if (size <= 8)
        head[1] = 0;
    head[size > 8] &= UINT64_MAX >> 8 * (size > 8 ? 16 - size : 8 - size);
    uint64_t mixed = (head[0] ^ (head[1] * 0x9E3779B97F4A7C15)) * 0xD6E8FEB86659FD93;
    return &table->layout[mixed >> (64 - LAYOUT_BITS)];
#else
    return NULL;
#endif
}

/* Note where a value lies, which is no real. */
static inline void note_spot(Layout *layout, const Column *column, uint64_t type, uint64_t end,
                             uint64_t size)
{
    Spot *spot = &layout->spot[column->place];
    *spot = (Spot){(int)end, 0, 0, 0, 0};
    if (type >= FIRST_TEXT) {
        spot->text_bytes = (int)size;
        layout->text_place[layout->texts++] = column->place;
    } else if (type == ABSENT) {
        spot->constant = column->absent;
    } else if (type >= ZERO) {
        spot->constant = (int64_t)(type - ZERO);
    } else {
        spot->mask = -1;
        spot->unused_bits = 64 - 8 * (int)size;
    }
}

/* The wanted values of a row that lies as others did. */
static inline int read_alike(const Table *table, const Layout *layout, const uint8_t *content,
                             int64_t row, int64_t *cells, Py_ssize_t most)
{
    for (int place = 0; place < table->wanted; place++) {
        const Spot *spot = &layout->spot[place];
        int64_t whole = (int64_t)(eight_before(content + spot->end) << spot->unused_bits);
        cells[place * most] = ((whole >> spot->unused_bits) & spot->mask) | spot->constant;
    }
    for (int text = 0; text < layout->texts; text++) {
        int place = layout->text_place[text];
        const char *end = (const char *)content + layout->spot[place].end;
        if (read_digits(end - layout->spot[place].text_bytes, end, cells + place * most) != FULL)
            return ODD;
    }
    if (table->row_place != UNWANTED)
        cells[table->row_place * most] = row;
    return FULL;
}

/* The wanted values of a row, value by value; where they lie is noted unless layout is NULL. */
static int read_values(const Table *table, Layout *layout, const uint8_t *content,
                       uint64_t content_bytes, int64_t row, int64_t *cells, Py_ssize_t most)
{
    static const uint8_t sizes[] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0};
    uint64_t head_bytes;
    const uint8_t *at = read_varint(content, content + content_bytes, &head_bytes);
    if (at == NULL || head_bytes > content_bytes)
        return ODD;
    const uint8_t *head_end = content + head_bytes;
    const Column *column = table->column, *last = column + table->width;
    uint64_t value_end = head_bytes;
    int found = 0;
    for (; at < head_end && column < last; column++) {
        uint64_t type = *at, size;
        if (type < 0x80)
            at++;
        else if ((at = read_varint(at, head_end, &type)) == NULL)
            return ODD;
        if (type < sizeof sizes)
            size = sizes[type];
        else if (type < FIRST_TEXT - 1)
            return ODD;
        else
            size = (type - (FIRST_TEXT - 1)) / 2;
        value_end += size;
        if (value_end > content_bytes)
            return ODD;
        if (column->place == UNWANTED)
            continue;
        if (read_value(table, column, type, content + value_end, (int64_t)size, row,
                       cells + column->place * most) != FULL)
            return ODD;
        if (layout != NULL)
            note_spot(layout, column, type, value_end, size);
        found++;
    }
    /* Rows may be shorter than the table, to which columns were added. */
    if (at != head_end || value_end != content_bytes || found != table->wanted)
        return ODD;
    return FULL;
}

/* The wanted values of the next row of the leaf, `most` apart. */
static inline int read_row(Table *table, int64_t *cells, Py_ssize_t most)
{
    const uint8_t *page = table->leaf, *end = page + table->usable_bytes;
    int place = two_at(page + PAGE_HEADER + 2 * table->row);
    uint64_t content_bytes, row, head[2];
    if (place < PAGE_HEADER + 2 * table->rows || place >= table->usable_bytes)
        return ODD;
    const uint8_t *at = read_varint(page + place, end, &content_bytes);
    if (at == NULL || (at = read_varint(at, end, &row)) == NULL)
        return ODD;
    if (content_bytes > (uint64_t)(end - at) || content_bytes == 0)
        return ODD; /* it may go on in other pages, or is empty */
    if (table->has_row && (int64_t)row <= table->last_row)
        return ODD;
    Layout *layout = layout_of(table, at, end, head);
    int ended;
    if (layout != NULL && layout->content_bytes == content_bytes &&
        layout->head[0] == head[0] && layout->head[1] == head[1]) {
        ended = read_alike(table, layout, at, (int64_t)row, cells, most);
    } else {
        if (layout != NULL) {
            layout->head[0] = head[0];
            layout->head[1] = head[1];
            layout->content_bytes = content_bytes;
            layout->texts = 0;
        }
        ended = read_values(table, layout, at, content_bytes, (int64_t)row, cells, most);
    }
    table->has_row = 1;
    table->last_row = (int64_t)row;
    table->row++;
    return ended;
}

/* The values of the next rows, a column after the other. */
static int fill(Table *table, Py_ssize_t most, int64_t *cells, Py_ssize_t *rows)
{
    while (*rows < most) {
        int ended = enter_leaf(table);
        if (ended != FULL)
            return ended;
        for (; table->row < table->rows && *rows < most; ++*rows)
            if (read_row(table, cells + *rows, most) != FULL)
                return ODD;
        if (table->row == table->rows)
            table->leaf = NULL;
    }
    return FULL;
}

/* -- Python ------------------------------------------------------------------------------- */

static void release(PyObject *capsule)
{
    Table *table = PyCapsule_GetPointer(capsule, TABLE);
    for (int depth = 0; depth < DEEPEST; depth++)
        free(table->branch[depth].page);
    Py_XDECREF(table->read);
    Py_XDECREF(table->window);
    PyMem_Free(table);
}

/* Whether pages are of a size that SQLite writes: a power of two, of which most can be used. */
static int are_pages(int64_t page_bytes, int64_t usable_bytes)
{
    return page_bytes >= 512 && page_bytes <= 65536 && !(page_bytes & (page_bytes - 1)) &&
           usable_bytes >= 480 && usable_bytes <= page_bytes;
}

/* Take the columns that are wanted: each its number in the table, how it is stored, and the value
 * of absent ones. */
static int take_columns(Table *table, PyObject *columns)
{
    Py_ssize_t count = PySequence_Size(columns);
    if (count < 0)
        return FAILED;
    for (int number = 0; number < table->width; number++)
        table->column[number].place = UNWANTED;
    table->row_place = UNWANTED;
    for (Py_ssize_t place = 0; place < count; place++) {
        PyObject *told = PySequence_GetItem(columns, place);
        int number, how;
        long long absent;
        int is_taken = told != NULL && PyArg_ParseTuple(told, "iiL", &number, &how, &absent);
        Py_XDECREF(told);
        if (!is_taken)
            return FAILED;
        if (number < 0 || number >= table->width || how < AS_NUMBER || how > AS_ROW ||
            (how == AS_ROW && table->row_place != UNWANTED) ||
            table->column[number].place != UNWANTED) {
            PyErr_SetString(PyExc_ValueError, "a column is in the table, and is read once");
            return FAILED;
        }
        table->column[number] = (Column){(int)place, how, absent};
        if (how == AS_ROW)
            table->row_place = (int)place;
    }
    table->wanted = (int)count;
    return FULL;
}

PyDoc_STRVAR(table_doc, "table(read, root, pages, page_bytes, usable_bytes, width, reals, columns)\n"
"--\n\n"
"Rows of a table in its order of row numbers.\n\n"
"read(first, size) gives bytes of the file. root is the first page, width the number of columns of\n"
"the table, at most MOST_COLUMNS. reals: whether columns are float64, and not int64. columns:\n"
"(number, how, absent) for each that is wanted, absent as int64 that has the same bytes.");

static PyObject *table_of(PyObject *module, PyObject *args)
{
    PyObject *read, *columns;
    long long root, pages, page_bytes, usable_bytes;
    int width, reals;
    if (!PyArg_ParseTuple(args, "OLLLLipO", &read, &root, &pages, &page_bytes, &usable_bytes,
                          &width, &reals, &columns))
        return NULL;
    if (!are_pages(page_bytes, usable_bytes) || root < 2 || root > pages || width < 1 ||
        width > MOST_COLUMNS) {
        PyErr_SetString(PyExc_ValueError, "that is no table of such a file");
        return NULL;
    }
    Table *table = PyMem_Calloc(1, sizeof *table);
    if (table == NULL)
        return PyErr_NoMemory();
    table->pages = pages;
    table->page_bytes = table->ahead_bytes = page_bytes;
    table->usable_bytes = usable_bytes;
    table->sought = root;
    table->width = width;
    table->reals = reals;
    PyObject *capsule = NULL;
    if (take_columns(table, columns) == FULL)
        capsule = PyCapsule_New(table, TABLE, release);
    if (capsule == NULL) {
        PyMem_Free(table);
        return NULL;
    }
    Py_INCREF(read);
    table->read = read;
    return capsule;
}

PyDoc_STRVAR(next_rows_doc, "next_rows(table, most)\n--\n\n"
"The values of the next rows of a table, at most so many, and how many; fewer are the last ones.\n\n"
"Values are bytes of a column after the other, each as long as `most` rows.\n"
"None: only SQLite can read this table. What `read` raises is passed on.");

static PyObject *next_rows(PyObject *module, PyObject *args)
{
    PyObject *capsule;
    Py_ssize_t most, rows = 0;
    if (!PyArg_ParseTuple(args, "On", &capsule, &most))
        return NULL;
    Table *table = PyCapsule_GetPointer(capsule, TABLE);
    if (table == NULL)
        return NULL;
    if (most < 1 || most > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(int64_t) / MOST_COLUMNS) {
        PyErr_SetString(PyExc_ValueError, "a block has rows");
        return NULL;
    }
    Py_ssize_t size = table->wanted * most * (Py_ssize_t)sizeof(int64_t);
    PyObject *values = PyBytes_FromStringAndSize(NULL, size);
    if (values == NULL)
        return NULL;
    int64_t *cells = (int64_t *)PyBytes_AsString(values);
    int ended = AWAY;
    while (ended == AWAY) {
        Py_BEGIN_ALLOW_THREADS
        ended = fill(table, most, cells, &rows);
        Py_END_ALLOW_THREADS
        if (ended == FAILED)
            PyErr_NoMemory();
        if (ended == AWAY && (ended = read_window(table)) == FULL)
            ended = AWAY;
    }
    PyObject *found = NULL;
    if (ended == FULL || ended == DONE)
        found = Py_BuildValue("(On)", values, rows);
    Py_DECREF(values);
    if (ended == ODD)
        Py_RETURN_NONE;
    return found;
}

static PyMethodDef methods[] = {
    {"table", table_of, METH_VARARGS, table_doc},
    {"next_rows", next_rows, METH_VARARGS, next_rows_doc},
    {NULL, NULL, 0, NULL},
};

static int prepare(PyObject *module)
{
    if (PyModule_AddIntConstant(module, "AS_NUMBER", AS_NUMBER) < 0 ||
        PyModule_AddIntConstant(module, "AS_TEXT_TOO", AS_TEXT_TOO) < 0 ||
        PyModule_AddIntConstant(module, "AS_ROW", AS_ROW) < 0)
        return -1;
    return PyModule_AddIntConstant(module, "MOST_COLUMNS", MOST_COLUMNS);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, prepare},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_pages", NULL, 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__pages(void)
{
    return PyModuleDef_Init(&definition);
}
