// Writes record batches with Apache Kafka's own classes, one file each, for the corpus of our
// reader: `java -cp 'LIB/*' RecordBatches.java FOLDER`.

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;

public class RecordBatches {
    private static final long BASE_TIME = 1_700_000_000_000L;

    public static void main(String[] args) throws Exception {
        Path folder = Path.of(args[0]);
        Files.createDirectories(folder);
        Map<String, Compression> codecs = Map.of(
            "none", Compression.NONE,
            "gzip", Compression.gzip().level(9).build(),
            "snappy", Compression.snappy().build(),
            "lz4", Compression.lz4().level(17).build(),
            "zstd", Compression.zstd().level(19).build());
        for (Map.Entry<String, Compression> codec : codecs.entrySet()) {
            Files.write(folder.resolve("kafka-" + codec.getKey() + ".batch"), batch(codec.getValue(), 6));
        }
        ByteBuffer empty = ByteBuffer.allocate(61);
        org.apache.kafka.common.record.internal.DefaultRecordBatch.writeEmptyHeader(
            empty, RecordBatch.MAGIC_VALUE_V2, 7L, (short) 1, 4, 100L, 119L, 3,
            TimestampType.CREATE_TIME, BASE_TIME, false, false);
        Files.write(folder.resolve("kafka-emptied.batch"), empty.array());
    }

    private static byte[] batch(Compression codec, int count) {
        ByteBuffer buffer = ByteBuffer.allocate(64 * 1024);
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            buffer, RecordBatch.MAGIC_VALUE_V2, codec, TimestampType.CREATE_TIME, 100L, BASE_TIME,
            7L, (short) 1, 4, false, 3);
        for (int at = 0; at < count; at++) {
            byte[] key = at % 3 == 0 ? null : ("key-" + at).getBytes(StandardCharsets.UTF_8);
            byte[] value = at == 4 ? null : ("value ".repeat(at * 4)).getBytes(StandardCharsets.UTF_8);
            Header[] headers = at % 2 == 0 ? new Header[0] : new Header[] {
                new RecordHeader("h", (byte[]) null),
                new RecordHeader("", new byte[] {1, 2, 3}),
            };
            // Offsets with gaps, as compaction leaves them.
            builder.appendWithOffset(100L + at * 2L, BASE_TIME + at * 10L, key, value, headers);
        }
        MemoryRecords records = builder.build();
        byte[] bytes = new byte[records.sizeInBytes()];
        records.buffer().duplicate().get(bytes);
        return bytes;
    }
}
