import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.record.internal.MemoryRecords;

/** Answers to a Fetch at the end of a log: what differs is how nothing is written. */
final class FetchAnswers {
    static final short FIRST = 4;
    static final short LAST = 18;

    private FetchAnswers() {}

    /** Takes a kind and an answer of that kind. */
    interface Line {
        void write(String kind, short version, FetchResponseData answer);
    }

    static void write(Line line) {
        for (short version = FIRST; version <= LAST; version++) {
            for (String aborted : List.of("null", "empty", "two")) {
                for (String records : List.of("null", "empty")) {
                    String kind = "aborted-" + aborted + "-records-" + records;
                    line.write(kind, version, answer(aborted, records));
                }
            }
        }
    }

    private static FetchResponseData answer(String aborted, String records) {
        FetchResponseData.PartitionData partition = new FetchResponseData.PartitionData()
                .setHighWatermark(5)
                .setLastStableOffset(5)
                .setLogStartOffset(0)
                .setPreferredReadReplica(-1)
                .setAbortedTransactions(aborted(aborted))
                .setRecords(records.equals("null") ? null : MemoryRecords.EMPTY);
        FetchResponseData.FetchableTopicResponse topic =
                new FetchResponseData.FetchableTopicResponse()
                        .setTopic("orders")
                        .setTopicId(new Uuid(0x0102030405060708L, 0x090a0b0c0d0e0f10L))
                        .setPartitions(List.of(partition));
        return new FetchResponseData().setResponses(List.of(topic));
    }

    private static List<FetchResponseData.AbortedTransaction> aborted(String which) {
        if (which.equals("null")) {
            return null;
        }
        if (which.equals("empty")) {
            return List.of();
        }
        return List.of(
                new FetchResponseData.AbortedTransaction().setProducerId(9).setFirstOffset(1),
                new FetchResponseData.AbortedTransaction().setProducerId(10).setFirstOffset(3));
    }
}
