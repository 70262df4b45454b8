/* A runner for tests in C: checks that end a test, a limit on time, one line of counts at the end. */
#ifndef HARNESS_H
#define HARNESS_H

#include <ottla.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Seconds after which a program that still runs has hung. Valgrind makes it many times slower. */
#define HARNESS_LIMIT 600
/* Milliseconds that anything on this machine may take. */
#define SOON 100000

static int harness_failures;
static const char *harness_test;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("FAILED %s: %s:%d: %s\n", harness_test, __FILE__, __LINE__, #condition);        \
            harness_failures++;                                                                    \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* Checks that a call gave no error; ends the error it gave. */
#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        ottla_error_t *harness_error = (call);                                                     \
        if (harness_error) {                                                                       \
            printf("FAILED %s: %s:%d: %s: %s: %s\n", harness_test, __FILE__, __LINE__, #call,      \
                   ottla_error_name(harness_error), ottla_error_message(harness_error));           \
            ottla_error_free(harness_error);                                                       \
            harness_failures++;                                                                    \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* Checks that an error is of a kind and that its text says something; ends it. */
#define CHECK_ERROR(call, kind, says)                                                              \
    do {                                                                                           \
        if (!harness_is_error((call), (kind), (says), #call, __FILE__, __LINE__)) return;          \
    } while (0)

static inline int harness_is_error(ottla_error_t *error, ottla_error_code_t kind, const char *says,
                                   const char *call, const char *file, int line)
{
    int fits = error && ottla_error_code(error) == kind && strstr(ottla_error_message(error), says);
    if (!fits) {
        printf("FAILED %s: %s:%d: %s: not %d saying `%s`, but %s: %s\n", harness_test, file, line,
               call, (int)kind, says, ottla_error_name(error), ottla_error_message(error));
        harness_failures++;
    }
    ottla_error_free(error);
    return fits;
}

struct test {
    const char *name;
    void (*body)(void);
};

static inline int harness_run(const struct test *tests, size_t count)
{
    int failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t index = 0; index < count; index++) {
        harness_test = tests[index].name;
        harness_failures = 0;
        /* A hang ends the program, and so its tests. */
        alarm(HARNESS_LIMIT);
        tests[index].body();
        if (harness_failures) failed++;
    }
    alarm(0);
    printf("%d passed, %d failed\n", (int)count - failed, failed);
    return failed ? 1 : 0;
}

#define RUN(tests) harness_run((tests), sizeof(tests) / sizeof *(tests))

static inline int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Options for clients of a broker: its address, then what is added. */
static inline const char *options_of(const ottla_broker_t *broker, const char *added)
{
    static char text[512];
    snprintf(text, sizeof text, "bootstrap.servers=%s;%s", ottla_broker_address(broker), added);
    return text;
}

/* Sends one record until it is delivered: a slow machine may not get to know the topic within
 * max.block.ms. From then on the producer knows it. */
static inline int make_known(ottla_producer_t *producer, const ottla_record_t *record)
{
    int64_t deadline = now_ms() + SOON;
    for (;;) {
        ottla_error_t *error = ottla_producer_send_wait(producer, record, SOON, NULL);
        int known = !error;
        ottla_error_free(error);
        if (known || now_ms() > deadline) return known;
    }
}

static inline int bytes_are(ottla_bytes_t bytes, const char *text)
{
    return bytes.ptr && bytes.len == strlen(text) && !memcmp(bytes.ptr, text, bytes.len);
}

static inline ottla_record_t record_of(const char *topic, const char *value)
{
    ottla_record_t record = OTTLA_RECORD(topic);
    record.value = OTTLA_BYTES(value, strlen(value));
    return record;
}

/* Whether a descriptor becomes readable within so many milliseconds. */
static inline int readable(int fd, int timeout_ms)
{
    struct pollfd watched = {fd, POLLIN, 0};
    return poll(&watched, 1, timeout_ms) == 1 && (watched.revents & POLLIN);
}

/* The next batch; NULL with a note if there is none soon. */
static inline ottla_batch_t *next_batch(ottla_consumer_t *consumer)
{
    ottla_error_t *error = NULL;
    ottla_batch_t *batch = ottla_consumer_poll(consumer, SOON, &error);
    if (!batch) printf("no batch: %s: %s\n", ottla_error_name(error), ottla_error_message(error));
    ottla_error_free(error);
    return batch;
}

#endif
