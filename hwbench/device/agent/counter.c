/* Counts the guest's executed instructions between two markers: a TCG plugin for qemu-user 7.2.
 *
 *     cc -O2 -shared -fPIC -o counter.so counter.c
 *     qemu-aarch64 -plugin counter.so,counts=FILE PROGRAM
 *
 * A marker is a system call that no kernel has, syscall(MARKER, START or STOP); the guest gets ENOSYS. Every stop that
 * follows a start appends the instructions executed between the two to FILE, as one decimal line.
 *
 * Each translation block adds its length to the count when it is entered, so a block left half-way by a fault or a signal
 * counts in full. The addition is not atomic, and all threads share the count: only single-threaded guests are exact.
 *
 * The guest's world is the same in every run, so that its counts are: getrandom(2) gives the same bytes, and
 * clock_gettime(2) one nanosecond per instruction. Without that, seeds decide how many objects a Python with numpy holds,
 * hence addresses, hence the length of hash chains, and onnxruntime keeps its books every few seconds: 0.2 % of a small
 * model. So the guest knows no secret and no time. Its clocks stay behind the real ones: a wait ends at once, none hangs.
 *
 * Debian ships no qemu-plugin.h. What is used of it is declared here, as version 1 of the interface has it; a qemu with
 * another version refuses to load the plugin and says so.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { MARKER = 26743, START = 1, STOP = 2 }; /* hwbench/engine/counter.py says the same */
enum { SECOND = 1000000000, YEAR_2001 = 1000000000 };
enum inline_operation { ADD_U64 };

struct block; /* qemu's struct qemu_plugin_tb */
struct information { /* the beginning of qemu_info_t */
    const char *target_name;
};
typedef void (*on_block)(uint64_t plugin, struct block *block);
typedef void (*on_call)(uint64_t plugin, unsigned int vcpu, int64_t number, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
                        uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8);
typedef void (*on_return)(uint64_t plugin, unsigned int vcpu, int64_t number, int64_t result);

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t plugin, on_block callback);
void qemu_plugin_register_vcpu_tb_exec_inline(struct block *block, enum inline_operation operation, void *where, uint64_t what);
void qemu_plugin_register_vcpu_syscall_cb(uint64_t plugin, on_call callback);
void qemu_plugin_register_vcpu_syscall_ret_cb(uint64_t plugin, on_return callback);
size_t qemu_plugin_tb_n_insns(const struct block *block);
extern uintptr_t guest_base; /* qemu's own: where the guest's address 0 is */

EXPORT int qemu_plugin_version = 1;

static const struct target {
    const char *name;
    int64_t getrandom, clock_gettime; /* its numbers of these system calls */
} targets[] = {{"x86_64", 318, 228}, {"aarch64", 278, 113}}, *target;

static const char *counts;
static uint64_t executed, started, random_state = 1;
static int counting;
static _Thread_local uint64_t arguments[2]; /* of this thread's last system call */

/* The file is open only while a line is written: the guest shares the process's descriptors and could close it. */
static int append(const char *text, size_t length)
{
    int file = open(counts, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    int whole = file >= 0 && write(file, text, length) == (ssize_t)length;
    if (!whole)
        fprintf(stderr, "hwbench counter: cannot write %s: %m\n", counts);
    if (file >= 0)
        close(file);
    return whole;
}

static void translated(uint64_t plugin, struct block *block)
{
    (void)plugin;
    qemu_plugin_register_vcpu_tb_exec_inline(block, ADD_U64, &executed, qemu_plugin_tb_n_insns(block));
}

static void called(uint64_t plugin, unsigned int vcpu, int64_t number, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
                   uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8)
{
    (void)plugin, (void)vcpu, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
    arguments[0] = a1, arguments[1] = a2;
    if (number == MARKER && a1 == START) {
        counting = 1;
        started = executed;
    } else if (number == MARKER && a1 == STOP && counting) {
        char line[24];
        counting = 0;
        append(line, (size_t)snprintf(line, sizeof line, "%" PRIu64 "\n", executed - started));
    }
}

/* Overwrites what qemu has just written to the guest's memory; a negative result is an error, nothing was written. */
static void returned(uint64_t plugin, unsigned int vcpu, int64_t number, int64_t result)
{
    (void)plugin, (void)vcpu;
    if (number == target->getrandom) {
        unsigned char *bytes = (unsigned char *)(guest_base + arguments[0]);
        for (int64_t i = 0; i < result; i++) {
            random_state = random_state * 6364136223846793005u + 1442695040888963407u;
            bytes[i] = (unsigned char)(random_state >> 56);
        }
    } else if (number == target->clock_gettime && result == 0) {
        uint64_t beginning = arguments[0] == CLOCK_REALTIME ? YEAR_2001 : 0;
        uint64_t time[2] = {beginning + executed / SECOND, executed % SECOND};
        memcpy((void *)(guest_base + arguments[1]), time, sizeof time);
    }
}

EXPORT int qemu_plugin_install(uint64_t plugin, const struct information *information, int argc, char **argv)
{
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (strcmp(information->target_name, targets[i].name) == 0)
            target = &targets[i];
    if (target == NULL) {
        fprintf(stderr, "hwbench counter: knows x86_64 and aarch64 guests, not %s\n", information->target_name);
        return 1;
    }
    if (argc != 1 || strncmp(argv[0], "counts=", 7) != 0) {
        fprintf(stderr, "hwbench counter: needs exactly one argument, counts=FILE\n");
        return 1;
    }
    counts = strdup(argv[0] + 7); /* the arguments are qemu's to free */
    if (counts == NULL || !append("", 0))
        return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated);
    qemu_plugin_register_vcpu_syscall_cb(plugin, called);
    qemu_plugin_register_vcpu_syscall_ret_cb(plugin, returned);
    return 0;
}
