/* Log lines: to a function of the program's, on a thread that polls. */
#include <pthread.h>
#include <sys/wait.h>

#include "harness.h"

struct seen {
    int lines, broker_started, connected, warned, wrong;
    char last[256];
    pthread_t thread;
    int64_t time;
};

static void keep(const ottla_log_line_t *line, void *user)
{
    struct seen *seen = user;
    seen->lines++;
    seen->thread = pthread_self();
    seen->time = line->time;
    if (!strcmp(line->source, "broker") && strstr(line->message, "broker started")) {
        seen->broker_started++;
        if (line->level != OTTLA_LOG_INFO || !strstr(line->module, "ottla_broker")) seen->wrong++;
    }
    if (!strcmp(line->source, "client") && strstr(line->message, "connected")) {
        seen->connected++;
        if (line->level != OTTLA_LOG_DEBUG) seen->wrong++;
    }
    if (line->level == OTTLA_LOG_WARN) seen->warned++;
    snprintf(seen->last, sizeof seen->last, "%s", line->message);
}

/* Makes a client that has a warning written, and nothing else. */
static void warn(void)
{
    ottla_producer_free(ottla_producer_new("bootstrap.servers=127.0.0.1:1;acks=0", NULL));
}

static void without_a_function_there_are_no_lines(void)
{
    warn();
    CHECK(ottla_log_poll(0) == 0);
    struct seen seen = {0};
    CHECK_OK(ottla_log_set_callback(OTTLA_LOG_WARN, keep, &seen));
    CHECK(ottla_log_poll(0) == 0 && seen.lines == 0);
    CHECK_OK(ottla_log_set_callback(0, NULL, NULL));
}

static void a_line_says_who_wrote_it_when_and_how_important_it_is(void)
{
    struct seen seen = {0};
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    CHECK_OK(ottla_log_set_callback(OTTLA_LOG_DEBUG, keep, &seen));
    ottla_broker_t *broker = ottla_broker_start(NULL, NULL);
    CHECK(seen.lines == 0); /* On no thread of the library. */
    CHECK(ottla_log_poll(SOON) > 0);
    CHECK(seen.broker_started == 1 && seen.wrong == 0);
    CHECK(pthread_equal(seen.thread, pthread_self()));
    CHECK(seen.time >= (int64_t)now.tv_sec * 1000 && seen.time < (int64_t)now.tv_sec * 1000 + SOON);
    ottla_broker_free(broker);
    CHECK_OK(ottla_log_set_callback(0, NULL, NULL));
}

static void less_important_lines_are_not_handed_on(void)
{
    struct seen seen = {0};
    CHECK_OK(ottla_log_set_callback(OTTLA_LOG_WARN, keep, &seen));
    ottla_broker_t *broker = ottla_broker_start(NULL, NULL);
    warn();
    CHECK(ottla_log_poll(SOON) == 1 && seen.warned == 1);
    CHECK(strstr(seen.last, "acks is not all"));
    ottla_broker_free(broker);
    CHECK_OK(ottla_log_set_callback(0, NULL, NULL));
}

static void polls_of_clients_hand_lines_on(void)
{
    struct seen seen = {0};
    const char *topic = "orders";
    ottla_error_t *error = NULL;
    ottla_broker_t *broker = ottla_broker_start(NULL, NULL);
    ottla_producer_t *producer = ottla_producer_new(options_of(broker, ""), NULL);
    ottla_consumer_t *consumer = ottla_consumer_new(options_of(broker, "group.id=g"), NULL);
    ottla_record_t record = record_of(topic, "v");
    CHECK_OK(ottla_log_set_callback(OTTLA_LOG_DEBUG, keep, &seen));
    CHECK_OK(ottla_producer_send_wait(producer, &record, SOON, NULL));
    ottla_producer_poll(producer, 0);
    CHECK(seen.connected > 0 && seen.wrong == 0);
    CHECK_OK(ottla_log_set_callback(OTTLA_LOG_WARN, keep, &seen));
    CHECK_OK(ottla_consumer_subscribe(consumer, &topic, 1));
    seen.warned = 0;
    warn();
    ottla_batch_free(ottla_consumer_poll(consumer, 0, &error));
    ottla_error_free(error);
    CHECK(seen.warned == 1);
    CHECK_OK(ottla_log_set_callback(0, NULL, NULL));
    CHECK_OK(ottla_producer_close(producer, SOON));
    ottla_producer_free(producer);
    ottla_consumer_free(consumer);
    ottla_broker_free(broker);
}

static void *poll_for_long(void *told)
{
    *(size_t *)told = ottla_log_poll(-1);
    return NULL;
}

static void null_ends_it_and_the_wait_for_lines(void)
{
    struct seen seen = {0};
    size_t told = 1;
    pthread_t thread;
    CHECK_OK(ottla_log_set_callback(OTTLA_LOG_WARN, keep, &seen));
    CHECK(!pthread_create(&thread, NULL, poll_for_long, &told));
    CHECK_OK(ottla_log_set_callback(0, NULL, NULL));
    CHECK(!pthread_join(thread, NULL) && told == 0);
    CHECK_OK(ottla_log_set_callback(OTTLA_LOG_WARN, keep, &seen));
    warn();
    CHECK_OK(ottla_log_set_callback(0, NULL, NULL));
    CHECK_OK(ottla_log_set_callback(OTTLA_LOG_WARN, keep, &seen));
    CHECK(ottla_log_poll(0) == 0 && seen.lines == 0);
    CHECK_OK(ottla_log_set_callback(0, NULL, NULL));
}

static int inner;

static void call_back(const ottla_log_line_t *line, void *user)
{
    keep(line, user);
    warn();
    inner += (int)ottla_log_poll(SOON);
    ottla_error_free(ottla_log_set_callback(OTTLA_LOG_WARN, keep, user));
}

static void a_function_may_poll_and_set_another(void)
{
    struct seen seen = {0};
    CHECK_OK(ottla_log_set_callback(OTTLA_LOG_WARN, call_back, &seen));
    warn();
    CHECK(ottla_log_poll(SOON) == 1 && seen.lines == 1 && inner == 0);
    CHECK(ottla_log_poll(SOON) == 1 && seen.lines == 2);
    CHECK_OK(ottla_log_set_callback(0, NULL, NULL));
}

static void lines_beyond_the_limit_are_counted(void)
{
    struct seen seen = {0};
    CHECK_OK(ottla_log_set_callback(OTTLA_LOG_WARN, keep, &seen));
    for (int index = 0; index < 10007; index++) warn();
    CHECK(ottla_log_poll(0) == 10001);
    CHECK(strstr(seen.last, "7 log lines were not kept"));
    CHECK_OK(ottla_log_set_callback(0, NULL, NULL));
}

static void an_unknown_level_is_refused(void)
{
    static const int odd[] = {0, 6, -1, 257};
    for (size_t index = 0; index < sizeof odd / sizeof *odd; index++) {
        CHECK_ERROR(ottla_log_set_callback(odd[index], keep, NULL), OTTLA_ERR_INVALID_ARGUMENT,
                    "`level` is");
    }
    warn();
    CHECK(ottla_log_poll(0) == 0);
}

static void a_child_of_a_fork_has_lines_once_it_asks_for_them(void)
{
    struct seen seen = {0};
    CHECK_OK(ottla_log_set_callback(OTTLA_LOG_WARN, keep, &seen));
    warn();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        warn();
        int none = ottla_log_poll(0) == 0 && seen.lines == 0;
        ottla_error_free(ottla_log_set_callback(OTTLA_LOG_WARN, keep, &seen));
        warn();
        _exit(none && ottla_log_poll(SOON) == 1 && seen.lines == 1 ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(ottla_log_poll(SOON) == 1 && seen.lines == 1);
    CHECK_OK(ottla_log_set_callback(0, NULL, NULL));
}

struct inside {
    struct seen seen;
    int is_in[2], may_go[2];
};

/* Stays in the call until it is told to go. */
static void keep_and_stay(const ottla_log_line_t *line, void *user)
{
    struct inside *inside = user;
    char byte = 0;
    keep(line, &inside->seen);
    CHECK(write(inside->is_in[1], &byte, 1) == 1 && read(inside->may_go[0], &byte, 1) == 1);
}

static void *poll_once(void *told)
{
    *(size_t *)told = ottla_log_poll(SOON);
    return NULL;
}

static void a_child_has_lines_also_if_a_thread_of_its_parent_was_handing_some_on(void)
{
    struct inside inside = {0};
    size_t told = 0;
    char byte = 0;
    pthread_t thread;
    CHECK(!pipe(inside.is_in) && !pipe(inside.may_go));
    CHECK_OK(ottla_log_set_callback(OTTLA_LOG_WARN, keep_and_stay, &inside));
    warn();
    CHECK(!pthread_create(&thread, NULL, poll_once, &told));
    CHECK(read(inside.is_in[0], &byte, 1) == 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct seen seen = {0};
        ottla_error_free(ottla_log_set_callback(OTTLA_LOG_WARN, keep, &seen));
        warn();
        _exit(ottla_log_poll(SOON) == 1 && seen.lines == 1 ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* In the parent it is still that thread alone, also after another function was set. */
    CHECK_OK(ottla_log_set_callback(OTTLA_LOG_WARN, keep, &inside.seen));
    warn();
    CHECK(ottla_log_poll(0) == 0);
    CHECK(write(inside.may_go[1], &byte, 1) == 1 && !pthread_join(thread, NULL) && told == 1);
    CHECK(ottla_log_poll(SOON) == 1 && inside.seen.lines == 2);
    CHECK_OK(ottla_log_set_callback(0, NULL, NULL));
    for (int end = 0; end < 2; end++) CHECK(!close(inside.is_in[end]) && !close(inside.may_go[end]));
}

int main(void)
{
    static const struct test tests[] = {
        {"without a function there are no lines", without_a_function_there_are_no_lines},
        {"a line says who wrote it, when and how important it is",
         a_line_says_who_wrote_it_when_and_how_important_it_is},
        {"less important lines are not handed on", less_important_lines_are_not_handed_on},
        {"polls of clients hand lines on", polls_of_clients_hand_lines_on},
        {"NULL ends it, and the wait for lines", null_ends_it_and_the_wait_for_lines},
        {"a function may poll, and set another", a_function_may_poll_and_set_another},
        {"lines beyond the limit are counted", lines_beyond_the_limit_are_counted},
        {"an unknown level is refused", an_unknown_level_is_refused},
        {"a child of a fork has lines once it asks for them",
         a_child_of_a_fork_has_lines_once_it_asks_for_them},
        {"a child has lines also if a thread of its parent was handing some on",
         a_child_has_lines_also_if_a_thread_of_its_parent_was_handing_some_on},
    };
    return RUN(tests);
}
