/* What waits for a delivery callback counts in buffer.memory: a program that never polls stays small. */
#include "harness.h"

/* Records that fit into the budget below many times over. */
#define MANY 40000

static ottla_broker_t *broker;

static void count(const ottla_result_t *results, size_t results_len, void *user)
{
    for (size_t index = 0; index < results_len; index++) {
        if (results[index].code == OTTLA_OK) ++*(int *)user;
    }
}

/* A producer that finds no room for long soon, and knows its topic. */
static ottla_producer_t *small(void)
{
    ottla_record_t record = record_of("orders", "first");
    ottla_producer_t *producer = ottla_producer_new(
        options_of(broker, "buffer.memory=1048576;batch.size=16384;max.block.ms=500"), NULL);
    if (!make_known(producer, &record)) printf("the topic did not become known\n");
    return producer;
}

/* Sends until there is no room, or all is sent; how many were taken. Each batch is delivered before
 * the next one is begun, so that nothing but what waits to be told fills the buffer. */
static int send_while_taken(ottla_producer_t *producer, ottla_error_t **refusal)
{
    static char value[1000];
    ottla_record_t record = OTTLA_RECORD("orders");
    record.value = OTTLA_BYTES(value, sizeof value);
    int taken = 0;
    for (*refusal = NULL; taken < MANY; taken++) {
        *refusal = ottla_producer_send(producer, &record, NULL);
        if (*refusal) break;
        if (taken % 15 == 14) ottla_error_free(ottla_producer_flush(producer, SOON));
    }
    return taken;
}

static void records_that_wait_to_be_told_of_fill_the_buffer(void)
{
    int told = 0;
    ottla_error_t *refusal;
    ottla_producer_t *producer = small();
    CHECK_OK(ottla_producer_on_delivery(producer, count, &told));
    int taken = send_while_taken(producer, &refusal);
    CHECK_ERROR(refusal, OTTLA_ERR_BUFFER_FULL, "max.block.ms");
    /* Not before most of the budget is used. */
    CHECK(taken > 500 && taken < 1100);
    CHECK_OK(ottla_producer_flush(producer, SOON));
    CHECK(told == 0);
    while (told < taken) CHECK(ottla_producer_poll(producer, SOON) > 0);
    /* All of it is there again. */
    int again = send_while_taken(producer, &refusal);
    ottla_error_free(refusal);
    CHECK(again > 500);
    CHECK_OK(ottla_producer_close(producer, SOON));
    ottla_producer_free(producer);
}

static void without_a_function_nothing_waits(void)
{
    ottla_error_t *refusal;
    ottla_producer_t *producer = small();
    CHECK(send_while_taken(producer, &refusal) == MANY && !refusal);
    CHECK_OK(ottla_producer_close(producer, SOON));
    ottla_producer_free(producer);
}

static void what_is_dropped_makes_room(void)
{
    int told = 0;
    ottla_error_t *refusal;
    ottla_producer_t *producer = small();
    CHECK_OK(ottla_producer_on_delivery(producer, count, &told));
    send_while_taken(producer, &refusal);
    CHECK_ERROR(refusal, OTTLA_ERR_BUFFER_FULL, "max.block.ms");
    CHECK_OK(ottla_producer_on_delivery(producer, NULL, NULL));
    CHECK(send_while_taken(producer, &refusal) == MANY && !refusal);
    CHECK(ottla_producer_poll(producer, 0) == 0 && told == 0);
    CHECK_OK(ottla_producer_close(producer, SOON));
    ottla_producer_free(producer);
}

static void a_poll_in_the_callers_own_loop_keeps_room(void)
{
    static char value[1000];
    int told = 0;
    ottla_record_t record = OTTLA_RECORD("orders");
    record.value = OTTLA_BYTES(value, sizeof value);
    ottla_producer_t *producer = small();
    CHECK_OK(ottla_producer_on_delivery(producer, count, &told));
    for (int sent = 0; sent < MANY; sent++) {
        ottla_error_t *full = ottla_producer_send(producer, &record, NULL);
        if (full) {
            CHECK_ERROR(full, OTTLA_ERR_BUFFER_FULL, "");
            sent--;
        }
        if (full || sent % 100 == 0) ottla_producer_poll(producer, 0);
    }
    CHECK_OK(ottla_producer_close(producer, SOON));
    while (ottla_producer_poll(producer, 0) > 0) continue;
    CHECK(told == MANY);
    ottla_producer_free(producer);
}

static void refused_records_that_wait_to_be_told_of_have_a_limit(void)
{
    static ottla_record_t odd[5000];
    int told = 0;
    for (size_t index = 0; index < 5000; index++) odd[index] = record_of("no/topic", "v");
    ottla_producer_t *producer = small();
    CHECK_OK(ottla_producer_on_delivery(producer, count, &told));
    for (int call = 0; call < 2; call++) {
        CHECK_ERROR(ottla_producer_send_many(producer, odd, 5000, NULL), OTTLA_ERR_INVALID_TOPIC, "");
    }
    CHECK_ERROR(ottla_producer_send_many(producer, odd, 1, NULL), OTTLA_ERR_INVALID_STATE,
                "ottla_producer_poll");
    CHECK(ottla_producer_poll(producer, 0) == 10000);
    CHECK_ERROR(ottla_producer_send_many(producer, odd, 1, NULL), OTTLA_ERR_INVALID_TOPIC, "");
    CHECK(ottla_producer_poll(producer, 0) == 1);
    CHECK_OK(ottla_producer_close(producer, SOON));
    ottla_producer_free(producer);
}

int main(void)
{
    static const struct test tests[] = {
        {"records that wait to be told of fill the buffer",
         records_that_wait_to_be_told_of_fill_the_buffer},
        {"without a function nothing waits", without_a_function_nothing_waits},
        {"what is dropped makes room", what_is_dropped_makes_room},
        {"a poll in the caller's own loop keeps room", a_poll_in_the_callers_own_loop_keeps_room},
        {"refused records that wait to be told of have a limit",
         refused_records_that_wait_to_be_told_of_have_a_limit},
    };
    broker = ottla_broker_start(NULL, NULL);
    ottla_error_free(ottla_broker_create_topic(broker, "orders", 1));
    int status = RUN(tests);
    ottla_broker_free(broker);
    return status;
}
