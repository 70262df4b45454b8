/* Clients and processes: a fork, and the end of a program that leaves all open. */
#include <sys/wait.h>

#include "harness.h"

static ottla_broker_t *broker;
static const char *program;

static int send_one(ottla_producer_t *producer, const char *topic)
{
    ottla_record_t record = record_of(topic, "value");
    ottla_error_t *error = ottla_producer_send(producer, &record, NULL);
    int failed = error != NULL;
    ottla_error_free(error);
    return failed;
}

static void a_child_of_a_fork_is_told_and_disturbs_nothing(void)
{
    const char *topic = "orders";
    ottla_producer_t *producer = ottla_producer_new(options_of(broker, ""), NULL);
    ottla_consumer_t *consumer = ottla_consumer_new(options_of(broker, "group.id=forked"), NULL);
    CHECK(!send_one(producer, topic));
    CHECK_OK(ottla_consumer_subscribe(consumer, &topic, 1));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        ottla_record_t record = record_of(topic, "value");
        ottla_error_t *first = ottla_producer_send(producer, &record, NULL);
        ottla_error_t *second = ottla_consumer_subscribe(consumer, &topic, 1);
        ottla_error_t *third = ottla_producer_close(producer, -1);
        int told = ottla_error_code(first) == OTTLA_ERR_FORKED &&
                   ottla_error_code(second) == OTTLA_ERR_FORKED &&
                   ottla_error_code(third) == OTTLA_ERR_FORKED;
        ottla_error_free(first);
        ottla_error_free(second);
        ottla_error_free(third);
        ottla_consumer_wakeup(consumer);
        ottla_producer_free(producer);
        ottla_consumer_free(consumer);
        /* A new client in the child works, with the parent's broker. */
        producer = ottla_producer_new(options_of(broker, ""), NULL);
        first = ottla_producer_send_wait(producer, &record, SOON, NULL);
        second = ottla_producer_close(producer, SOON);
        told = told && !first && !second;
        ottla_producer_free(producer);
        ottla_broker_free(broker);
        _exit(told ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(!send_one(producer, topic));
    CHECK_OK(ottla_producer_close(producer, SOON));
    CHECK_OK(ottla_consumer_close(consumer, SOON));
    ottla_producer_free(producer);
    ottla_consumer_free(consumer);
}

/* Leaves main with everything open. */
static int exit_early(void)
{
    const char *topic = "orders";
    broker = ottla_broker_start(NULL, NULL);
    ottla_producer_t *producer = ottla_producer_new(options_of(broker, ""), NULL);
    ottla_consumer_t *consumer = ottla_consumer_new(options_of(broker, "group.id=early"), NULL);
    if (send_one(producer, topic)) return 1;
    ottla_error_free(ottla_consumer_subscribe(consumer, &topic, 1));
    return 0;
}

static void a_program_may_exit_with_everything_open(void)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        execl(program, program, "exit-early", (char *)NULL);
        _exit(127);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int count, char **arguments)
{
    static const struct test tests[] = {
        {"a child of a fork is told and disturbs nothing",
         a_child_of_a_fork_is_told_and_disturbs_nothing},
        {"a program may exit with everything open", a_program_may_exit_with_everything_open},
    };
    if (count > 1 && !strcmp(arguments[1], "exit-early")) return exit_early();
    program = arguments[0];
    broker = ottla_broker_start(NULL, NULL);
    ottla_error_free(ottla_broker_create_topic(broker, "orders", 1));
    int status = RUN(tests);
    ottla_error_free(ottla_broker_stop(broker, SOON));
    ottla_broker_free(broker);
    return status;
}
