/* Runs a harness on random inputs and on changed ones of a directory, where libFuzzer is not there:
 * without a look at what they reach, as fast. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SEEDS = 4096, MOST_BYTES = 4096, RANDOM_BYTES = 256 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
    uint8_t *bytes;
    size_t size;
} seeds[MOST_SEEDS];
static uint64_t state = 88172645463325252ULL;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static size_t read_seeds(const char *directory)
{
    size_t count = 0;
    DIR *opened = opendir(directory);
    for (struct dirent *entry; opened && count < MOST_SEEDS && (entry = readdir(opened));) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "rb");
        if (file == NULL)
            continue;
        seeds[count].bytes = malloc(MOST_BYTES);
        seeds[count].size = fread(seeds[count].bytes, 1, MOST_BYTES, file);
        fclose(file);
        count++;
    }
    if (opened)
        closedir(opened);
    return count;
}

int main(int arguments, char **argument)
{
    long runs = arguments > 2 ? atol(argument[1]) : 0;
    size_t count = arguments > 2 ? read_seeds(argument[2]) : 0;
    static uint8_t data[MOST_BYTES];
    for (long run = 0; run < runs; run++) {
        size_t size = next() % RANDOM_BYTES;
        if (count && next() % 4) {
            size_t seed = next() % count;
            size = seeds[seed].size;
            memcpy(data, seeds[seed].bytes, size);
            for (uint64_t changes = next() % 6; size && changes; changes--) {
                size_t at = next() % size, from = next() % size;
                size_t most = size - (at > from ? at : from), length = 1 + next() % most;
                switch (next() % 4) {
                case 0:
                    data[at] = (uint8_t)next();
                    break;
                case 1:
                    data[at] = "0-9.e{}[]\",:\\n"[next() % 14];
                    break;
                case 2:
                    memmove(data + at, data + from, length < 40 ? length : 40);
                    break;
                default:
                    size = at + 1;
                }
            }
        } else {
            for (size_t at = 0; at < size; at++)
                data[at] = (uint8_t)next();
        }
        LLVMFuzzerTestOneInput(data, size);
    }
    fprintf(stderr, "Done %ld runs\n", runs);
    return 0;
}
